-- An exported Llama under the plan of plans/llama3.lua: tensor and sequence parallel, fully sharded.
local model, about = torch_export(args.model)
local tp, dp = args.tp or 1, args.dp_shard or 1
local mesh = device_mesh{{"dp", dp}, {"tp", tp}}
local layer = "model.model.layers.*"

model = parallelize(model, mesh.tp, {
  ["model.model.embed_tokens"] = Rowwise{input_layouts = Replicate(), output_layouts = Shard(1)},
  ["model.model.norm"] = SequenceParallel(),
  ["model.lm_head"] = Colwise{input_layouts = Shard(1), output_layouts = Shard(-1), use_local_output = false},
  [layer] = {
    input_layernorm = SequenceParallel(),
    self_attn = PrepareModuleInput{
      input_layouts = {Shard(1), false, false}, desired_input_layouts = {Replicate(), false, false},
    },
    ["self_attn.q_proj"] = Colwise(), ["self_attn.k_proj"] = Colwise(), ["self_attn.v_proj"] = Colwise(),
    ["self_attn.o_proj"] = Rowwise{output_layouts = Shard(1)},
    post_attention_layernorm = SequenceParallel(),
    mlp = PrepareModuleInput{input_layouts = Shard(1), desired_input_layouts = Replicate()},
    ["mlp.gate_proj"] = Colwise(), ["mlp.up_proj"] = Colwise(),
    ["mlp.down_proj"] = Rowwise{output_layouts = Shard(1)},
  },
})
if dp > 1 then
  fully_shard(model.model.model.embed_tokens, mesh.dp)
  for _, one in ipairs(model.model.model.layers) do fully_shard(one, mesh.dp) end
  fully_shard({model.model.model.norm, model.model.lm_head}, mesh.dp, {reshard_after_forward = false})
  fully_shard(model, mesh.dp)
end

local shape = about.inputs[1].shape
return train{
  model = model,
  batch = distribute({input = tokens(300){shape[1], shape[2]}, target = tokens(300, 1){shape[1], shape[2]}},
    mesh.dp, Shard(0)),
  forward = function(m, b) return m(b.input) end,
  loss = function(y, b) return F.cross_entropy(y:flatten(0, 1), b.target:flatten()) end,
  optimizer = AdamW{lr = 1e-3, betas = {0.9, 0.95}, weight_decay = 0.1},
  clip = 1.0, steps = 10, seed = 0,
}
