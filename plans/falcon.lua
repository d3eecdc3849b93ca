-- Falcon from a Hugging Face folder or from the start. q, k and v are in one weight: all queries, then
-- the one key and value of multi-query attention (7B), cut part by part; or group by group (40B, 180B),
-- cut between groups. Attention and MLP in parallel. Tensor parallel within the layers, sequence
-- parallel between them.
--
--   tpgen plans/falcon.lua -o out/ -D config=falcon-7b/config.json -D tp=2 -D seq=2048
--   out/run.sh --weights falcon-7b --data train.bin
--
-- tpgen plans/falcon.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"

local c = args.config and families.read(args.config, {"falcon"}) or families.small{model_type = "falcon"}
local args = causal_lm.settings(c, {
  "dim", "n_layers", "n_heads",
  {"hidden", function(a) return 4 * a.dim end, "the width of the feed-forward network; by default 4 dim", type = "size"},
  "vocab", "seq", "theta", "eps", {"tied", true},
  {"multi_query", true, "all queries share one key and value"},
  {"groups", function(a) return a.n_heads end, "without multi_query: groups of queries, each with a key and a value", type = "size"},
  {"two_norms", false, "attention and MLP have norms of their own"},
}, {multi_query = c.attention.kind == "joined", two_norms = c.norms.before_mlp == "ln_mlp",
  groups = c.attention.kind == "grouped" and c.n_kv_heads or nil})
c.n_kv_heads = args.multi_query and 1 or args.groups
c.attention.kind = args.multi_query and "joined" or "grouped"
if args.two_norms then c.norms = {before_attention = "ln_attn", before_mlp = "ln_mlp"}
elseif c.norms.before_mlp == "ln_mlp" then c.norms = {before_attention = "input_layernorm"} end
return causal_lm.train(c, args)
