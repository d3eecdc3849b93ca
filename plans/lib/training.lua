-- What plans give to train: the options that the command line may set.

local M = {}

-- of: the functions of settings.of; p: of parallel.open; options: the rest of train's, which stay. The
-- defaults of AdamW are torchtitan's, unless `adamw` has others.
function M.options(of, p, options, adamw)
  local setting, usual = of.setting, adamw or {}
  local warmup, validate_every = setting("warmup"), setting("validate_every")
  local all = {
    optimizer = AdamW{
      lr = setting("lr", usual.lr or 3e-4),
      betas = {setting("beta1", 0.9), setting("beta2", usual.beta2 or 0.95)},
      weight_decay = setting("weight_decay", usual.weight_decay or 0.1),
    },
    clip = setting("clip"),
    schedule = warmup and WarmupCosine{warmup = warmup, least = setting("least", 0)} or nil,
    accumulate = setting("accumulate"), accumulate_mean = setting("accumulate_mean"),
    microbatches = p.pp == 1 and setting("microbatches") or nil,
    reduce_each_batch = setting("reduce_each_batch"),
    checkpoint = setting("checkpoint"),
    bucketing = setting("bucketing"),
    bucket_mb = setting("bucket_mb"),
    prefetch = setting("prefetch"),
    shuffle = setting("shuffle"),
    validate = validate_every and {every = validate_every},
    steps = setting("steps", 20),
    seed = setting("seed", 0),
    matmul_precision = p.dtype == "tf32" and "tf32" or nil,
  }
  for name, value in pairs(options) do all[name] = value end
  return all
end

-- Of logits [batch, sequence, vocabulary].
function M.next_token_loss(logits, batch)
  return F.cross_entropy(logits, batch.target, {dim = -1})
end

-- The options of a language model that learns from a text of tokens which one comes next. names: as train's.
function M.next_token(of, p, model, vocab, seq, names)
  return M.options(of, p, {
    model = model,
    batch = p.distribute{
      input = tokens(vocab){p.batch, seq}, target = tokens(vocab, 1){p.batch, seq},
    },
    loss = M.next_token_loss,
    names = names,
  })
end

-- The names that files have for parameters: these, behind a prefix.
function M.prefixed(prefix, names)
  local all = {}
  for _, name in ipairs(names) do all[name] = prefix .. name end
  return all
end

return M
