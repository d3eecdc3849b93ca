-- A scan with two carried values, two slices, dropout and outputs of two kinds; with unroll, its steps one after the
-- other.
local T, B, H = args.steps, 4, 5
local mesh = device_mesh{ {"dp", args.dp or 1} }
local Net = nn.module("Net", function(self)
  self.input, self.hidden = nn.Linear(3, H), nn.Linear(H, H)
  self.scale = nn.Parameter(ones{H})
  function self:forward(x)
    local gate = self.input(x)
    local last, out = F.scan(function(carry, s)
      local h = (self.hidden(carry.h) + s.gate):tanh() * self.scale
      local sum = carry.sum + F.dropout(h, 0.2) * s.x:mean(-1, true)
      return {h = h, sum = sum}, {h = h, both = h * sum}
    end, {h = F.zeros{x:size(0), H}, sum = gate:mean(1)}, {x = x, gate = gate}, 1, args.unroll == 1)
    return out.h:mean(1) + out.both:square():mean(1) + last.sum * last.h
  end
end)
return train{
  model = Net(), batch = distribute({input = randn{B, T, 3}, target = randn{B, H}}, mesh.dp, Shard(0)),
  loss = function(y, batch) return F.mse_loss(F.dropout(y, 0.1), batch.target) end,
  optimizer = SGD{lr = 0.1}, steps = 5, seed = 3,
}
