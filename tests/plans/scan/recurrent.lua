-- Every recurrent module, under torch.nn's names: tests/golden/scan/make.py is the same in PyTorch.
local I, H, T, B = 5, 6, 7, 6
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local Net = nn.module("Net", function(self)
  self.lstm = nn.LSTM(I, H, 2, {batch_first = true})
  self.both = nn.GRU(H, H, {batch_first = true, bidirectional = true})
  self.rnn = nn.RNN(2 * H, H, {nonlinearity = "relu"})
  self.lstm_cell, self.gru_cell, self.rnn_cell = nn.LSTMCell(H, H), nn.GRUCell(H, H), nn.RNNCell(H, H)
  self.fc = nn.Linear(H, 3)
  function self:forward(x, h, c)
    local y, state = self.lstm(x, {h, c})
    local z, last = self.both(y)
    z, h = self.rnn(z:transpose(0, 1), last:select(0, 0):unsqueeze(0))
    local h1, c1 = self.lstm_cell(h:squeeze(0), {state[1]:select(0, 1), state[2]:select(0, 1)})
    return self.fc(z) + self.fc(self.rnn_cell(self.gru_cell(h1, c1)))
  end
end)
local model = Net()
parallelize(model, mesh.tp, {
  ["lstm|both|rnn"] = Colwise(), ["*_cell"] = Colwise(), fc = Rowwise(),
})
if args.fsdp then fully_shard(model, mesh.dp) end
return train{
  model = model,
  batch = {
    input = distribute(randn{B, T, I}, mesh.dp, Shard(0)), target = distribute(randn{T, B, 3}, mesh.dp, Shard(1)),
    h = distribute(randn{2, B, H}, mesh.dp, Shard(1)), c = distribute(randn{2, B, H}, mesh.dp, Shard(1)),
  },
  forward = function(model, batch) return model(batch.input, batch.h, batch.c) end,
  loss = function(y, batch) return F.mse_loss(y, batch.target) end,
  optimizer = AdamW{lr = 0.01}, steps = 20, accumulate = args.accumulate or 1,
}
