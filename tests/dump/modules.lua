-- The module tree: names, order, lists, parameters of one's own, and what is called when.
local Gate = nn.module("Gate", function(self, width)
  self.scale = nn.Parameter{width, init = nn.init.constant(1)}
  self.shift = nn.Parameter(zeros{width})
  function self:forward(x, y)
    local z = x * self.scale + self.shift
    return z:sigmoid() * y, z
  end
end)

local Block = nn.module("Block", function(self, width)
  self.up = nn.Linear(width, 2 * width, {bias = false})
  self.down = nn.Linear(2 * width, width)
  self.gate = Gate(width)
  self.width = width

  function self:forward(x)
    assert(#x == 4 and x:size(-1) == self.width and x.shape[2] == self.width)
    local gated, z = self.gate(x, self.down(self.up(x)))
    return x + gated, z
  end
end)

local Model = nn.module("Model", function(self)
  self.blocks = nn.ModuleList()
  for i = 1, 2 do self.blocks[i] = Block(8) end
  self.last = nn.Sequential(nn.Linear(8, 3), nn.Tanh(), nn.Identity())

  function self:forward(x)
    local z
    for _, block in ipairs(self.blocks) do x, z = block(x) end
    x = self.blocks[1](x) -- once more: the same weights
    return self.last(x + z)
  end
end)

local model = Model()
assert(#model.blocks == 2)
return infer{model = model, batch = {input = randn{4, 8}}}
