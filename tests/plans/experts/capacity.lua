-- A mixture of experts with a capacity, whose tokens are cut along the batch and along the sequence. -D ep (ranks with some
-- experts each), -D sp (with parts of sequences), -D tp (with parts of each expert), -D batch, -D cut: the dimension of
-- the tokens that is cut over ep.
local ep, sp, tp = args.ep or 1, args.sp or 1, args.tp or 1
local mesh = device_mesh{ {"ep", ep}, {"sp", sp}, {"tp", tp} }
local Model = nn.module("Model", function(self)
  self.moe = nn.MoE(6, {experts = 4, top_k = 2, hidden = 5, capacity = 0.5, init = nn.init.normal(0, 1)})
  function self:forward(x)
    local y = self.moe(x)
    return y
  end
end)
local model = Model()
if tp > 1 then parallelize(model, mesh.tp, {["moe.experts"] = ExpertTensorParallel()}) end
if ep > 1 then parallelize(model, mesh.ep, {["moe.experts"] = ExpertParallel()}) end
return train{
  model = model,
  batch = distribute({input = randn{args.batch or 4, 8, 6}}, mesh{"ep", "sp"}, {Shard(args.cut or 0), Shard(1)}),
  loss = function(y) return (y * y):mean() end,
  optimizer = SGD{lr = 0.1}, steps = 5, seed = 3,
}
