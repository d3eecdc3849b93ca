-- A recurrent module over constants, in micro-batches: propagation moves what enters its steps.
-- mesh: fs=2
local mesh = device_mesh{{"fs", args.fs or 1}}
local Mixer = nn.module("Mixer", function(self)
  self.norm = nn.RMSNorm(8)
  self.up = nn.Linear(8, 16)
  self.down = nn.Linear(16, 1)
  function self:forward(x)
    return x + self.down(F.mish(self.up(self.norm(x))))
  end
end)
local Steps = nn.module("Steps", function(self)
  self.norm = nn.RMSNorm(8)
  self.rnn = nn.RNN(8, 1)
  function self:forward(x)
    local y = self.rnn(self.norm(x))
    return x + y
  end
end)
local Net = nn.module("Net", function(self)
  self.inp = nn.Linear(8, 1)
  self.places = nn.Embedding(2, 8)
  self.layers = nn.ModuleList{Mixer(), Steps(), Steps()}
  self.norm = nn.RMSNorm(1)
  function self:forward(input)
    local x = self.inp(input)
    x = self.places(F.arange(2))
    for _, layer in ipairs(self.layers) do
      x = layer(x)
    end
    return x
  end
end)
local model = Net()
local batch = {input = randn{7, 8}, target = randn{7, 1, 1}}
distribute(batch, mesh.fs, Shard(0))
return train{model = model, batch = batch,
  loss = function(out, batch) return ((out - batch.target):square():sum()) end,
  optimizer = SGD{lr = 0.01}, steps = 3, seed = 3,
  microbatches = 2,
}
