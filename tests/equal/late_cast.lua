-- A layer's gradient is summed in bfloat16 while the next layer's backward runs, and awaited there: what
-- casts it back to float32 behind the wait is part of the same step.
-- rounds: bfloat16
-- mesh: a=2 b=1
-- mesh: a=3 b=1
-- cuda: a=2 b=1
-- cuda: a=3 b=1
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1} }

local Layer = nn.module("Layer", function(self)
  self.conv = nn.Conv2d(2, 2, {2, 1}, {stride = 2, padding = 1, groups = 2, bias = true})
  function self:forward(x)
    local joined = F.einsum("abkm,abkn->nm", x, x):tanh()
    local convolved = self.conv(x)
    return x + x + joined:mean():tanh() * 0.3 + convolved:mean():tanh() * 0.3
  end
end)

local Model = nn.module("Model", function(self)
  self.first = nn.Linear(4, 8)
  self.layers = nn.ModuleList{Layer(), Layer(), Layer(), Layer()}
  function self:forward(batch)
    local x = self.first(batch.input:to("bfloat16")):tril(-2)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return ((x:to("float32") - 0.5)^2):sum(0):mean() * 0.2
  end
end)

local model = Model()
mixed_precision(model, {param_dtype = "bfloat16", reduce_dtype = "bfloat16"})
local batch = {input = randn{8, 2, 1, 4}}
distribute(batch.input, mesh.a, Shard(1))
return train{
  model = model, batch = batch,
  forward = function(model, batch) return model(batch) end,
  loss = function(output) return output end,
  optimizer = SGD{lr = 0.05},
  steps = 3, seed = 163,
}
