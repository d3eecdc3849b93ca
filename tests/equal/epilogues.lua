-- Linear layers with what a product may do to its result: a bias; relu and gelu after it, trained and
-- not; the gradients of gelu and of biases. Rows of 8, or not; in layers, and alone; with micro-steps.
-- With pieces=2 what the layers gather over tp, and their products, are cut. With checkpoint=layer the kernel that has gelu's
-- gradient makes its input again.
-- mesh: tp=2
-- mesh: dp=2 checkpoint=layer
-- cuda: dp=2 checkpoint=layer
-- mesh: dp=2
-- mesh: dp=2 tp=2
-- cuda: dp=2 tp=2
-- mesh: dp=2 tp=2 pieces=2
-- cuda: dp=2 tp=2 pieces=2
-- mesh: dp=3
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Block = nn.module("Block", function(self)
  self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
  function self:forward(x) return x + self.down(F.gelu(self.up(x), "tanh")) end
end)

local Model = nn.module("Model", function(self)
  self.first, self.layers = nn.Linear(6, 8), nn.ModuleList{Block(), Block(), Block()}
  self.odd, self.back = nn.Linear(8, 12), nn.Linear(12, 8)
  self.wide, self.narrow = nn.Linear(8, 10), nn.Linear(10, 8, {bias = false})
  self.output = nn.Linear(8, 3)
  function self:forward(x)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    x = x + self.back(F.gelu(self.odd(x), "tanh"))
    return self.output(x + self.narrow(F.relu(self.wide(x))))
  end
end)

local cut = args.pieces and Shard(0)
local up = cut and Colwise{input_layouts = cut} or Colwise()
local down = cut and Rowwise{output_layouts = cut} or Rowwise()
local styles = {
  ["layers.*"] = {up = up, down = down}, odd = up, back = down, wide = up, narrow = down,
}
if cut then styles.first = down end
local model = parallelize(Model(), mesh.tp, styles, {async_tp = tonumber(args.pieces)})
local rows = 16
local batch = distribute({input = randn{rows, 4, 6}, target = randn{rows, 4, 3}}, mesh.dp, Shard(0))

return train{
  model = model, batch = batch,
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3},
  steps = 5, seed = 4, checkpoint = args.checkpoint,
}
