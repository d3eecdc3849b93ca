-- A small model with all that training knows: gradients that come whole, cut, and pending, some of
-- repeated layers. -D how=NAME picks one of the ways of training below; golden/training has what
-- PyTorch makes of each.
local how = args.how or "adamw"
local accumulate, batch_size = args.accumulate or 1, args.batch or 4
local mesh = device_mesh{ {"pp", args.pp or 1}, {"dp", args.dp or 1}, {"wide", args.wide or 1}, {"tp", args.tp or 1} }
local plain = {bias = false}
local WORDS, WIDTH, HIDDEN, LENGTH = 128, 12, 14, 6

local Block = nn.module("Block", function(self)
  self.norm = nn.RMSNorm(WIDTH, {eps = 1e-5})
  self.w1, self.w2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
  function self:forward(x) return x + self.w2(F.silu(self.w1(self.norm(x)))) end
end)

local Model = nn.module("Model", function(self)
  self.embedding = nn.Embedding(WORDS, WIDTH)
  self.layers = nn.ModuleList{Block(), Block(), Block()}
  self.norm, self.output = nn.RMSNorm(WIDTH, {eps = 1e-5}), nn.Linear(WIDTH, WORDS, plain)
  function self:forward(ids)
    local x = self.embedding(ids)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.output(self.norm(x))
  end
end)

local model = parallelize(Model(), mesh.tp, {
  embedding = Rowwise{output_layouts = Shard(1)},
  norm = SequenceParallel(),
  output = Colwise{input_layouts = Shard(1)},
  ["layers.*"] = {
    norm = SequenceParallel(),
    w1 = Colwise{input_layouts = Shard(1), parts = args.parts and {5, HIDDEN - 5}},
    w2 = Rowwise{output_layouts = Shard(1)},
  },
})

-- What stays whole is on the ranks of both dimensions, and what tp alone cuts on those of this one.
if args.wide then
  parallelize(model, mesh.wide, { output = Colwise{input_layouts = Replicate()} })
end

-- Fully sharded over the ranks of dp.
if args.fsdp then
  for _, layer in ipairs(model.layers) do fully_shard(layer, mesh.dp) end
  fully_shard(model, mesh.dp)
end

if args.pp then pipeline(model, mesh.pp, {microbatches = args.microbatches or 2, schedule = args.schedule}) end

local ways = {
  adamw = {
    optimizer = AdamW{lr = 0.02, betas = {0.9, 0.95}, weight_decay = 0.1},
    schedule = WarmupCosine{warmup = 3, steps = 8, least = 0.1},
    clip = 0.3,
  },
  sgd = {optimizer = SGD{lr = 0.5, weight_decay = 0.01}, grad_norm = true},
  momentum = {
    optimizer = SGD{lr = 0.1, momentum = 0.9, weight_decay = 0.01},
    schedule = WarmupCosine{warmup = 4, least = 1},
    clip = 0.5,
  },
  nesterov = {
    optimizer = SGD{lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01},
    schedule = WarmupCosine{},
    grad_norm = true,
  },
}

-- The optimizers, of tests/scripts/programs/optimizers.sh.
local slow = {match = "embedding.*|output.*", lr = 0.002}
local function halving(t) return 0.5 ^ ((t - 1) // 5) end
local function steps_down(t)
  if t < 6 then return 1 elseif t <= 12 then return 0.5 end
  return math.max(0.1, 1 - t / 20)
end
local Own = optimizer{
  name = "Own", defaults = {lr = 0.02, momentum = 0.9}, state = {"average"},
  update = function(p, g, state, o)
    local average = state.average:lerp(g, 1 - o.momentum)
    return p - o.lr * average:tanh(), {average = average}
  end,
}
-- By rows: each row of a matrix learns by its own length.
local Whole = optimizer{
  name = "Whole", defaults = {lr = 0.02, momentum = 0.9},
  state = function(o, shape)
    local row = {}
    for i = 1, #shape do row[i] = shape[i] end
    row[#shape] = 1
    return {"average", {"length", row}}
  end,
  update = function(p, g, state, o)
    local average = state.average:lerp(g, 1 - o.momentum)
    local length = state.length:maximum((g * g):sum(-1, true):sqrt())
    return p - o.lr * average / (length + 1e-3), {average = average, length = length}
  end,
}
local optimizers = {
  AdamW = {optimizer = AdamW{lr = 0.02, amsgrad = true, maximize = true}},
  Adam = {optimizer = Adam{lr = 0.02, weight_decay = 0.01}},
  Adam_linear = {optimizer = Adam{lr = 0.02}, schedule = WarmupLinear{warmup = 4, least = 0.1}, clip = 0.3},
  SGD = {optimizer = SGD{lr = 0.1, momentum = 0.9, dampening = 0.5, weight_decay = 0.01}},
  SGD_value = {optimizer = SGD{lr = 0.5, momentum = 0.5}, clip_value = 0.01, schedule = halving},
  Lion = {optimizer = Lion{lr = 0.002, weight_decay = 0.1}, schedule = steps_down},
  RMSprop = {optimizer = RMSprop{momentum = 0.5, centered = true, eps = 1e-4}},
  Adagrad = {optimizer = Adagrad{lr = 0.05, lr_decay = 0.1}, schedule = WSD{warmup = 3, decay = 5}},
  groups = {
    optimizer = AdamW{lr = 0.02, weight_decay = 0.1},
    schedule = WarmupInverseSqrt{warmup = 5}, clip = 0.3,
    groups = {{match = "**.bias|**norm.weight", weight_decay = 0}, slow,
              {match = "layers.1.**", optimizer = SGD{lr = 0.1, momentum = 0.9}, schedule = halving}},
  },
  own = {optimizer = Own{}, ema = 0.9},
  LAMB = {optimizer = LAMB{lr = 0.01}, clip = 0.3},
  Adafactor = {optimizer = Adafactor{lr = 0.05, weight_decay = 0.1}, ema = 0.9, schedule = steps_down},
  Muon = {
    optimizer = Muon{lr = 0.02, dtype = "float32"}, schedule = WarmupLinear{warmup = 4, least = 0.1},
    groups = {{match = "**.bias|**norm.weight|embedding.*|output.*", optimizer = AdamW{lr = 0.01}},
              {match = "layers.*.w2.weight", adjust_lr_fn = "match_rms_adamw", nesterov = false, ns_steps = 4}},
  },
  whole = {optimizer = Whole{}, clip_value = 0.05},
}
local way = ways[how] or optimizers[how]

return train{
  model = model,
  batch = distribute({
    input = tokens(WORDS){batch_size, LENGTH}, target = tokens(WORDS, 1){batch_size, LENGTH},
  }, mesh.dp, Shard(0)),
  loss = function(output, batch) return F.cross_entropy(output, batch.target) end,
  optimizer = way.optimizer, schedule = way.schedule, clip = way.clip, grad_norm = way.grad_norm,
  groups = way.groups, clip_value = way.clip_value, ema = way.ema,
  accumulate = accumulate, checkpoint = args.checkpoint, steps = args.steps or 10,
}
