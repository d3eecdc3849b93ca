-- Any language model of Hugging Face of the families in lib/families.lua, by its config.json: Llama, SmolLM3, Mistral,
-- Ministral, Mixtral, Qwen 2 to 3 and 3-MoE, OLMoE, Gemma 1 to 3, Phi, gpt-oss, DeepSeek-V3, OLMo 2 to 3, Granite, GLM-4 and
-- 4.5, GPT-2, GPT-NeoX, Falcon, Command R, EXAONE 4 and others. Tensor parallel within the layers, sequence parallel between
-- them, loss parallel at the end. Plans of single families have more settings.
--
--   tpgen plans/causal_lm.lua -o out/ -D config=SmolLM3-3B/config.json -D tp=2 -D seq=4096
--   out/run.sh --weights SmolLM3-3B --data train.bin
--
-- tpgen plans/causal_lm.lua --help lists the settings.

local families, causal_lm = require "lib.families", require "lib.causal_lm"

local c = args.config and families.read(args.config) or families.small{model_type = "llama"}
return causal_lm.train(c, causal_lm.settings(c, {"n_layers", "seq", "pad"}, {}, 2048))
