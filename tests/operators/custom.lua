-- Operators of the plan's own, each a rule and a pair of kernel files.
local function own(name, rule, linear, backward)
  return operator{name = name, rule = rule, linear = linear, kernel = "kernels/" .. name .. ".c",
    kernel_cuda = "kernels/" .. name .. ".cu", backward = backward}
end

-- x / (1 + exp(-s x)), with s the scalar. Its gradient has the output for s = 1.
local swish_back = own("swish_back", "...,...,...->...", "a")
local swish = own("swish", "...->...", "", {swish_back})

-- x (1 + j / 4), j the index in the whole last dimension.
local ramp_back = own("ramp_back", "...j@,...j@,...j@->...j@", "a")
local ramp = own("ramp", "...j@->...j@", "a", {ramp_back})

-- Sums of the last dimension by weights: cut along it, they are pending.
local weighed_back = own("weighed_back", "...,...k,k,...->...k", "a|c")
local weights_back = own("weights_back", "...,...k,k,...->k", "a|b")
local weighed = own("weighed", "...k,k->...", "a|b", {weighed_back, weights_back})

local S = {4, 6, 5}
input("x", S)
input("w", {5})

case("swish", S, function(t) return swish(t.x, {scalar = 1}) * 2 end)
case("swish_scaled", S, function(t) return swish(t.x:detach(), {scalar = 1.5}) end)
case("ramp", S, function(t) return ramp(t.x) end)
case("ramp_turned", {5, 6, 4}, function(t) return ramp(t.x:permute(2, 1, 0)):exp() end)
case("weighed", {4, 6}, function(t) return weighed(t.x, t.w) end)
case("weighed_twice", {4}, function(t) return weighed(t.x:tanh(), t.w):exp():sum(1) end)

return program()
