-- What makes a gradient must have the dimensions of its input.
device_mesh{ {"tp", 2} }
local back = operator{ name = "back", rule = "...d,...d,d,...d->d", kernel = "kernel.c" }
local scaled = operator{ name = "scaled", rule = "...d,d->...d", kernel = "kernel.c",
                         backward = {back, back} }
local model = nn.module("Model", function(self)
  self.linear, self.weight = nn.Linear(4, 6), nn.Parameter(ones{6})
  function self:forward(x) return scaled(self.linear(x), self.weight) end
end)()
return train{
  model = model, batch = { input = randn{3, 4} },
  loss = function(y) return y:sum() end, optimizer = SGD{ lr = 1 }, steps = 1,
}
