-- A batch norm of numbers whose mean is far above their deviation: -D mean=1000, -D row (BatchNorm1d), -D dp. After a
-- step of SGD with a rate of 1 `gradient` is that of the input, of the sum of what comes out, each times `weight`, and
-- `value` is what comes out.
local mesh = device_mesh{ {"dp", args.dp or 1} }
local shape = args.row and {256, 4} or {4, 4, 8, 8}

local Model = nn.module("Model", function(self)
  self.gradient, self.value = nn.Parameter(zeros(shape)), nn.Parameter(zeros(shape))
  self.norm = args.row and nn.BatchNorm1d(4) or nn.BatchNorm2d(4)
end)
local model = Model()

return train{
  model = model, batch = distribute({input = randn(shape), weight = randn(shape)}, mesh.dp, Shard(0)),
  forward = function(model, batch)
    local y = model.norm(batch.input + args.mean - model.gradient)
    return (y * batch.weight):sum() - (y:detach() * model.value):sum()
  end,
  loss = function(sum) return sum end,
  optimizer = SGD{lr = 1}, steps = 1,
}
