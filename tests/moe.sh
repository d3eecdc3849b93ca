#!/usr/bin/env bash
# plans/moe.lua has the losses and the norms of gradients of Hugging Face's Mixtral and Qwen3-MoE (tests/golden/moe), with
# and without the load balancing loss, from their files: five steps (SOAK=1: twenty). Experts are on one rank, cut over
# ranks to which tokens travel, within experts, and fully sharded. Every mesh has the losses of one rank.
. "$(dirname "$0")/common.sh"
local_mpi=yes
. "$root/tests/programs.sh"
optimized=-O1
moe=$golden/moe
steps=${SOAK:+20}
steps=${steps:-5}
export OMP_NUM_THREADS=1

# array MODEL SECTION KEY: its numbers, one a line.
array() {
  sed -n "/^ \"$2\": {/,/^ }/p" "$moe/$1/losses.json" | sed -n "/\"$3\": \[/,/\]/p" | grep -o '[-+.0-9e]*[0-9]\b' |
    sed -n "1,${steps}p"
}

# check_places NAME MODEL: in the first step each expert has as many places as there, and the load is that of the fullest.
check_places() {
  local to=$WORK/$1 steps=1
  sed -n '/"tokens_per_expert_step1"/,/^ \]/p' "$moe/$2/losses.json" | tr -d ' \n' | sed 's/.*"://;s/,$//' > "$to.golden_places"
  sed -n '1s/.*"places":\[\([^]]*\)\].*/\1/p' "$to.jsonl" > "$to.places"
  diff <(tr -d '[]\n' < "$to.golden_places") <(tr -d '\n' < "$to.places") || fail "$1: other experts"
  numbers expert_load "$to.jsonl" | sed 1q > "$to.load"
  sed 's/^\[*//;s/\]\],*$//;s/\],\[/\n/g' "$to.golden_places" | awk -F, '
    { most = sum = 0; for (i = 1; i <= NF; i++) { sum += $i; if ($i > most) most = $i }
      if (most * NF / sum > worst) worst = most * NF / sum }
    END { print worst }' > "$to.golden_load"
  within=(1e-5 1e-5)
  near "$1 load" "$to.load" "$to.golden_load"
}

# train NAME KIND MODEL SECTION ARGUMENTS...
train_moe() {
  local name=$1 kind=$2 model=$3 section=$4 to=$WORK/$1 aux=0
  shift 4
  [ "$section" != with_aux ] || aux=$(sed -n 's/.*"router_aux_loss_coef": \([0-9.]*\).*/\1/p' "$moe/$model/config.json")
  make "$name" "$kind" plans/moe.lua -D config="$moe/$model/config.json" -D seq=32 -D batch=4 -D lr=1e-3 -D weight_decay=0.1 \
    -D clip=1.0 -D places=true -D aux_loss="$aux" "$@" || return 0
  start "$to" "$to" --weights "$moe/$model" --data "$llama/text.txt" --steps "$steps" || { fail "$name: no run"; return 0; }
  numbers loss "$to.jsonl" > "$to.loss"
  numbers grad_norm "$to.jsonl" > "$to.grad_norm"
  array "$model" "$section" losses > "$to.golden_loss"
  array "$model" "$section" grad_norms > "$to.golden_norm"
  within=(2e-4 2e-4)
  near "$name" "$to.loss" "$to.golden_loss"
  near "$name norm" "$to.grad_norm" "$to.golden_norm"
  check_places "$name" "$model"
}

# same_as_one NAME ONE: it has the losses of that program of one rank.
same_as_one() {
  within=(5e-7 5e-7)
  near "$1, one rank" "$WORK/$1.loss" "$WORK/$2.loss"
}

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
ep4 plain qwen3_moe with_aux -D dp=4 -D ep=4
ep3 plain mixtral without_aux -D dp=3 -D ep=3
ep2_fsdp2 plain mixtral with_aux -D dp=4 -D ep=2
ep2_tp2 plain qwen3_moe without_aux -D dp=2 -D ep=2 -D tp=2
ep2_tp2m plain mixtral with_aux -D dp=2 -D ep=2 -D tp=2
cuda_ep2 cuda mixtral with_aux -D dp=2 -D ep=2
END
finish "the losses of Mixtral and Qwen3-MoE"
