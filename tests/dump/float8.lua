-- args: -D tp=2
-- Products in float8: one with a scale for each tensor, whose maxima go over the ranks that have parts, and one with a scale for
-- each row of terms. A value that two products take is rounded once, unless they want scales of different rows.
local mesh = device_mesh{ {"tp", args.tp} }
local Model = nn.module("Model", function(self)
  self.up = nn.Linear(16, 32, {bias = false})
  self.down = nn.Linear(32, 16, {bias = false})
  function self:forward(x) return self.down(F.relu(self.up(x))) end
end)
local model = mixed_precision(Model(), {param_dtype = "bfloat16"})
float8(model, {skip = "down"})
float8(model, {recipe = "rowwise", skip = "up"})
return train{
  model = parallelize(model, mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = {input = randn{16, 16}},
  loss = function(y) return y:to("float32"):square():mean() end,
  optimizer = SGD{lr = 0.1}, steps = 1,
}
