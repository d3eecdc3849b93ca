-- A collective follows a bucket of which a part is expected sooner, and awaited: from then on what the
-- bucket has left may be summed on where it lies.
-- mesh: a=2 b=2
-- cuda: a=2 b=2
-- rounds: bfloat16
local mesh = device_mesh{ {"a", args.a or 1}, {"b", args.b or 1} }

local Model = nn.module("Model", function(self)
  self.first, self.last = nn.Linear(1, 1), nn.Linear(1, 5)
  function self:forward(x)
    local y = self.last(self.first(x:to("bfloat16")):unflatten(0, 2, -1))
    return (((y / (y * y + 1)):topk(1, 1, true)))
  end
end)

local model = Model()
mixed_precision(model, {param_dtype = "bfloat16", reduce_dtype = "float32"})
parallelize(model, mesh.b, {last = Rowwise{}})
fully_shard(model, mesh.a, {reshard_after_forward = true})
local batch = {input = randn{4, 1}, target = randint(5){2, 1}}
distribute(batch.input, mesh.a, Shard(1))
return train{
  model = model, batch = batch,
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = AdamW{lr = 0.01}, steps = 3,
}
