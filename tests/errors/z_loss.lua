-- A z-loss is added: it is not negative.
local model = nn.Linear(4, 3)
device_mesh{ {"tp", 1} }
return train{ model = model, batch = {input = randn{5, 4}, target = randint(3){5}}, optimizer = SGD{}, steps = 1,
  loss = function(y, batch) return F.cross_entropy(y, batch.target, {z_loss = -1}) end }
