-- async_tp: what is gathered is read row by row by several products, by one of itself with itself, by one
-- whose other operand is made of what another product of it makes, by one that sums its rows, by more than
-- travel together; what is scattered is the sum of one product or of several, of some that are read again,
-- of one that has a single row, over another dimension of one that sums the rows.
-- mesh: tp=2 pieces=2
-- mesh: tp=3 pieces=4
-- cuda: tp=3 pieces=4
-- mesh: dp=2 tp=2 pieces=2
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

local Mix = nn.module("Mix", function(self)
  self.q, self.down = nn.Linear(8, 12, {bias = false}), nn.Linear(12, 8, {bias = false})
  function self:forward(x)
    local q = self.q(x)
    local weight = F.einsum("ri,rk->ik", q, x)
    if args.dp then weight = weight:redistribute(mesh.dp, Shard(1)) end
    local near = F.einsum("ik,jk->ij", x, x) * 0.01
    local outer = F.einsum("ri,rj->rij", x, q):sum(1)
    return self.down(F.linear(x, weight * 0.05) + near:matmul(q:tanh()) + outer * 0.1)
  end
end)

local Wide = nn.module("Wide", function(self)
  self.ups = nn.ModuleList{}
  for i = 1, 9 do self.ups[i] = nn.Linear(8, 6, {bias = false}) end
  self.down, self.twice = nn.Linear(6, 8, {bias = false}), nn.Linear(6, 8, {bias = false})
  self.row = nn.Linear(6, 8, {bias = false})
  function self:forward(x)
    local h
    for _, up in ipairs(self.ups) do h = h and h + up(x):tanh() or up(x):tanh() end
    local sum = F.linear(h, self.twice.weight)
    local all = sum:redistribute(mesh.tp, Replicate()):sum(0)
    local row = F.linear(h, self.row.weight) + F.linear(h:mean(0, true), self.row.weight)
    x = self.down(h) + row:redistribute(mesh.tp, Shard(0))
    return x + sum:redistribute(mesh.tp, Shard(0)) * all
  end
end)

local Model = nn.module("Model", function(self)
  self.first, self.mix, self.wide = nn.Linear(8, 8, {bias = false}), Mix(), Wide()
  function self:forward(x)
    x = self.first(x)
    x = x + self.mix(x)
    return x + self.wide(x)
  end
end)

local whole = PrepareModuleInput{input_layouts = {Shard(0)}, desired_input_layouts = {Replicate()}}
local cut = Shard(0)
local model = parallelize(Model(), mesh.tp, {
  first = Rowwise{output_layouts = cut},
  mix = whole, wide = whole,
  ["mix.q"] = Colwise(), ["wide.ups.*"] = Colwise(),
  ["mix.down"] = Rowwise{output_layouts = cut}, ["wide.down"] = Rowwise{output_layouts = cut},
  ["wide.twice"] = Rowwise(), ["wide.row"] = Rowwise(),
}, {async_tp = tonumber(args.pieces)})
if args.dp then parallelize(model, mesh.dp, {}, {async_tp = tonumber(args.pieces)}) end

return train{
  model = model,
  batch = distribute({input = randn{24, 8}, target = randn{24, 8}}, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.05},
  steps = 3, seed = 12,
}
