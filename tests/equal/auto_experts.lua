-- auto() of mixtures of experts: tokens go to `top` of e experts, of two products each. The experts of each token are an
-- input, so that only tokens, the experts' weights, and the gradients of both move (tests/scripts/passes/auto.sh counts them).
-- The tokens are cut if `rows` is m.
-- mesh: a=2 limit=65536
-- mesh: a=4 limit=65536
-- mesh: a=4 limit=65536 rows=R
-- mesh: a=4
local m, h, f, e, top, layers = args.m or 64, args.h or 16, args.f or 32, args.e or 8, args.top or 2, args.layers or 2
local mesh = device_mesh{ {"a", args.a or 1} }
local Experts = nn.module("Experts", function(self)
  self.w1, self.w2 = nn.Parameter{e, f, h, init = nn.init.normal(0, 0.1)}, nn.Parameter{e, h, f, init = nn.init.normal(0, 0.1)}
  function self:forward(rows, counts)
    return F.grouped_linear(F.relu(F.grouped_linear(rows, self.w1, counts)), self.w2, counts)
  end
end)
local Block = nn.module("Block", function(self)
  self.experts = Experts()
  function self:forward(x, ids, ones, counts)
    return x + F.combine(self.experts(F.dispatch(x, ids, ones, counts), counts), ids, ones, counts)
  end
end)
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{}
  for i = 1, layers do self.layers[i] = Block() end
  function self:forward(x, ids)
    local ones, counts = F.full({m, 1, top}, 1.0), F.count_places(ids, {sizes = {e = e}})
    for _, block in ipairs(self.layers) do x = block(x, ids, ones, counts) end
    return x
  end
end)
local batch = {input = randn{m, 1, h}, ids = randint(0, e){m, 1, top, dtype = "int32"}, target = randn{m, 1, h}}
if (args.rows or "m") == "m" then batch = distribute(batch, mesh.a, Shard(0)) end
return train{
  model = parallelize(Model(), mesh, auto{parameters = args.limit}), batch = batch,
  forward = function(model, b) return model(b.input, b.ids) end,
  loss = function(y, b) return F.mse_loss(y, b.target) end,
  optimizer = SGD{lr = 0.1}, steps = 3,
}
