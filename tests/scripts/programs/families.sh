#!/usr/bin/env bash
# plans/causal_lm.lua has the losses of small models of Hugging Face transformers of each family (tests/golden/families), from
# their config.json and weights alone: 10 steps of each, on two ranks, and in CI also on one or
# with the batch cut, in turn; with CASES=all on all of these.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
. "$root/tests/scripts/hugging_face.sh"
steps=10
models=$golden/families
make_runtime plain > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime"; }

n=0
for of in "$models"/*/; do
  n=$((n + 1)) meshes=(tp=2)
  ! ci_cases || [ $((n % 2)) -eq 0 ] && ! all_cases || meshes+=(tp=1)
  ! ci_cases || [ $((n % 2)) -eq 1 ] && ! all_cases || meshes+=(dp=2)
  on_meshes "$(basename "$of")" causal_lm -D seq=16
done
all_are_done
cat "$WORK"/*.log

# What a file does not say is as in transformers' class: the file with the name alone is the model of the one with all fields.
mkdir "$WORK/configs"
cp -r plans/lib tests/plans/families_of_configs.lua "$WORK/configs"
python3 - "$models/defaults.json" "$WORK/configs" <<'PYTHON'
import json, sys
for name, whole in json.load(open(sys.argv[1])).items():
    json.dump(whole, open(f"{sys.argv[2]}/{name}.json", "w"))
    json.dump({"model_type": name}, open(f"{sys.argv[2]}/{name}.short.json", "w"))
PYTHON
types=0
for short in "$WORK"/configs/*.short.json; do
  "$TPGEN" "$WORK/configs/families_of_configs.lua" -D "short=$short" -D "whole=${short/.short/}" --dump=lua > /dev/null 2> "$WORK/message" ||
    { cat "$WORK/message"; fail "$short"; }
  types=$((types + 1))
done
known=$(sed -nE 's/^  ([a-z0-9_]+) = \{is = .*/\1/p' plans/lib/families.lua | wc -l)
[ "$types" -eq "$known" ] || fail "$types families have defaults in the golden file, of $known"

# Files that are the same model to transformers. is_same TYPE FIELDS FIELDS.
is_same() {
  echo "{\"model_type\": \"$1\", $2}" > "$WORK/configs/one.json"
  echo "{\"model_type\": \"$1\", $3}" > "$WORK/configs/other.json"
  "$TPGEN" "$WORK/configs/families_of_configs.lua" -D "short=$WORK/configs/one.json" -D "whole=$WORK/configs/other.json" --dump=lua > /dev/null 2> "$WORK/message" ||
    { cat "$WORK/message"; fail "$1: $2 is not $3"; }
}
is_same gpt_neox '"rotary_emb_base": 50, "rotary_pct": 0.5, "rope_theta": 70, "partial_rotary_factor": 0.75' \
  '"rope_parameters": {"rope_theta": 50.0, "partial_rotary_factor": 0.5}'
is_same gpt_neox '"rotary_emb_base": 50, "rope_parameters": {"rope_type": "linear", "factor": 2.0}' \
  '"rope_scaling": {"type": "linear", "factor": 2.0, "rope_theta": 50, "partial_rotary_factor": 0.25}'
is_same gpt_oss '"rope_parameters": null' '"hidden_act": "silu"'
is_same gemma '"hidden_act": "gelu", "hidden_activation": null' '"hidden_act": "gelu_pytorch_tanh"'
is_same mixtral '"num_hidden_layers": 2, "sliding_window": 8, "layer_types": ["full_attention", "full_attention"]' '"num_hidden_layers": 2, "sliding_window": 8'
is_same qwen3_moe '"num_hidden_layers": 2, "use_sliding_window": true, "layer_types": ["full_attention", "full_attention"]' \
  '"num_hidden_layers": 2, "use_sliding_window": true'
is_same gpt2 '"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "max_position_embeddings": 48' \
  '"n_embd": 64, "n_layer": 3, "n_head": 2, "n_positions": 48'
is_same gptj '"hidden_size": 64, "num_attention_heads": 2, "rotary_dim": 16, "rope_theta": 50' '"n_embd": 64, "n_head": 2, "rotary_dim": 16'
is_same bloom '"n_embed": 64, "num_hidden_layers": 3, "num_attention_heads": 4' '"hidden_size": 64, "n_layer": 3, "n_head": 4'
is_same mpt '"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "attn_config": null' '"d_model": 64, "n_layers": 3, "n_heads": 4'
is_same phi3 '"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2], "short_mscale": 1.1, "long_mscale": 1.2}' \
  '"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2]}'
is_same ministral3 '"num_hidden_layers": 2, "sliding_window": 8, "layer_types": ["full_attention", "full_attention"]' '"num_hidden_layers": 2, "sliding_window": 8'
is_same deepseek_v3 '"num_local_experts": 16' '"n_routed_experts": 16'
is_same llama '"rope_scaling": {"type": "linear", "factor": 2.0, "original_max_position_embeddings": 8}' \
  '"rope_parameters": {"rope_type": "linear", "factor": 2.0}'

echo '{"model_type": "mamba"}' > "$WORK/mamba.json"
! "$TPGEN" plans/causal_lm.lua -D config="$WORK/mamba.json" --dump=lua > /dev/null 2> "$WORK/message" || fail "mamba is taken"
finds 'model_type is mamba; this plan knows arcee, .*falcon, .*qwen2, .*torch.export' "$WORK/message" || { cat "$WORK/message"; fail "mamba: another message"; }

# What transformers does not read, or fails with, is an error. is_refused MESSAGE FIELDS: of config.json.
is_refused() {
  echo "{$2}" > "$WORK/refused.json"
  ! "$TPGEN" plans/causal_lm.lua -D config="$WORK/refused.json" --dump=lua > /dev/null 2> "$WORK/message" || fail "taken: $2"
  finds "$1" "$WORK/message" || { cat "$WORK/message"; fail "another message: $2"; }
}
is_refused 'partial_rotary_factor is 0.5, and .* llama rotates whole heads' '"model_type": "llama", "partial_rotary_factor": 0.5'
is_refused 'layer_types has sliding_attention, and use_sliding_window is false' '"model_type": "qwen2", "num_hidden_layers": 2,
  "layer_types": ["full_attention", "sliding_attention"]'
is_refused "rope_scaling has 'type' and no 'rope_type'" '"model_type": "gemma3_text", "rope_scaling": {"type": "linear", "factor": 2.0}'
is_refused 'router_jitter_noise is 0.1; this plan knows 0 alone' '"model_type": "mixtral", "router_jitter_noise": 0.1'
is_refused 'attention_dropout is 0.1; this plan knows 0 alone' '"model_type": "falcon", "attention_dropout": 0.1'
is_refused 'do_layer_norm_before is false; this plan knows true alone' '"model_type": "opt", "do_layer_norm_before": false'
is_refused 'word_embed_proj_dim is 512; this plan knows 768 alone' '"model_type": "opt", "word_embed_proj_dim": 512'
is_refused 'attn_config.alibi is false; this plan knows true alone' '"model_type": "mpt", "attn_config": {"alibi": false}'
is_refused 'attn_config.clip_qkv must be a number above 0, not .x' '"model_type": "mpt", "attn_config": {"clip_qkv": "x"}'
is_refused 'apply_residual_connection_post_layernorm is true' '"model_type": "bloom", "apply_residual_connection_post_layernorm": true'
is_refused 'tie_word_embeddings is missing beside text_config' '"model_type": "mistral3", "text_config": {}'
is_refused 'use_sliding_window is true; this plan knows false alone' '"model_type": "qwen2_moe", "use_sliding_window": true'
is_refused 'needs llama_4_scaling_beta and original_max_position_embeddings' '"model_type": "ministral3", "rope_parameters": {"rope_type": "default"}'
is_refused 'use_bidirectional_attention is true; this plan knows null or false alone' '"model_type": "gemma2", "use_bidirectional_attention": true'
finish "the losses of each family are those of transformers, and so are $types families' defaults"
