-- The places of the tokens of sequences in head-tail order. -D ranks=; -D lengths=8,16.
local mesh = device_mesh{ {"cp", args.ranks} }
local batch, names = {}, {}
for n in string.gmatch(tostring(args.lengths), "%d+") do
  names[#names + 1] = "of_" .. n
  batch["of_" .. n] = randint(0, 8){1, math.tointeger(n)}
end
local Places = nn.module("Places", function(self)
  function self:forward(batch)
    local places = {}
    for _, name in ipairs(names) do places[name] = batch[name]:positions() end
    return places
  end
end)
return infer{
  model = context_parallel(Places(), mesh.cp, {balance = "headtail"}),
  batch = distribute(batch, mesh.cp, Shard(1)),
  outputs = function(model, batch) return model(batch) end,
}
