#!/usr/bin/env bash
# plans/moe.lua has the losses and the norms of gradients of Hugging Face's Mixtral and Qwen3-MoE (tests/golden/moe), with
# and without the load balancing loss, from their files: five steps (SOAK=1: twenty). Experts are on one rank, cut over
# ranks to which tokens travel, within experts, and fully sharded. Every mesh has the losses of one rank.
. "$(dirname "$0")/moe_runs.sh"

make_runtimes plain cuda
for model in mixtral qwen3_moe; do
  train_moe $model plain $model without_aux
  train_moe ${model}_aux plain $model with_aux
done
while read -r name kind model section arguments; do
  # shellcheck disable=SC2086
  train_moe "$name" "$kind" "$model" "$section" $arguments
  same_as_one "$name" "$model$([ "$section" != with_aux ] || echo _aux)"
done << 'END'
dp2 plain mixtral with_aux -D dp_replicate=2
fsdp3 plain qwen3_moe with_aux -D dp_shard=3
tp2 plain mixtral without_aux -D tp=2
tp3 plain qwen3_moe without_aux -D tp=3
ep2 plain mixtral with_aux -D dp_replicate=1 -D dp=2 -D ep=2
ep4 plain qwen3_moe with_aux -D dp=4 -D ep=4 -D bound=3.3
ep3 plain mixtral without_aux -D dp=3 -D ep=3
ep2_fsdp2 plain mixtral with_aux -D dp=4 -D ep=2
ep2_tp2 plain qwen3_moe without_aux -D dp=2 -D ep=2 -D tp=2
ep2_tp2m plain mixtral with_aux -D dp=2 -D ep=2 -D tp=2
cuda_ep2 cuda qwen3_moe with_aux -D dp=2 -D ep=2 -D bound=1.9
END

# From a file with one tensor of all experts of a layer, gate and up side by side, a program has the same losses to the
# bit. It writes that file, from which all follows again. Checkpoints are those of a program that knows no such file.
fused=$WORK/fused.safetensors
"$TOOLS/fuse_experts" "$moe/mixtral/model.safetensors" "$fused"
# writes_fused NAME TO FROM...: the program writes that file, of the weights that it has FROM.
writes_fused() {
  start "$WORK/$1" "$WORK/$2" --data "$llama/text.txt" --steps 0 --export "$WORK/$2.hf" "${@:3}" || fail "$2: no run"
  "$TOOLS/compare_safetensors" "$fused" "$WORK/$2.hf/model.safetensors" 0 || fail "$2: another file"
}
while read -r name kind like arguments; do
  # shellcheck disable=SC2086
  weights=$fused train_moe "$name" "$kind" mixtral with_aux -D files=fused $arguments
  diff "$WORK/$name.loss" "$WORK/$like.loss" || fail "$name: other losses than $like"
  writes_fused "$name" "$name.kept" --weights "$fused"
done < <(
  echo fused_ep2_tp2 plain ep2_tp2m -D dp=2 -D ep=2 -D tp=2
  more echo fused_ep2 plain ep2 -D dp_replicate=1 -D dp=2 -D ep=2
  more echo fused_ep2_fsdp2 plain ep2_fsdp2 -D dp=4 -D ep=2
  more echo fused_cuda_ep2 cuda ep2 -D dp_replicate=1 -D dp=2 -D ep=2
)
writes_fused fused_ep2_tp2 fused_again --weights "$WORK/fused_ep2_tp2.kept.hf"
start "$WORK/ep3" "$WORK/apart" --weights "$moe/mixtral" --data "$llama/text.txt" --steps 0 || fail "ep3: no run"
writes_fused fused_ep2_tp2 fused_loaded --load "$WORK/apart.saved"
! start "$WORK/ep3" "$WORK/no_run" --weights "$fused" --data "$llama/text.txt" --steps 0 > "$WORK/no_run.log" 2>&1 &&
  finds 'it holds model.layers.0.mlp.experts.down_proj, which the program does not know' "$WORK/no_run.log" ||
  { cat "$WORK/no_run.log"; fail "ep3 takes another form of file, or says something else"; }

# The layers are a loop, also with the load balancing loss, metrics and a capacity: the text does not grow with them.
for how in "-D aux_loss=0.01" "-D aux_loss=0.01 -D dp=2 -D ep=2" "-D capacity=1.25 -D dp=2 -D ep=2"; do
  for layers in 8 16; do
    # shellcheck disable=SC2086
    "$TPGEN" plans/moe.lua -o "$WORK/deep$layers" -D n_layers=$layers $how || fail "$how: no program of $layers layers"
  done
  shorter=$(wc -l < "$WORK/deep8/step.c") longer=$(wc -l < "$WORK/deep16/step.c")
  ((longer < shorter + shorter / 10)) || fail "$how: $shorter lines for 8 layers, $longer for 16"
done
finish "the losses of Mixtral and Qwen3-MoE"
