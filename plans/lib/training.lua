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
    overlap = args.overlap,
    shuffle = args.shuffle,
    drop_last = args.drop_last,
    validate = args.validate_every and {every = args.validate_every},
    steps = args.steps,
    seed = args.seed,
    matmul_precision = p.dtype == "tf32" and "tf32" or nil,
  }
  for name, value in pairs(options) do all[name] = value end
  return all
end

-- With args.lora the model has adapters of this rank, which are trained, and is frozen itself. task: for PEFT's file.
function M.adapt(args, model, task)
  if not args.lora then
    if args.weight_dtype ~= "float32" then error("weight_dtype is of frozen weights, which only -D lora has here") end
    return
  end
  lora(model, {rank = args.lora, alpha = args.lora_alpha, match = args.lora_match, dropout = args.lora_dropout,
    weight_dtype = args.weight_dtype, task_type = task})
end

-- Of logits [batch, sequence, vocabulary].
function M.next_token_loss(logits, batch)
  return F.cross_entropy(logits, batch.target, {dim = -1})
end

-- The batch of a language model: tokens, and of each the next one; files of samples say by labels of -100 what is not learned.
-- more: options of tokens(). With args.masked only such files serve. With packed they say, too, where a document ends.
function M.next_token_batch(args, p, vocab, seq, more, packed)
  more = more or {}
  if packed then
    if more.documents then error("packed and documents: where a document ends, samples say or a token") end
    return p.distribute{
      input = tokens(vocab, {ends = "ends", longest = more.longest}){p.batch, seq},
      target = randint(-100, vocab){p.batch, seq},
      ends = randint(0, 2){p.batch, seq},
    }
  end
  local target = {shift = 1}
  for name, value in pairs(more) do target[name] = value end
  if args.masked and more.documents then error("masked and documents: labels are of one of them") end
  return p.distribute{
    input = tokens(vocab, more){p.batch, seq},
    target = args.masked and randint(-100, vocab){p.batch, seq} or tokens(vocab, target){p.batch, seq},
  }
end

-- The options of a language model that learns from a text of tokens which one comes next. names: as train's; more: options of
-- tokens().
function M.next_token(args, p, model, vocab, seq, names, more, packed)
  return M.options(args, p, {
    model = model,
    batch = M.next_token_batch(args, p, vocab, seq, more, packed),
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

-- These names behind a prefix.
function M.behind(prefix, names)
  local all = {}
  for own, name in pairs(names) do all[own] = prefix .. name end
  return all
end

-- The names of several models that are parts of one: by the part's name, the names of its parameters.
function M.of_models(parts)
  local all = {}
  for part, names in pairs(parts) do
    for own, name in pairs(names) do all[part .. "." .. own] = name end
  end
  return all
end

return M
