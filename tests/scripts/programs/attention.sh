#!/usr/bin/env bash
# Attention with windows, softcaps, sinks and an added bias trains as in PyTorch, where it is written out
# (tests/golden/attention): 20 steps, on one rank, on meshes, and on the stand-in for CUDA.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
export OMP_NUM_THREADS=1
data=$golden/attention

# trains NAME KIND WAY ARGUMENTS...
trains() {
  local to=$WORK/$1 kind=$2 way=$3 arguments=("${@:4}")
  [ "$kind" != cuda ] || arguments+=(--target cuda)
  "$TPGEN" tests/plans/attention/plan.lua -o "$to" -D how="$way" "${arguments[@]}" && make_ranks "$to" "$kind" &&
    start "$to" "$to" --weights "$data/$way.safetensors" --data "$data/data.safetensors" ||
    { fail "$1: no program, or it failed"; return; }
  awk -v way="$way" '$1 == way { for (i = 2; i <= NF; i++) print $i }' "$data/losses.tsv" > "$to.golden"
  same_losses "$1" "$to.losses" "$to.golden" 1e-5
}

make_runtimes plain cuda
for way in window softcap sinks bias all; do
  beside "$WORK/$way.log" trains "$way" plain "$way"
  beside "$WORK/$way.tp2.log" trains "$way.tp2" plain "$way" -D tp=2
done
beside "$WORK/all.dp2_tp2.log" trains all.dp2_tp2 plain all -D dp=2 -D tp=2
beside "$WORK/all.cuda.log" trains all.cuda cuda all -D tp=2
all_are_done
cat "$WORK"/*.log
finish "attention's options train as in PyTorch"
