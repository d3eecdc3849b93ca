-- QR, eigenvalues and singular values of stacks of matrices, cut along the stack: forward and backward.
-- targets: cpu, as LAPACK is
-- mesh: dp=2
-- mesh: dp=3
local mesh = device_mesh{ {"dp", args.dp or 1} }
local n <const> = 5

local model = nn.module("Model", function(self)
  self.first, self.last = nn.Linear(n, n), nn.Linear(n, n)
  function self:forward(x)
    local a = x + self.first(x):tanh()
    local q, r = F.linalg_qr(a)
    local values, vectors = F.linalg_eigh(a:matmul(a:transpose(1, 2)) + F.eye(n))
    local u, s, v = F.linalg_svd(self.last(a), false)
    local rank = F.linalg_matrix_rank(a):to("float32"):unsqueeze(-1):unsqueeze(-1)
    local root = (vectors * values:sqrt():unsqueeze(1)):matmul(vectors:transpose(1, 2))
    return q:matmul(r:tanh()) + root + (u * s:log():unsqueeze(1)):matmul(v) + F.linalg_pinv(a + 4 * F.eye(n)) + rank
  end
end)()
if args.dp then fully_shard(model, mesh.dp) end

return train{
  model = model, batch = distribute({x = randn{6, n, n}, y = randn{6, n, n}}, mesh.dp, Shard(0)),
  forward = function(model, batch) return model(batch.x) end,
  loss = function(output, batch) return F.mse_loss(output, batch.y) end,
  optimizer = AdamW{lr = 0.01, eps = 1e-3}, steps = 3, seed = 3,
}
