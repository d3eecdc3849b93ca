-- Elements chosen by their indices, joined, parted and turned: each input cut over its rows on dp,
-- over its columns on tp.
-- mesh: dp=2
-- mesh: dp=3
-- mesh: tp=2
-- mesh: tp=3
-- sanitized: tp=3
-- mesh: dp=2 tp=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter(randn{5, 6})
  self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
  function self:forward(b)
    local x = self.down(self.up(b.x):sin())                    -- [5, 6]
    local w = self.weight
    local top, where = x:replicate():topk(2, 1)
    local gathered = w:gather(1, b.ids) * x
    local picked = x:index_select(0, b.rows)
    local added = w:index_add(0, b.rows, picked:narrow(0, 0, 5))
    local scattered = w:scatter_add(0, b.ids, x):replicate():scatter(1, b.ids:narrow(1, 0, 2), top)
    local joined = F.cat({gathered, added, scattered}, 0):replicate()
    local stacked = F.stack({x, w, gathered}, 1)
    local a, c = joined:split({6, 9}, 0)
    return {
      parts = a:sum() + c:square():mean() + top:sum() + where:to("float32"):sum(),
      padded = x:replicate():pad({2, 1, 0, 3}, 0.5):mean(0),
      triangle = stacked:permute(1, 0, 2):tril(-1):flatten(1):norm(2, 1),
      sums = joined:cumsum(0):slice(0, 1, 14, 3):square():add(1):log(),
      first = stacked:select(1, 0):unsqueeze(0):expand(2, 5, 6):squeeze(),
    }
  end
end)

local model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise()})
local batch = {x = randn{5, 6}, ids = randint(5){5, 6}, rows = randint(5){5}}
distribute({batch.x, batch.ids}, mesh.dp, Shard(0))
distribute({batch.x, batch.ids}, mesh.tp, Shard(1))

return train{
  model = model, batch = batch,
  forward = function(model, batch) return model(batch) end,
  loss = function(o)
    return 0.1 * o.parts + o.padded:var() + o.triangle:mean() + 0.01 * o.sums:sum() + o.first:max()
  end,
  optimizer = AdamW{lr = 0.01, eps = 1e-3},
  steps = 4, seed = 8,
}
