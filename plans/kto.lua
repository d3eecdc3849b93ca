-- Kahneman-Tversky optimization (KTO) of any language model of causal_lm.lua, by single answers that are rated good or bad: good
-- ones become more probable than they were to a reference, bad ones less. A line of the data is {"prompt", "completion", "label"},
-- with texts or lists of messages, and true or false. With -D lora=16 the reference is the model without its adapters:
--
--   tpgen plans/kto.lua -o out/ -D config=Qwen2.5-0.5B/config.json -D lora=16 -D tp=2 -D seq=1024 -D batch=8
--   out/run.sh --weights Qwen2.5-0.5B --data rated.jsonl --export tuned
--
-- Without adapters a program writes what the reference says, and the training reads it:
--
--   tpgen plans/kto.lua -o reference/ -D config=Qwen2.5-0.5B/config.json -D seq=1024 -D batch=8 -D reference=write
--   reference/run.sh --weights Qwen2.5-0.5B --data rated.jsonl --save said
--   tpgen plans/kto.lua -o out/ -D config=Qwen2.5-0.5B/config.json -D seq=1024 -D batch=8 -D dp_shard=2
--   out/run.sh --weights Qwen2.5-0.5B --data rated.jsonl --data said/outputs.safetensors --export tuned
--
-- tpgen plans/kto.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"
local preference, training = require "lib.preference", require "lib.training"

local c = args.config and families.read(args.config) or families.small{model_type = "llama"}
local args = causal_lm.settings(c, {"n_layers", "seq", "pad"}, {}, 1024, {preference.settings, preference.rated_settings})
local p, model, names = causal_lm.build(c, args)
local said_by = preference.reference(args)
local batch = preference.batch(p, c.vocab, c.seq, said_by == "file", true)
if said_by == "write" then return preference.writer(args, model, batch, names) end

-- Of one row of the batch: 0, the answer, or 1, that of another prompt.
local function log_probs(of, batch, row)
  return preference.sums(of(batch.input:select(1, row)), batch.target:select(1, row))
end
local function forward(model, batch)
  local function reference(row)
    if said_by == "file" then return batch.reference:select(1, row) end
    return log_probs(function(x) return without_adapters(model, x) end, batch, row)
  end
  local divergence = 0
  if args.preference == "kto" then
    divergence = (log_probs(model, batch, 1):detach() - reference(1)):mean():clamp_min(0)
  end
  local loss, rewards = preference.of_rated(args, log_probs(model, batch, 0), reference(0), batch.rating, divergence)
  return {loss = loss:mean(), rewards = rewards}
end
return train(training.options(args, p, {
  model = model, batch = batch, names = names, forward = forward,
  loss = function(output) return output.loss end,
  metrics = function(output, batch) return preference.rated_metrics(output.rewards, batch.rating) end,
}))
