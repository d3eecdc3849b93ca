-- Products of every form, in which operands may stand as they are or transposed, in batches, as vectors
-- or with sizes of 1; behind each what a product may do to its result: a bias, relu and gelu, with their
-- gradients and the bias's; and another product, before which gelu's gradient stands.
-- form=N, then=N: of these one alone.
-- mesh: dp=2
-- cuda: dp=2
-- mesh: dp=3 precision=tf32
-- cuda: dp=3 precision=tf32
local mesh = device_mesh{ {"dp", args.dp or 1}, {"tp", args.tp or 1} }

-- The shape of a weight w, how long the rows are of its product with x [2, 3, 8], and the product.
local forms = {
  {{8, 16}, 16, function(x, w) return x:matmul(w) end},
  {{8, 16}, 16, function(x, w) return x:view(6, 8):matmul(w) end},
  {{16, 8}, 16, function(x, w) return x:matmul(w:t()) end},
  {{16, 8}, 16, function(x, w) return F.linear(x, w) end},
  {{8, 16}, 16, function(x, w) return F.einsum("bsd,dh->sbh", x, w) end},
  {{8, 16}, 16, function(x, w) return F.einsum("bsd,dh->bhs", x, w):transpose(1, 2) end},
  {{8, 16}, 16, function(x, w) return F.einsum("dh,bsd->hbs", w, x):permute(1, 2, 0) end},
  {{8, 16}, 16, function(x, w) return x:transpose(0, 1):matmul(w) end},
  {{3, 16}, 16, function(x, w) return x:transpose(1, 2):matmul(w) end},
  {{16, 8}, 16, function(x, w) return w:matmul(x:view(6, 8):t()):t() end},
  {{2, 8, 16}, 16, function(x, w) return x:matmul(w) end},
  {{4, 8, 16}, 16, function(x, w) return x:unsqueeze(1):matmul(w) end},
  {{8, 4, 16}, 16, function(x, w) return F.einsum("bsd,dhe->bshe", x, w) end},
  {{4, 2, 16}, 16, function(x, w) return F.einsum("bshd,hde->bshe", x:view(2, 3, 4, 2), w) end},
  {{8, 16}, 16, function(x, w) return x:replicate():view(48):narrow(0, 0, 8):matmul(w) end},
  {{8}, 3, function(x, w) return x:matmul(w) end},
  {{16}, 16, function(x, w) return F.einsum("bsd,h->bsh", x, w) end},
  {{8, 1}, 1, function(x, w) return x:matmul(w) end},
  {{1, 16}, 16, function(x, w) return x:narrow(2, 0, 1):matmul(w) end},
  {{8, 16}, 16, function(x, w) return x:view(6, 8):narrow(0, 0, 1):matmul(w) end},
  {{3, 16}, 16, function(x, w) return x:matmul(x:transpose(1, 2)):matmul(w) end},
}

-- Of a product y and a bias as long as y's rows.
local thens = {
  function(y, b, w) return (y + b):matmul(w) end,
  function(y, b, w) return F.relu(y + b):matmul(w) end,
  function(y, _, w) return F.relu(y):matmul(w) end,
  function(y, b, w) return F.gelu(y + b, "tanh"):matmul(w) end,
  function(y, _, w) return F.gelu(y, "tanh"):matmul(w) end,
  function(y, b, w) return F.gelu(y + b, "tanh"):matmul(w:detach()) end,
  function(y, b, w) return F.gelu(b + y):matmul(w) end,
  function(y, b, w) return F.linear(F.gelu(y + b, "tanh"), w) + b end,
}

-- So many forms are followed by all of these, the others by every second.
local ALL = 8

local function is_asked(what, i) return not args[what] or args[what] == i end

-- One form, and what follows.
local Form = nn.module("Form", function(self, number, form)
  local n = form[2]
  for i in ipairs(thens) do
    self["w" .. i] = nn.Parameter(randn(form[1]))
    self["b" .. i] = nn.Parameter(randn{n})
    self["v" .. i] = nn.Parameter(randn{n, n})
  end
  function self:forward(x)
    local sum = 0
    for i, f in ipairs(thens) do
      if is_asked("then", i) and (number <= ALL or i % 2 == 0) then
        local y = f(form[3](x, self["w" .. i]), self["b" .. i], self["v" .. i])
        sum = sum + y:to("float32"):square():mean()
      end
    end
    return sum
  end
end)

local Model = nn.module("Model", function(self)
  self.first = nn.Linear(8, 8)
  for i, form in ipairs(forms) do
    if is_asked("form", i) then self["form" .. i] = Form(i, form) end
  end
  function self:forward(x)
    local y, sum = self.first(x), 0
    for i in ipairs(forms) do
      if is_asked("form", i) then sum = sum + self["form" .. i](y) end
    end
    return sum
  end
end)

local model = Model()
if args.tp then model = parallelize(model, mesh.tp, {first = Colwise()}) end
if args.dtype then model = mixed_precision(model, {param_dtype = args.dtype}) end

return train{
  model = model,
  batch = distribute({input = randn{2, 3, 8}}, mesh.dp, Shard(0)),
  loss = function(output) return output end,
  optimizer = AdamW{lr = 0.02, eps = 1e-3},
  steps = 3, seed = 4, matmul_precision = args.precision,
}
