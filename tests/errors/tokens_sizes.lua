local M = nn.module("M", function(self)
  self.table = nn.Embedding(10, 4)
  function self:forward(x) return self.table(x) end
end)
train{
  model = M(), batch = {input = tokens(10){2, 4}, target = tokens(10, 1){2, 5}},
  loss = function(y) return y:sum() end, optimizer = SGD(), steps = 1,
}
