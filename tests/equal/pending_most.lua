-- What is pending as a maximum is put beside other parts, and filled with a number, which is made pending
-- too.
-- mesh: a=2
-- cuda: a=2
-- mesh: a=3
local mesh = device_mesh{ {"a", args.a or 1} }

local Block = nn.module("Block", function(self)
  function self:forward(x)
    local most = x:redistribute(mesh, {Partial("max")}):narrow(2, 2, 2)
    local rows = F.einsum("bij,bkj->bik", x, x):matmul(x):narrow(2, 2, 5)
    return F.cat({most, rows}, 2):masked_fill(x:lt(2), 2):flatten(1, 2)
  end
end)
local Model = nn.module("Model", function(self)
  self.layers, self.output = nn.ModuleList{Block()}, nn.Linear(7, 2)
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(x)
  end
end)

return infer{model = Model(), batch = {input = randn{2, 1, 7}}}
