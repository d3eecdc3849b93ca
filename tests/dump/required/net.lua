return nn.module("Net", function(self)
  self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)
  function self:forward(x) return self.b(F.relu(self.a(x))) end
end)
