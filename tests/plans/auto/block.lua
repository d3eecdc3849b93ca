-- A stack of blocks of two products, for tests/scripts/passes/auto.sh: -D styles=FILE.lua gives the model its styles in
-- the place of auto(); -D stated=DIMENSION states w1's beside them. The rows of the input are cut over each dimension of
-- the mesh where `rows` has an m.
local m, h, f, layers, limit, memory = args.m or 64, args.h or 16, args.f or 64, args.layers or 2, args.parameters, args.memory
local sizes = {}
for n in string.gmatch(tostring(args.mesh or 2), "%d+") do sizes[#sizes + 1] = {string.char(97 + #sizes), math.tointeger(tonumber(n))} end
sizes.device = args.device
local mesh = device_mesh(sizes)
local Block = nn.module("Block", function(self)
  self.w1, self.w2 = nn.Linear(h, f, {bias = false}), nn.Linear(f, h, {bias = false})
  function self:forward(x) return x + self.w2(F.relu(self.w1(x))) end
end)
local Model = nn.module("Model", function(self)
  self.layers = nn.ModuleList{}
  for i = 1, layers do self.layers[i] = Block() end
  function self:forward(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return x
  end
end)
local batch = {input = randn{m, h}, target = randn{m, h}}
for i, letter in ipairs{string.byte(args.rows or "m", 1, -1)} do
  if letter == 109 then distribute(batch, mesh[string.char(96 + i)], Shard(0)) end
end
local model = Model()
if args.stated and args.styles then parallelize(model, mesh[args.stated], {["layers.*.w1"] = Colwise()}) end
if args.styles then
  require(args.styles)(model, mesh)
elseif args.stated then
  parallelize(model, mesh, {["layers.*.w1"] = Colwise(), ["**"] = auto()})
else
  parallelize(model, mesh, auto{parameters = limit, memory = memory})
end
return train{model = model, batch = batch, loss = function(y, k) return F.mse_loss(y, k.target) end, optimizer = SGD{lr = 0.1}, steps = 2}
