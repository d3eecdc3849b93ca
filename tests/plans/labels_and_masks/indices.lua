-- Each function that takes indices has an input of its own, whose numbers a file gives: -D how=given
-- uses them as they are, or parts of them, how=computed what becomes of them. -D mode=infer.
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local ROWS, N, types = 6, 5, {"int32", "int64"}
local names = {"embedding", "gather", "index_select", "index_add", "one_hot", "scatter", "scatter_add",
  "cross_entropy", "nll_loss"}

local Model = nn.module("Model", function(self)
  self.words = nn.Embedding(N, N)
  function self:forward(b)
    local i = {}
    for _, name in ipairs(names) do
      local x = b[name]
      if args.how == "computed" then x = x * 2 - x else x = x:narrow(1, 1, 2):select(1, 0) end
      if args.how == "computed" then x = x:narrow(1, 1, 1):squeeze(1) end
      i[name] = x
    end
    local x, own = b.x, self.words.weight
    return {
      self.words(i.embedding), x:gather(1, i.gather:unsqueeze(1)) * own:sum(),
      own:index_select(0, i.index_select), own:index_add(0, i.index_add, x),
      i.one_hot:one_hot(N) * x, x:scatter(1, i.scatter:unsqueeze(1), 2.5) * own:sum(),
      x:scatter_add(1, i.scatter_add:unsqueeze(1), x) * own:sum(),
      F.cross_entropy(x + own:sum(), i.cross_entropy), F.nll_loss(x * own:sum(), i.nll_loss),
    }
  end
end)

local model = parallelize(Model(), mesh.tp, {words = Rowwise()})
local batch = {x = randn{ROWS, N}}
for k, name in ipairs(names) do batch[name] = zeros{ROWS, 3, dtype = types[k % 2 + 1]} end
distribute(batch, mesh.dp, Shard(0))

local function sum(outputs)
  local sum = 0
  for _, y in ipairs(outputs) do sum = sum + y:square():sum() end
  return sum
end

if args.mode == "infer" then
  return infer{ model = model, batch = batch, outputs = function(model, b) return {y = sum(model(b))} end }
end
return train{
  model = model, batch = batch,
  forward = function(model, batch) return model(batch) end, loss = sum,
  optimizer = SGD{lr = 1e-6}, steps = 6,
}
