-- Continues texts with a model of Hugging Face of the families in lib/families.lua, by config.json's model_type; or with
-- any causal model that torch.export.save has saved.
--
--   tpgen plans/generate.lua -o out/ -D config=Llama-3.2-1B/config.json [-D tp=2 -D cp=2 -D context=8192 -D slots=4]
--   out/run.sh --weights Llama-3.2-1B --prompts prompts.jsonl --tokens 100
--
--   tpgen plans/generate.lua -o out/ -D model=model.pt2 -D context=4096 [-D tp=2 -D slots=4]
--   out/run.sh --weights model.pt2 --tokenizer FOLDER --prompt "..." --tokens 100

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local families, causal_lm = require "lib.families", require "lib.causal_lm"

local archive = args.model ~= nil
local c = args.config and causal_lm.read(args.config)
  or families.complete(families.small{model_type = "llama", head_dim = 16, max_position_embeddings = 256}) -- to try it

local args = settings{
  shared.files,
  {"model", nil, "an archive of torch.export with a symbolic number of tokens, in place of config", type = "text"},
  {"tp", 1, "ranks that share each layer", search = "tensor"},
  {"cp", 1, "ranks that share the context of the caches", search = "sequences"},
  {"context", math.min(c.positions, 8192), "tokens of a sequence; by default all positions of the model, at most 8192"},
  {"slots", 1, "sequences at once"},
  {"prefill", 128, "tokens of a prompt that one step takes", search = {32, 512}},
  {"cache_dtype", "float32", "the type of the caches", choices = {"float32", "bfloat16"}},
  {"caches", "auto", "what is kept of earlier tokens: keys and values, or what they can be made of again",
    choices = {"auto", "fast", "small"}},
  {"device", nil, "of the simulated call: H100, H200, A100, A100-40GB, B200", type = "text"},
  {"cluster", nil, "where the ranks run: dgx-h100, or a file, .json", type = "text"},
  {"memory", nil, "of a rank, such as 80GiB; by default the cluster's, else no limit", type = "text"},
  {"long_rope", false, "of LongRoPE's factors those for long sequences, for all sequences"},
  {"weight_dtype", "float32", "the type in which weights are stored", choices = {"float32", "bfloat16", "int8"}},
}
local tp, cp, context = args.tp, args.cp, args.context
if context > c.positions and c.files.positions then
  error("the model has " .. c.positions .. " positions: context = " .. context .. " is too long")
end
for _, rotary in ipairs{c.rotary or {}, c.sliding_rotary} do
  rotary.scaling = hugging_face.scaling_within(rotary.scaling, context, args.long_rope)
end
local dims = cp > 1 and { {"cp", cp}, {"tp", tp} } or { {"tp", tp} }
dims.device, dims.cluster, dims.memory = args.device, args.cluster, args.memory
local mesh = device_mesh(dims)
local model, names, vocab
if archive then
  local about
  model, about = torch_export(args.model, {batch = 1, tokens = context})
  vocab = about.outputs[1].shape[3]
  -- A prompt is not filled up: a mask of padding, which some are exported with, is all ones.
  local masks, forward = {}, model.forward
  for i = 2, #about.inputs do
    local input = about.inputs[i]
    if not string.find(input.name, "mask") or #input.shape ~= 2 or input.shape[2] ~= context then
      error(args.model .. ": its input '" .. input.name .. "' is not known here: export the model with tokens alone, or tokens "
        .. "and a mask of padding")
    end
    masks[#masks + 1] = input
  end
  if #masks > 0 then
    function model:forward(tokens)
      local given = {}
      for i, input in ipairs(masks) do given[i] = F.ones(input.shape, {dtype = input.dtype}) end
      return forward(self, tokens, table.unpack(given))
    end
  end
  names = hugging_face.without_wrapper(about.modules)
  if tp > 1 then parallelize(model, mesh.tp, auto()) end
else
  model, names = causal_lm.open(c, {mesh = mesh, tp = tp, dp = 1, batch = 1, generates = true}, context)
end

return generate{
  model = model,
  vocab = vocab or c.vocab,
  context = context,
  context_over = cp > 1 and mesh.cp or nil,
  slots = args.slots,
  prefill = args.prefill,
  cache_dtype = args.cache_dtype,
  caches = args.caches,
  weight_dtype = args.weight_dtype,
  names = names,
}
