-- Normalization of groups and batches, products and counts along a dimension, scans.
local S = {4, 6, 5}
input("x", S)
input("y", S)
input("image", {4, 6, 3, 4})
input("gain", {6})
input("shift", {6})
given("mean", {6}, randn)
given("variance", {6}, rand)
input("zeros", {4, 7})    -- with zeros
input("w", {5, 5})
given("number", {24}, randint(7))

case("group_norm", S, function(t) return F.group_norm(t.x, 2, t.gain, t.shift, 1e-3) end)
case("group_norm_plain", {4, 6, 3, 4}, function(t) return F.group_norm(t.image, 3) end)
case("group_norm_row", {4, 6}, function(t) return F.group_norm(t.x:select(2, 1), 2, {bias = t.shift}) end)
case("instance_norm", {4, 6, 3, 4}, function(t) return F.instance_norm(t.image, {weight = t.gain, eps = 0.01}) end)
case("batch_norm", {4, 6, 3, 4}, function(t)
  return F.batch_norm(t.image, nil, nil, t.gain, t.shift, true, 0.1, 1e-4)
end)
case("batch_norm_row", {4, 6}, function(t) return F.batch_norm(t.x:select(2, 0), {training = true}) end)
case("batch_norm_eval", S, function(t) return F.batch_norm(t.x, t.mean, t.variance, t.gain, t.shift) end)
local norm = part("norm", nn.BatchNorm2d(6, {affine = false}))
case("batch_norm_running", {4, 6, 3, 4}, function(t)
  return F.batch_norm(t.image, norm.running_mean, norm.running_var, {training = true, momentum = 0.3})
end)
case("cumprod", S, function(t) return t.x:cumprod(1) end)
case("cumprod_last", S, function(t) return F.cumprod(t.y, -1):tanh() end)
case("cumprod_zeros", {4, 7}, function(t) return t.zeros:relu():cumprod(1) end)
case("bincount", {9}, function(t) return t.number:bincount({minlength = 9}):to("float32") end)
case("bincount_weights", {7}, function(t) return F.bincount(t.number, t.x:narrow(2, 0, 1):flatten(), 7):exp() end)
case("scan", {4, 5}, function(t)
  local last = F.scan(function(h, x) return (h:matmul(t.w) + x):tanh() end, t.x:select(1, 0), t.y, 1)
  return last
end)
case("scan_outputs", S, function(t)
  local _, all = F.scan(function(h, s)
    h = h * s.gate:sigmoid() + s.x
    return h, h * 2
  end, F.zeros(4, 5), {x = t.x, gate = t.y}, 1)
  return all
end)

return program()
