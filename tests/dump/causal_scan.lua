-- args: --dump=cut_time
local Model = nn.module("Model", function(self)
  self.words, self.rnn, self.output = nn.Embedding(12, 4), nn.RNN(4, 4, {batch_first = true}), nn.Linear(4, 12)
  function self:forward(tokens) return self.output((self.rnn(self.words(tokens)))) end
end)
return generate{model = Model(), vocab = 12, context = 6, prefill = 4, slots = 2}
