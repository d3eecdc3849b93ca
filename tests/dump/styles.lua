-- args: -D tp=4
-- Styles by pattern over a mesh of two dimensions.
local Attention = nn.module("Attention", function(self)
  self.wq = nn.Linear(8, 8)
  self.wk = nn.Linear(8, 8)
  self.wo = nn.Linear(8, 8)
  function self:forward(x) return self.wo(self.wq(x) * self.wk(x)) end
end)
local Block = nn.module("Block", function(self)
  self.norm = nn.Identity()
  self.attention = Attention()
  self.w1 = nn.Linear(8, 16)
  self.w2 = nn.Linear(16, 8)
  function self:forward(x)
    x = x + self.attention(self.norm(x))
    return x + self.w2(self.w1(x):silu())
  end
end)

local mesh = device_mesh{dp = 2, tp = args.tp}
local model = nn.Sequential(Block(), Block(), nn.Linear(8, 3))
parallelize(model, mesh.tp, {
  ["[01].norm"] = SequenceParallel(),
  ["[!2]"] = {
    ["attention"] = PrepareModuleInput{
      input_layouts = Shard(1), desired_input_layouts = {Replicate()},
    },
    ["attention.w[qk]"] = Colwise(),
    ["attention.wo"] = Rowwise{output_layouts = Shard(1)},
    ["w?"] = {},
  },
  ["*.w1"] = Colwise{input_layouts = Shard(1)},
  ["*.w2"] = Rowwise{output_layouts = Shard(1)},
})
parallelize(model[3], mesh.tp, Colwise{output_layouts = Replicate()})
parallelize(model, mesh.dp, PrepareModuleOutput{desired_output_layouts = Shard(0)})

local batch = distribute({input = randn{4, 6, 8}, target = randn{4, 6, 3}}, mesh.dp, Shard(0))
return train{
  model     = model,
  batch     = {input = distribute(batch.input, mesh.tp, Shard(-2)), target = batch.target},
  forward   = function(model, batch) return model(batch.input * 1) end,
  loss      = function(output, batch) return ((output - batch.target) ^ 2):mean() end,
  optimizer = SGD{lr = 0.1, weight_decay = 1e-3},
  steps     = 3,
  seed      = 7,
}
