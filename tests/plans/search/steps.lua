-- A recurrence, of which async_tp can cut nothing over tp, for tests/scripts/language/search.sh: no
-- candidate fails.
local WIDTH, LENGTH, BATCH = 16, 6, 8
local Model = nn.module("Model", function(self)
  self.first, self.rnn, self.last = nn.Linear(WIDTH, WIDTH), nn.GRU(WIDTH, WIDTH, {batch_first = true, num_layers = 2}), nn.Linear(WIDTH, 4)
  function self:forward(x)
    local y = self.rnn(self.first(x))
    return self.last(y)
  end
end)
return train{
  model = Model(), batch = {input = randn{BATCH, LENGTH, WIDTH}, target = randn{BATCH, LENGTH, 4}},
  loss = function(y, k) return F.mse_loss(y, k.target) end, optimizer = AdamW{lr = 1e-3}, steps = 2,
  parallel = auto{tp = 2},
}
