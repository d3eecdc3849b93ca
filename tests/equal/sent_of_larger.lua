-- A rank that has no sample of a smaller micro-batch sends no gradient of it. Its forward takes the slot anew all the same,
-- from which the gradient of a larger one may still be on its way, in the bytes of an activation.
-- mesh: pp=2 tp=2 microbatches=3
-- cuda: pp=2 tp=2 microbatches=3
local mesh = device_mesh{ {"tp", args.tp or 1}, {"pp", args.pp or 1} }
local WIDTH = 16

local Last = nn.module("Last", function(self)
  self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)
  function self:forward(x) return self.down(F.gelu(self.up(x))) end
end)
local Model = nn.module("Model", function(self)
  self.first, self.last = nn.Linear(4, WIDTH), Last()
  function self:forward(x) return self.last(self.first(x)) end
end)

local model = parallelize(Model(), mesh.tp, {
  first = Rowwise{output_layouts = Shard(0)}, last = {up = Colwise{input_layouts = Shard(0)}, down = Rowwise()},
})
if args.pp then pipeline(model, mesh.pp, {microbatches = args.microbatches, split = {"last"}}) end
return train{
  model = model, batch = {input = randn{5, 4}, target = randn{5, 4}},
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.1}, steps = 3, seed = 3,
}
