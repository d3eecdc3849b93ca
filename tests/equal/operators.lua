-- Operators of the plan's own: one element by element, with a gradient; one that sums a dimension,
-- which may be cut.
-- mesh: dp=2
-- mesh: tp=2
-- cuda: tp=2
-- mesh: tp=3
-- mesh: dp=2 tp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local swish_back = operator{
  name = "swish_back", rule = "...,...,...->...", linear = "a",
  kernel = "kernels/swish_back.c", kernel_cuda = "kernels/swish_back.cu",
}
local swish = operator{
  name = "swish", rule = "...->...", kernel = "kernels/swish.c", kernel_cuda = "kernels/swish.cu",
  backward = {swish_back},
}
local mix = operator{
  name = "mix", rule = "rm,mn->rn", linear = "a|b", kernel = "kernels/mix.c",
  kernel_cuda = "kernels/mix.cu",
}

local Model = nn.module("Model", function(self)
  self.up, self.down = nn.Linear(6, 7), nn.Linear(7, 4)
  function self:forward(x)
    local h = swish(self.up(x), {scalar = 1.5})
    return self.down(h) + mix(h:detach(), self.down.weight:detach():t())
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = distribute({input = randn{9, 6}, target = randn{9, 4}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.3},
  steps = 5, seed = 4,
}
