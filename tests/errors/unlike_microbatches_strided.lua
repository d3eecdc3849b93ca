-- args: -D m=3 -D tp=2
local mesh = device_mesh{ {"tp", args.tp or 1} }
local M = nn.module("M", function(self)
  self.words, self.a, self.b, self.out = nn.Embedding(11, 8), nn.Linear(8, 6), nn.Linear(6, 8), nn.Linear(8, 11)
  function self:forward(x) x = self.words(x) return self.out(x + self.b(F.gelu(self.a(x)))) end
end)
local model = parallelize(M(), mesh.tp, {words = Rowwise(), a = Colwise(), b = Rowwise()})
return train{ model = model, batch = {input = randint(11){4, 6}, target = randint(11){4, 6}},
  loss = function(o, b) return F.cross_entropy(o:flatten(0, 1), b.target:flatten(0, 1)) end, optimizer = SGD{lr = 0.1}, steps = 3, microbatches = args.m }
