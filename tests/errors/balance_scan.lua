local mesh = device_mesh{ {"cp", 2} }
local Net = nn.module("Net", function(self)
  self.words, self.q, self.k, self.v, self.o = nn.Embedding(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
  self.places, self.rnn = nn.Embedding(12, 8), nn.GRU(8, 8, {batch_first = true})
  function self:forward(x)
    x = self.rnn(self.words(x))
    local function heads(t) return t:unflatten(-1, -1, 4):transpose(1, 2) end
    local y = F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)), {is_causal = true})
    return self.o(y:transpose(1, 2):flatten(2))
  end
end)
local model = Net()
local batch = {input = randint(0, 8){2, 12}, target = randint(0, 8){2, 12}}
context_parallel(model, mesh.cp, {balance = "headtail"})
distribute(batch, mesh.cp, Shard(1))
return train{ model = model, batch = batch, loss = function(y, b) return F.cross_entropy(y, b.target, {dim = -1}) end, optimizer = SGD{}, steps = 1 }
