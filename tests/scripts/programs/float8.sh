#!/usr/bin/env bash
# Products in float8 have the losses of torchao's recipes (tests/golden/float8), on one rank and on meshes, on the CPU
# and on the stand-in for CUDA: those of a small model that computes all else in float32, and those of the golden Llama in
# bfloat16. Maxima go over all ranks that have parts; what is not taken is refused.
#   FLOAT8="cuda"     only programs that this matches (an extended regular expression)
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
facts=$golden/float8
export OMP_NUM_THREADS=1

# The same to float32's last bits until a number lies between two of float8 and takes the other one, after some steps.
check() {
  local name=$1 kind=$2 recipe=$3 value arguments=(-D "recipe=$3")
  shift 3
  for value; do arguments+=(-D "$value"); done
  [ "$kind" != cuda ] || arguments+=(--target cuda)
  "$TPGEN" tests/plans/float8/plan.lua -o "$WORK/$name" "${arguments[@]}" || { fail "$name: tpgen"; return; }
  make_ranks "$WORK/$name" "$kind" || { fail "$name does not compile"; return; }
  start "$WORK/$name" "$WORK/$name" --weights "$facts/weights.safetensors" --data "$facts/data.safetensors" ||
    { fail "$name ended with status $?"; return; }
  local steps=12 within=(1e-3 1e-3)
  near "$name" "$WORK/$name.losses" "$facts/$recipe.losses"
  steps=6 within=(1e-6 1e-6)
  near "$name, six steps" <(head -n 6 "$WORK/$name.losses") <(head -n 6 "$facts/$recipe.losses")
}

# check_llama NAME KIND RECIPE ARGUMENTS...
check_llama() {
  local name=$1 kind=$2 recipe=$3 within=(1e-3 1e-3)
  shift 3
  [ "$kind" != cuda ] || set -- --target cuda "$@"
  "$TPGEN" plans/llama3.lua -o "$WORK/$name" "${golden_shape[@]}" -D dtype=float8 -D float8="$recipe" "$@" &&
    make_ranks "$WORK/$name" "$kind" && from_golden "$WORK/$name" || { fail "$name: no run"; return; }
  numbers loss "$WORK/$name.jsonl" > "$WORK/$name.loss"
  near "$name" "$WORK/$name.loss" <(head -n "$steps" "$facts/llama_$recipe.losses")
}

# refused WORDS PLAN ARGUMENTS...
refused() {
  local words=$1
  shift
  ! "$TPGEN" "$@" -o "$WORK/refused" 2> "$WORK/refused.err" && grep -qF -- "$words" "$WORK/refused.err" ||
    fail "of $* it says: $(cat "$WORK/refused.err")"
}

make_runtimes plain cuda
programs=("plain tensorwise tp=2" "plain rowwise" "cuda tensorwise tp=2 dp=2 fsdp=1" "cuda rowwise")
if ci_cases; then
  make_runtimes sanitized
  programs+=("plain tensorwise dp=2 fsdp=1" "plain rowwise tp=2 dp=2 fsdp=1" "sanitized tensorwise tp=2"
    "sanitized rowwise" "cuda tensorwise" "cuda rowwise tp=2 dp=2 fsdp=1")
fi
checked=0
for program in "${programs[@]}"; do
  [[ "$program" =~ ${FLOAT8:-.} ]] || continue
  read -r kind recipe sizes <<< "$program"
  name=${program// /_}
  # shellcheck disable=SC2086
  beside "$WORK/$name.log" check "$name" "$kind" "$recipe" $sizes
  checked=$((checked + 1))
done
steps=$(ci_cases && echo 20 || echo 5)
programs=("plain tensorwise dp_shard=2")
! ci_cases || programs+=("plain rowwise tp=2" "cuda tensorwise tp=2" "cuda rowwise")
for program in "${programs[@]}"; do
  [[ "llama $program" =~ ${FLOAT8:-.} ]] || continue
  read -r kind recipe size <<< "$program"
  beside "$WORK/llama_${program// /_}.log" check_llama "llama_${program// /_}" "$kind" "$recipe" ${size:+-D "$size"}
  checked=$((checked + 1))
done
all_are_done
# All products of the layers are of float8: forward, and of the gradients of inputs and of weights; the head's are not. Maxima
# of parts go over their ranks.
program="$WORK/cuda_tensorwise_tp=2_dp=2_fsdp=1/step.cu"
if [ -e "$program" ]; then
  of=$(grep -c 'then = SCALED' "$program")
  [ "$of" -eq 3 ] || fail "$of kinds of products have scales, not 3"
  grep -q 'P(max) -> R R over tp, .* bytes: the scale of float8' "$program" || fail "no maxima go over the ranks of tp"
fi
refused "must be multiples of 16" plans/llama3.lua -D dtype=float8 -D hidden=360
refused "has no Linear" plans/gpt2.lua -D dtype=float8
refused "is that of all micro-batches" plans/llama3.lua -D dtype=float8 -D microbatches=2
refused "rows of the product on rank 0" plans/llama3.lua -D dtype=float8 -D seq=6 -D batch=1
cat "$WORK"/*.log
finish "$checked programs with products in float8"
