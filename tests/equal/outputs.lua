-- An inference program with outputs of every layout: sharded, summed, whole, a number, the input itself.
-- mesh: tp=2
-- cuda: tp=2
-- mesh: tp=3
-- mesh: tp=8
-- mesh: dp=2 tp=2
-- mesh: dp=6
-- sanitized: dp=6
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.up = nn.Linear(6, 7)
  self.down = nn.Linear(7, 4)
  function self:forward(x)
    local h = self.up(x):silu()
    return h, self.down(h)
  end
end)

return infer{
  model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()}),
  batch = {input = distribute(randn{5, 3, 6}, mesh.dp, Shard(0))},
  outputs = function(model, batch)
    local h, y = model(batch.input)
    return {
      hidden = h, output = y, again = y, twice = y * 2,
      mean = h:mean(), rows = h:sum({1, 2}), columns = y:var({0, 1}),
      largest = (h - h:mean(-1, true)):exp(), input = batch.input,
    }
  end,
  seed = 18,
}
