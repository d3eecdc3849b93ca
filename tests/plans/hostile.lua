-- args: -D hostile=yes
-- The toy, every name of which comes from a table; -D hostile=yes takes the second.
-- A dot parts a name; both tables have as many dots, and names in the same order.
local plain = {
  model = "ToyModel", first = "hidden_1", second = "output_2", target = "t.a.b.c.d",
  dp = "dp", tp = "tp", theirs = "theirs.0.*",
}
local all_bytes = {}
for byte = 1, 255 do
  if byte ~= 46 then all_bytes[#all_bytes + 1] = string.char(byte) end -- 46: a path's dot
end
local hostile = {
  model = "*/ int main(void) { return 1; } /* ??/\n#error \\",
  first = 'a"); system("touch escaped // \u{202e}\u{2066}??/\n1',
  second = table.concat(all_bytes) .. "2",
  target = "x../../x",
  dp = "MPI_Comm_rank\r\n#include </etc/passwd>",
  tp = "int",
  theirs = '"}, {*/ system("touch escaped"); // ??/\n\\.0.\u{202e}%s',
}
local name = args.hostile and hostile or plain

local mesh = device_mesh{ {name.dp, 2}, {name.tp, 2} }

local ToyModel = nn.module(name.model, function(self)
  self[name.first]  = nn.Linear(10, 32)
  self.relu         = nn.ReLU()
  self[name.second] = nn.Linear(32, 5)

  function self:forward(x)
    x = x:redistribute(mesh, {Shard(1), Shard(1)})
    x = x:redistribute(mesh, {Shard(0, 1), Shard(0, 0)}) * 1.5
    return self[name.second](self.relu(self[name.first](x)))
  end
end)

local model = parallelize(ToyModel(), mesh[name.tp], {
  ["*1"] = Colwise(),
  ["*2"] = Rowwise(),
})

local batch = distribute({ input = randn{20, 10}, [name.target] = randn{20, 5} },
                         mesh[name.dp], Shard(0))

return train{
  model     = model,
  batch     = batch,
  loss      = function(output, batch) return (output - batch[name.target]):var() end,
  optimizer = AdamW{ lr = 0.05 },
  steps     = 10,
  seed      = 45,
  names     = {["*1.weight"] = name.theirs},
}
