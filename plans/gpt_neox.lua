-- GPT-NeoX and Pythia from a Hugging Face folder or from the start: q, k and v of each head side by side
-- in one weight, which is cut between heads; a part of each head is rotated; attention and MLP in
-- parallel. Tensor parallel within the layers, sequence parallel between them.
--
--   tpgen plans/gpt_neox.lua -o out/ -D config=pythia-1b/config.json -D tp=2 -D seq=2048
--   out/run.sh --weights pythia-1b --data train.bin
--
-- tpgen plans/gpt_neox.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"

local c = args.config and families.read(args.config, {"gpt_neox"})
  or families.small{model_type = "gpt_neox", intermediate_size = 256}
local args = causal_lm.settings(c, {
  "dim", "n_layers", "n_heads", "hidden", "vocab", "seq", "theta",
  {"rotated", 0.25, "the part of a head that is rotated"},
  "eps", "tied",
  {"bias", true, "projections have a bias"},
  {"together", true, "attention and MLP read the same input"},
}, {rotated = c.rotary.part, bias = c.bias.qkv, together = c.parallel})
c.rotary.part, c.parallel = args.rotated, args.together
c.bias.qkv, c.bias.out = args.bias, args.bias
return causal_lm.train(c, args)
