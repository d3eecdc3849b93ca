local mesh = device_mesh{ {"a", 65536, bandwidth = 1e9} }
local Block = nn.module("Block", function(self)
  self.l0 = nn.Linear(8, 8)
  self.l1 = nn.LayerNorm(8)
  self.l2 = nn.Linear(8, 8, {bias = false})
  self.l3, self.m3 = nn.Linear(8, 24), nn.Linear(24, 8)
  self.p = nn.Parameter(ones{8})
  function self:forward(x)
    local p = self.p + x * 0
    x = self.l0(x)
    local y0 = ((F.einsum("bij,bkj->bik", (x):gather(2, (x):argsort(2)), (p):masked_fill((x):lt(0), 0)):matmul((p - -1))):gather(0, (((x):sigmoid()):masked_fill((F.scaled_dot_product_attention((p):unsqueeze(1), (x):unsqueeze(1), (x):unsqueeze(1)):squeeze(1)):lt(0), 0)):argsort(0))):log_softmax(-1)
    x = x + self.l1(x)
    x = self.l2(x)
    x = x + self.m3(F.gelu(self.l3(x)))
    local y3 = ((F.cat({((p - (y0):mean())):narrow(1, 0, 1), ((p + y0)):narrow(1, 1, 3)}, 1)):log_softmax(-1)):log_softmax(-1)
    x = x:redistribute(mesh, {Shard(1)}):to("float32")
    x = x + ((x / ((p):view(256):view(8, 4, 8)):sin()) + ((F.where((p):gt(0), x, x)):view(256):view(8, 4, 8) - (x):sum()))
    return x:to("float32")
  end
end)
local model = stacked(Block, 2, 8, 3)
return train{ model = model, batch = distribute({input = randn{8, 4, 8}, target = randn{8, 4, 3}}, mesh.a, Shard(0)), loss = function(out, batch) return out:var() end, optimizer = SGD{lr = 0.1}, steps = 10, planner = "greedy" }
