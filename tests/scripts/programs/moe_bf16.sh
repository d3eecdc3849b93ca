#!/usr/bin/env bash
# plans/moe.lua in bfloat16: Mixtral's and Qwen3-MoE's losses and norms of gradients in float32 (tests/golden/moe) within 2
# percent, on one rank and with experts cut over ranks. Rows, and products of experts, are bfloat16; the router is not. On the
# stand-in a model in whose sizes products of experts are on the tensor cores, in all three directions.
. "$(dirname "$0")/moe_runs.sh"
apart=2e-2
make_runtimes plain sanitized cuda

# of_bfloat16 NAME: its rows and products of experts are bfloat16, the sums of their weights' gradients float32.
of_bfloat16() {
  local kernels=$WORK/$1/kernels.c name out
  [ -e "$kernels" ] || kernels=$WORK/$1/kernels.cu
  for name in dispatch grouped_linear grouped_linear_back_input grouped_linear_back_weight; do
    out=bf16
    [[ $name != *weight ]] || out=float
    grep -A2 "void ${name}_[0-9]" "$kernels" | tr -d '\n' | grep "$out \*[_]*restrict[_]* out, *const bf16 " > /dev/null ||
      fail "$1: $name is not of bfloat16, or its result is not $out"
  done
}

# small NAME KIND ARGUMENTS...: the plan's own small model, whose sizes tensor cores take.
small() {
  make "$1" "$2" plans/moe.lua -D seq=32 -D batch=4 -D lr=1e-3 "${@:3}" || return 0
  start "$WORK/$1" "$WORK/$1" --data "$llama/text.txt" --steps "$steps" || fail "$1: no run"
  numbers loss "$WORK/$1.jsonl" > "$WORK/$1.loss"
}
small float32 plain
beside "$WORK/small_bf16.log" small small_bf16 plain -D dtype=bfloat16
beside "$WORK/small_cuda.log" small small_cuda cuda -D dtype=bfloat16 -D dp=2 -D ep=2 -D aux_loss=0
while read -r name kind model section arguments; do
  # shellcheck disable=SC2086
  beside "$WORK/$name.log" train_moe "$name" "$kind" "$model" "$section" -D dtype=bfloat16 $arguments
done << 'END'
mixtral plain mixtral with_aux
qwen3_moe plain qwen3_moe without_aux
tp2 plain mixtral without_aux -D tp=2
ep2 plain mixtral with_aux -D dp=2 -D ep=2
ep3 sanitized mixtral without_aux -D dp=3 -D ep=3
ep2_fsdp2 plain qwen3_moe with_aux -D dp=4 -D ep=2
ep2_tp2 plain qwen3_moe without_aux -D dp=2 -D ep=2 -D tp=2
pp2_ep2 plain mixtral without_aux -D pp=2 -D dp=2 -D ep=2
cuda1 cuda mixtral with_aux
cuda_ep2 cuda mixtral with_aux -D dp=2 -D ep=2
END
beside "$WORK/capacity.log" train_moe capacity plain deepseek_v3 capacity -D bias_balance=0 -D capacity=1.0 -D dtype=bfloat16
all_are_done
cat "$WORK"/*.log
for name in mixtral ep2 cuda_ep2 small_cuda; do of_bfloat16 $name; done
within=("$apart" "$apart")
near "small, float32" "$WORK/small_cuda.loss" "$WORK/float32.loss"
within=(2e-4 2e-4) # sums of products are float32 on both, in another order
near "small, the CPU" "$WORK/small_cuda.loss" "$WORK/small_bf16.loss"
for product in 'false, false' 'false, true' 'true, true'; do
  grep -q "multiply_tile<$product>" "$WORK/small_cuda/kernels.cu" || fail "no product <$product> on tensor cores"
done
finish "the losses of Mixtral and Qwen3-MoE in bfloat16"
