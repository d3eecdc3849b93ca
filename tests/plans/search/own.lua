-- A plan with settings of its own for a search, some of which fail.
local args = settings{
  {"data", 1, "ranks that share the batch", search = "copies"},
  {"model", 1, "ranks that share each layer", search = "tensor"},
  {"way", "plain", "how it is made", type = "text", search = {"unmade", "endless", "absent"}},
}
if args.way == "unmade" then error("this way is not made yet") end
if args.way == "absent" then error("no such way") end
while args.way == "endless" do end

local Net = nn.module("Net", function(self)
  self.first, self.last = nn.Linear(256, 1024), nn.Linear(1024, 256)
  function self:forward(x) return self.last(F.relu(self.first(x))) end
end)
local mesh = device_mesh{{"data", args.data}, {"model", args.model}}
local net = parallelize(Net(), mesh.model, {first = Colwise(), last = Rowwise()})
return train{
  model = net, loss = function(y, batch) return F.mse_loss(y, batch.target) end,
  batch = distribute({input = randn{64, 256}, target = randn{64, 256}}, mesh.data, Shard(0)),
  optimizer = SGD{lr = 0.1}, steps = 2,
}
