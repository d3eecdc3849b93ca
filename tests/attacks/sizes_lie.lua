-- Sizes, dimensions and lists that are other things each time they are asked.
local n = 0
local lying = setmetatable({}, {
  __len = function() n = n + 1 return n * 1000000 end,
  __index = function(_, i) n = n + 1 return n % 2 == 0 and i or -i end,
  __pairs = function() return function() return nil end end,
})
return infer{
  model = nn.Identity(), batch = {input = randn{4, 6}},
  outputs = function(_, b)
    return {output = b.input:view(lying):permute(lying):sum(lying):expand(lying):pad(lying)}
  end,
}
