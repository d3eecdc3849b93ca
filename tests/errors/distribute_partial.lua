local Model = nn.module("Model", function(self)
  self.in_proj = nn.Linear(10, 32)
  self.relu = nn.ReLU()
  self.out_proj = nn.Linear(32, 5)
  function self:forward(x)
    return self.out_proj(self.relu(self.in_proj(x)))
  end
end)

local mesh = device_mesh{ {"dp", 2} }
local model = Model()

train{
  model = model,
  batch = {input = distribute(randn{20, 10}, mesh.dp, Partial()), target = randn{20, 5}},
  loss = function(output, batch) return (output - batch.target):var() end,
  optimizer = AdamW{},
  steps = 1,
}
