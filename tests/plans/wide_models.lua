-- Models that are wide: n of something that is no list of equal layers. args: form, n, dp, tp, infer.
local n, form = tonumber(args.n), args.form
local dp, tp = tonumber(args.dp or 1), tonumber(args.tp or 1)
local mesh = device_mesh{{"dp", dp}, {"tp", tp}}
local vector, matrix = function() return nn.Parameter(ones{16}) end, function() return nn.Parameter(ones{16, 16}) end

-- Of what: what model and step have; name: of the model's class.
local function model_of(make, forward, name)
  return nn.module(name or "Wide", function(self)
    make(self)
    function self:forward(x) return forward(self, x) end
  end)()
end
-- A model of n modules l1, l2, ... one after the other.
local function modules(make, step, name)
  local prefix = name or "l"
  return model_of(function(self) for i = 1, n do self[prefix .. i] = make(i) end end,
    function(self, x) for i = 1, n do x = step(x, self[prefix .. i]) end return x end, name)
end
-- A model of one parameter, and n steps.
local function steps(parameter, step)
  return model_of(function(self) self.w = parameter() end,
    function(self, x) for i = 1, n do x = step(x, self.w, i) end return x end)
end
local function linear() return nn.Linear(16, 16) end
local function apply(x, module) return module(x) end

local forms = {
  linears = function() return modules(linear, apply) end,
  residual = function() return modules(linear, function(x, l) return x + F.relu(l(x)) end) end,
  norms = function() return modules(function() return nn.LayerNorm(16) end, apply) end,
  unlike = function()
    return modules(function(i) return nn.Linear(i == 1 and 16 or 15 + i, i == n and 16 or 16 + i) end, apply)
  end,
  -- What the program itself calls a group's communicator.
  over_a = function() return modules(linear, apply, "over_a") end,
  tied = function()
    return model_of(function(self) self.l = linear() end,
      function(self, x) for i = 1, n do x = self.l(x) end return x end)
  end,
  permutes = function() return steps(vector, function(x, w, i)
    return i == n and x:permute(1, 0) * w or x:permute(1, 0)
  end) end,
  views = function() return steps(vector, function(x, w, i)
    x = x:view{256}
    return i == n and x:view{16, 16} * w or x:view{16, 16}
  end) end,
  relus = function() return steps(vector, function(x, w) return F.relu(x * w) end) end,
  products = function() return steps(matrix, function(x, w) return x:matmul(w) end) end,
  softmaxes = function() return steps(vector, function(x, w) return F.softmax(x * w, -1) end) end,
  -- As many kernels, which want one name.
  powers = function() return steps(matrix, function(x, w, i) return (x ^ (1 + i / 7)):matmul(w) end) end,
  -- One value that n operations read.
  read = function()
    return model_of(function(self) self.w = matrix() end, function(self, x)
      local sum = x
      for i = 1, n do sum = x:matmul(self.w) + sum end
      return sum
    end)
  end,
  lists = function()
    return modules(function() return nn.ModuleList{linear(), linear()} end, function(x, list)
      for _, layer in ipairs(list) do x = layer(x) end
      return x
    end)
  end,
}

local model = nn.Sequential(forms[form]())
if tp > 1 then parallelize(model, mesh.tp, {["0.l*"] = Colwise{output_layouts = Replicate()}}) end
local batch = {input = ones{16, 16}, target = ones{16, 16}}
if dp > 1 then
  fully_shard(model, mesh.dp)
  batch = distribute(batch, mesh.dp, Shard(0))
end
if args.infer then
  return infer{
    model = model,
    batch = {input = batch.input},
    outputs = function(m, b) return {y = m(b.input)} end,
  }
end
return train{
  model = model,
  batch = batch,
  loss = function(out, b) return (out - b.target):var() end,
  optimizer = AdamW{lr = 0.05},
  steps = 2,
}
