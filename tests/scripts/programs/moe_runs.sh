#!/usr/bin/env bash
# What moe.sh, moe_stages.sh and deepseek.sh share: runs of plans/moe.lua on the small models of tests/golden/moe, five
# steps (SOAK=1: twenty).
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
optimized=-O0
moe=$golden/moe
apart=2e-4 # how far losses and norms may be from the golden ones
steps=${SOAK:+20}
steps=${steps:-5}
export OMP_NUM_THREADS=1

# array MODEL SECTION KEY: its numbers of each step, one a line.
array() {
  local file=losses
  case $2 in *_of_[0-9]) file=micro_batches ;; esac
  sed -n "/^ \"$2\": {/,/^ }/p" "$moe/$1/$file.json" | sed -n "/\"$3\": \[/,/\]/p" | grep -o '[-+.0-9e]*[0-9]\b' |
    sed -n "1,${steps}p"
}

# check_dropped NAME MODEL: each step drops as many places as there.
check_dropped() {
  numbers dropped "$WORK/$1.jsonl" > "$WORK/$1.dropped"
  diff <(array "$2" capacity dropped) "$WORK/$1.dropped" || fail "$1: drops other places"
}

# check_places NAME MODEL: in the first step each expert has as many places as there, and the load is that of the fullest.
check_places() {
  local to=$WORK/$1 steps=1
  sed -n '/"tokens_per_expert_step1"/,/^ \]/p' "$moe/$2/losses.json" | tr -d ' \n' | sed 's/.*"://;s/,$//' > "$to.golden_places"
  sed -n '1s/.*"places":\[\([^]]*\)\].*/\1/p' "$to.jsonl" > "$to.places"
  diff <(tr -d '[]\n' < "$to.golden_places") <(tr -d '\n' < "$to.places") || fail "$1: other experts"
  sed 1q "$to.load" > "$to.first_load"
  sed 's/^\[*//;s/\]\],*$//;s/\],\[/\n/g' "$to.golden_places" | awk -F, '
    { most = sum = 0; for (i = 1; i <= NF; i++) { sum += $i; if ($i > most) most = $i }
      if (most * NF / sum > worst) worst = most * NF / sum }
    END { print worst }' > "$to.golden_load"
  within=(1e-5 1e-5)
  near "$1 load" "$to.first_load" "$to.golden_load"
}

# metrics NAME: the load of each step, and what was counted: the places of each expert, and those dropped. Places are
# made of means, which are rounded where the tokens are no power of two.
metrics() {
  numbers expert_load "$WORK/$1.jsonl" > "$WORK/$1.load"
  sed -n 's/.*"places":\(\[[][0-9.e,+-]*\).*/\1/p' "$WORK/$1.jsonl" | tr '[]' '  ' | awk -F, '
    { for (i = 1; i <= NF; i++) printf "%.0f%s", $i, i < NF ? "," : "\n" }' > "$WORK/$1.counted"
  numbers dropped "$WORK/$1.jsonl" >> "$WORK/$1.counted"
}

# train_moe NAME KIND MODEL SECTION ARGUMENTS...: it has the losses, the norms of gradients and the experts of that
# section of losses.json; or of none, where the section is another batch. `weights`, where it is set, is the file of weights.
train_moe() {
  local name=$1 kind=$2 model=$3 section=$4 to=$WORK/$1 aux=0
  shift 4
  [[ $section != with_aux* ]] || aux=$(sed -n 's/.*"router_aux_loss_coef": \([0-9.]*\).*/\1/p' "$moe/$model/config.json")
  local arguments common=(config="$moe/$model/config.json" seq=32 lr=1e-3 weight_decay=0.1 batch=4 clip=1.0 places=true aux_loss="$aux")
  with_defaults common "$@"
  make "$name" "$kind" plans/moe.lua "${arguments[@]}" || return 0
  start "$to" "$to" --weights "${weights:-$moe/$model}" --data "$llama/text.txt" --steps "$steps" || { fail "$name: no run"; return 0; }
  numbers loss "$to.jsonl" > "$to.loss"
  numbers grad_norm "$to.jsonl" > "$to.grad_norm"
  metrics "$name"
  [[ $section != batch_* ]] || return 0
  array "$model" "$section" losses > "$to.golden_loss"
  array "$model" "$section" grad_norms > "$to.golden_norm"
  within=("$apart" "$apart")
  near "$name" "$to.loss" "$to.golden_loss"
  near "$name norm" "$to.grad_norm" "$to.golden_norm"
  case "$section $*" in
  *bfloat16*) ;; # which experts are best may hang on a rounding
  capacity*) check_dropped "$name" "$model" ;;
  *) check_places "$name" "$model" ;;
  esac
}

# same_as_one NAME ONE: it has the losses and the metrics of that program of one rank.
same_as_one() {
  within=(5e-7 5e-7)
  near "$1, one rank" "$WORK/$1.loss" "$WORK/$2.loss"
  near "$1 load, one rank" "$WORK/$1.load" "$WORK/$2.load"
  [ "$(wc -l < "$WORK/$1.counted")" -ge "$steps" ] || fail "$1: counts nothing"
  diff "$WORK/$1.counted" "$WORK/$2.counted" || fail "$1: counts other places than one rank"
}
