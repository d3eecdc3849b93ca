-- Images: channels cut over tp, the batch over dp; pooling, a normalised head, both losses.
-- mesh: tp=2
-- mesh: tp=3
-- mesh: dp=2
-- mesh: dp=3 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.conv1 = nn.Conv2d(3, 6, 3, {padding = 1})
  self.conv2 = nn.Conv2d(6, 4, {3, 2}, {stride = {2, 1}, dilation = {1, 2}, groups = 2, bias = false})
  self.pool, self.gelu, self.flat = nn.MaxPool2d(2, {padding = 1}), nn.GELU("tanh"), nn.Flatten()
  self.norm = nn.LayerNorm(12)
  self.head = nn.Linear(12, 7)
  function self:forward(x)
    x = self.pool(self.gelu(self.conv1(x)))
    x = self.flat(self.conv2(x))
    return self.head(self.norm(x))
  end
end)

local model = parallelize(Model(), mesh.tp, {head = Colwise{output_layouts = Replicate()}})
local batch = distribute({input = randn{5, 3, 7, 8}, target = randint(7){5}}, mesh.dp, Shard(0))

return train{
  model = model, batch = batch,
  loss = function(output, batch)
    return F.cross_entropy(output, batch.target, {ignore_index = 3}) + 0.1 * F.mse_loss(output, output:detach() * 0)
  end,
  optimizer = SGD{lr = 0.2},
  steps = 5, seed = 21,
}
