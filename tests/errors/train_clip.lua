local Model = nn.module("Model", function(self)
  self.in_proj = nn.Linear(10, 32)
  self.relu = nn.ReLU()
  self.out_proj = nn.Linear(32, 5)
  function self:forward(x)
    return self.out_proj(self.relu(self.in_proj(x)))
  end
end)
local model = Model()

train{
  model = model,
  batch = {input = randn{20, 10}, target = randn{20, 5}},
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = AdamW{}, clip = 0,
  steps = 1,
}
