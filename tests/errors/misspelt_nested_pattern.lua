local Block = nn.module("Block", function(self)
  self.w1, self.w2 = nn.Linear(8, 16), nn.Linear(16, 8)
  function self:forward(x) return self.w2(self.w1(x)) end
end)
local mesh = device_mesh{ {"tp", 2} }
local model = parallelize(nn.Sequential(Block(), Block()), mesh.tp, {
  ["*"] = {
    ["w1"] = Colwise(),
    ["w3"] = Rowwise(),
  },
})
