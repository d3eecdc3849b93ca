-- Direct preference optimization of any language model of causal_lm.lua: of two answers the better one becomes more probable
-- than it was to a reference, and the worse one less. With -D lora=16 the reference is the model without its adapters:
--
--   tpgen plans/dpo.lua -o out/ -D config=Qwen2.5-0.5B/config.json -D lora=16 -D tp=2 -D seq=1024 -D batch=8
--   out/run.sh --weights Qwen2.5-0.5B --data pairs.jsonl --export tuned
--
-- Without adapters a program writes what the reference says of all pairs, and the training reads it:
--
--   tpgen plans/dpo.lua -o reference/ -D config=Qwen2.5-0.5B/config.json -D seq=1024 -D batch=8 -D reference=write
--   reference/run.sh --weights Qwen2.5-0.5B --data pairs.jsonl --save said
--   tpgen plans/dpo.lua -o out/ -D config=Qwen2.5-0.5B/config.json -D seq=1024 -D batch=8 -D dp_shard=2
--   out/run.sh --weights Qwen2.5-0.5B --data pairs.jsonl --data said/outputs.safetensors --export tuned
--
-- tpgen plans/dpo.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"
local preference, training = require "lib.preference", require "lib.training"

local c = args.config and families.read(args.config) or families.small{model_type = "llama"}
local args = causal_lm.settings(c, {"n_layers", "seq", "pad"}, {}, 1024, {preference.settings, preference.pair_settings})
local p, model, names = causal_lm.build(c, args)
local said_by = preference.reference(args)
local batch = preference.batch(p, c.vocab, c.seq, said_by == "file")
if said_by == "write" then return preference.writer(args, model, batch, names) end

local function forward(model, batch)
  local policy, tokens = preference.log_probs(model(preference.samples(batch.input)), batch.target)
  local reference = said_by == "adapters"
    and preference.log_probs(without_adapters(model, preference.samples(batch.input)), batch.target) or batch.reference
  local loss, rewards = preference.of_pairs(args, policy, reference, tokens)
  local better = policy:select(1, 0):sum() / tokens:select(1, 0):sum()
  return {loss = args.sft > 0 and loss:mean() - args.sft * better or loss:mean(), rewards = rewards}
end
return train(training.options(args, p, {
  model = model, batch = batch, names = names, forward = forward,
  loss = function(output) return output.loss end,
  metrics = function(output) return preference.metrics(output.rewards) end,
}))
