-- Two selective state spaces, as Mamba's: a causal depthwise convolution, then h = a h + dt B x and y = C h by a scan.
-- tests/golden/scan/make.py is the same in PyTorch.
local D, H, P, N, T, B = 6, 2, 4, 3, 9, 4
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }
local Mamba = nn.module("Mamba", function(self)
  self.in_x, self.in_z = nn.Linear(D, H * P, {bias = false}), nn.Linear(D, H * P, {bias = false})
  self.in_b, self.in_c, self.in_dt = nn.Linear(D, N, {bias = false}), nn.Linear(D, N, {bias = false}), nn.Linear(D, H)
  self.conv = nn.Conv1d(H * P, H * P, 4, {groups = H * P})
  self.A_log, self.D = nn.Parameter(zeros{H}), nn.Parameter(ones{H})
  self.norm = nn.RMSNorm(H * P, {eps = 1e-5})
  self.out = nn.Linear(H * P, D, {bias = false})
  function self:forward(u)
    local x = F.silu(self.conv(self.in_x(u):transpose(1, 2):pad{3, 0}):transpose(1, 2)):unflatten(-1, H, P)
    local dt = F.softplus(self.in_dt(u))
    local _, y = F.scan(function(h, s)
      h = h * s.a:unsqueeze(-1):unsqueeze(-1) + F.einsum("bhp,bn->bhpn", s.x, s.b)
      return h, F.einsum("bhpn,bn->bhp", h, s.c)
    end, F.zeros{u:size(0), H, P, N}, {
      a = (dt * -self.A_log:exp()):exp(), x = x * dt:unsqueeze(-1), b = self.in_b(u), c = self.in_c(u),
    }, 1)
    y = y + x * self.D:view(H, 1)
    return self.out(self.norm(y:flatten(2) * F.silu(self.in_z(u))))
  end
end)
local Net = nn.module("Net", function(self)
  self.layers = nn.ModuleList{Mamba(), Mamba()}
  function self:forward(x)
    for _, l in ipairs(self.layers) do x = x + l(x) end
    return x
  end
end)
local model = parallelize(Net(), mesh.tp, {
  ["layers.*.in_[xz]"] = Colwise(), ["layers.*.in_dt"] = Colwise(), ["layers.*.out"] = Rowwise(),
})
if args.fsdp then fully_shard(model, mesh.dp) end
return train{
  model = model,
  batch = distribute({input = randn{B, T, D}, target = randn{B, T, D}}, mesh.dp, Shard(0)),
  loss = function(y, batch) return F.mse_loss(y, batch.target) end,
  optimizer = AdamW{lr = 0.01}, steps = 20, checkpoint = args.checkpoint,
}
