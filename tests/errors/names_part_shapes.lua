local M = nn.module("M", function(self)
  self.a, self.b, self.c = nn.Linear(4, 6, {bias = false}), nn.Linear(6, 4, {bias = false}), nn.Linear(4, 6, {bias = false})
  function self:forward(x) return self.c(self.b(self.a(x))) end
end)
train{
  model = M(), batch = {input = randn{2, 4}}, loss = function(y) return y:sum() end,
  optimizer = SGD(), steps = 1, names = {["a.weight"] = {tensor = "ab", dim = 0, part = 1, of = 2},
    ["b.weight"] = {tensor = "ab", dim = 0, part = 2, of = 2}},
}
