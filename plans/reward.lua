-- A reward model on any language model of causal_lm.lua: a score for the last token of an answer, trained so that of two
-- answers the better one has the greater score. Files call the head `score`, as transformers' sequence classification does.
--
--   tpgen plans/reward.lua -o out/ -D config=Qwen2.5-0.5B/config.json -D tp=2 -D seq=1024 -D batch=8
--   out/run.sh --weights Qwen2.5-0.5B --ignore 'lm_head.*' --allow-missing 'score.*' --data pairs.jsonl --export scores
--
-- tpgen plans/reward.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"
local preference, training = require "lib.preference", require "lib.training"

local c = args.config and families.read(args.config) or families.small{model_type = "llama"}
local args = causal_lm.settings(c, {"n_layers", "seq", "pad"}, {}, 1024, {})
c.scores = 1
local p, model, names = causal_lm.build(c, args)
local batch = preference.batch(p, c.vocab, c.seq, false)

local function forward(model, batch)
  local scores = model(preference.samples(batch.input)):squeeze(-1)
  return (scores * preference.last_token(batch.target)):sum(-1):view(-1, 2)
end
return train(training.options(args, p, {
  model = model, batch = batch, names = names, forward = forward,
  loss = function(scores) return -F.logsigmoid(scores:select(1, 0) - scores:select(1, 1)):mean() end,
  metrics = preference.metrics,
}))
