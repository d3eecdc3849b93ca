-- A norm of numbers whose mean is far above their deviation: -D mean=1000, -D row ([256, 4], not images), -D dp, -D tp (the
-- last dimension), and -D together: so many elements have a mean of their own, 0 is a batch norm. After a step of SGD with a rate of 1 `gradient` is that of the input, of the sum of what comes out, each times `weight`, and
-- `value` is what comes out.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local shape = args.row and {256, 4} or {4, 4, 8, 8}

local function Norm()
  if args.together == 0 then return args.row and nn.BatchNorm1d(4) or nn.BatchNorm2d(4) end
  return ({[256] = nn.LayerNorm{4, 8, 8}, [128] = nn.GroupNorm(2, 4), [64] = nn.InstanceNorm2d(4), [4] = nn.LayerNorm(4)})[args.together]
end

local Model = nn.module("Model", function(self)
  self.gradient, self.value = nn.Parameter(zeros(shape)), nn.Parameter(zeros(shape))
  self.norm = Norm()
end)
local model = Model()

local batch = distribute({input = randn(shape), weight = randn(shape)}, mesh.dp, Shard(0))
distribute(batch, mesh.tp, Shard(-1))
return train{
  model = model, batch = batch,
  forward = function(model, batch)
    local y = model.norm(batch.input + args.mean - model.gradient)
    return (y * batch.weight):sum() - (y:detach() * model.value):sum()
  end,
  loss = function(sum) return sum end,
  optimizer = SGD{lr = 1}, steps = 1,
}
