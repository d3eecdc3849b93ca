local M = nn.module("M", function(self)
  self.a = nn.Linear(4, 4)
  function self:forward(x) read_json("json_deep.json") return self.a(x) end
end)
train{
  model = M(), batch = {input = randn{2, 4}}, loss = function(y) return y:sum() end,
  optimizer = SGD(), steps = 1,
}
