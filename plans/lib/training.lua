-- What plans give to train: the options that the command line may set.

local M = {}

-- args: the plan's settings, with those of training in lib/settings.lua; p: of parallel.open; options: the rest of
-- train's, which stay. The defaults of AdamW are torchtitan's.
function M.options(args, p, options)
  local all = {
    optimizer = AdamW{
      lr = args.lr, betas = {args.beta1, args.beta2}, weight_decay = args.weight_decay,
    },
    clip = args.clip,
    schedule = args.warmup and WarmupCosine{warmup = args.warmup, least = args.least} or nil,
    accumulate = args.accumulate, accumulate_mean = args.accumulate_mean,
    microbatches = p.pp == 1 and args.microbatches or nil,
    reduce_each_batch = args.reduce_each_batch,
    checkpoint = args.checkpoint == "memory" and {memory = args.memory or true} or args.checkpoint,
    bucketing = args.bucketing,
    bucket_mb = args.bucket_mb,
    prefetch = args.prefetch,
    shuffle = args.shuffle,
    validate = args.validate_every and {every = args.validate_every},
    steps = args.steps,
    seed = args.seed,
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
function M.next_token(args, p, model, vocab, seq, names)
  return M.options(args, p, {
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
