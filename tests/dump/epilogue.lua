-- args: --target cuda -D tp=2
-- What goes with a product: a bias and gelu, whose input is kept for its gradient; relu with a bias; a bias
-- alone; gelu's gradient, and the sums that are biases' gradients. Rows that are not multiples of 8 on each
-- rank keep gelu in a kernel; what is pending over ranks waits for its sum before a bias is added.
local mesh = device_mesh{ {"tp", args.tp or 1} }

local Model = nn.module("Model", function(self)
  self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
  self.odd, self.back = nn.Linear(8, 12), nn.Linear(12, 8)
  self.relu, self.last = nn.Linear(8, 6), nn.Linear(6, 3)
  function self:forward(x)
    x = self.down(F.gelu(self.up(x), "tanh"))
    x = self.back(F.gelu(self.odd(x), "tanh"))
    return self.last(F.relu(self.relu(x)))
  end
end)

return train{
  model = parallelize(Model(), mesh.tp, {up = Colwise(), down = Rowwise(), odd = Colwise(), back = Rowwise()}),
  batch = {input = randn{4, 8}, target = randn{4, 3}},
  loss = function(output, batch) return F.mse_loss(output, batch.target) end,
  optimizer = SGD{lr = 0.1}, steps = 1,
}
