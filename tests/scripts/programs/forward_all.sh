#!/usr/bin/env bash
# Programs that only go forward, over all samples of files: batch by batch, the last one smaller, the outputs are those of
# one batch of all samples; from .npy files and from safetensors; on meshes and on the stand-in.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
plan=tests/plans/data_sets/forward.lua
data=$golden/data_sets
make_runtimes plain cuda sanitized
weights=(--weights "$data/model.safetensors")
held=$data/validation.safetensors # ten samples

# forward NAME KIND ARGUMENTS...: its outputs are those of the batch of ten.
forward() {
  make "$1" "$2" $plan "${@:3}" && start "$WORK/$1" "$WORK/$1" "${weights[@]}" --data "$held" || { fail "$1"; return; }
  "$TOOLS/compare_safetensors" "$WORK/$1.saved/outputs.safetensors" "$WORK/whole.saved/outputs.safetensors" 1e-6 ||
    fail "$1: not the outputs of one batch"
}
make whole plain $plan -D batch=10 -D mean=1 && start "$WORK/whole" "$WORK/with_mean" "${weights[@]}" --data "$held" ||
  fail "one batch, with a mean"
start "$WORK/whole" "$WORK/mean" "${weights[@]}" --evaluate "$held" &&
  cmp -s "$WORK/mean.saved/outputs.safetensors" "$WORK/with_mean.saved/outputs.safetensors" || fail "--evaluate of one batch, with a mean"
make whole plain $plan -D batch=10 && start "$WORK/whole" "$WORK/whole" "${weights[@]}" --data "$held" || fail whole
forward four plain
forward three plain -D batch=3 -D dp=3
forward five sanitized -D batch=5 -D dp=2 -D tp=2
forward large plain -D batch=16 -D dp=2
forward on_stand_in cuda -D batch=4 -D dp=2
grep -q '^10 samples in 3 batches: ' "$WORK/four.out" || fail "four: $(tail -n 1 "$WORK/four.out")"

# --evaluate is the same; several files are one data set.
start "$WORK/three" "$WORK/evaluated" "${weights[@]}" --evaluate "$held" || fail "--evaluate"
cmp -s "$WORK/evaluated.saved/outputs.safetensors" "$WORK/three.saved/outputs.safetensors" || fail "--evaluate: other outputs"
start "$WORK/four" "$WORK/twice" "${weights[@]}" --data "$held" --data "$held" || fail "two files"
grep -q '^20 samples in 5 batches: ' "$WORK/twice.out" || fail "two files: $(tail -n 1 "$WORK/twice.out")"

# refuses NAME WORDS ARGUMENTS...: and leaves no output.
refuses() {
  ! start "$WORK/$1" "$WORK/$1.bad" "${weights[@]}" "${@:3}" > /dev/null || fail "$1 ${*:3}: status 0"
  grep -qF -- "$2" "$WORK/$1.bad.out" || fail "$1 ${*:3}: not '$2': $(tail -n 3 "$WORK/$1.bad.out")"
  [ ! -e "$WORK/$1.bad.saved/outputs.safetensors" ] || fail "$1 ${*:3}: it leaves outputs"
}
make mean plain $plan -D mean=1
refuses mean "the output 'mean' is of all samples of a batch together" --data "$held"
refuses four "none.npy: cannot open" --data "input=$WORK/none.npy"
refuses four "it has no input, which the program needs" --data "$data/model.safetensors"

finish "all samples go forward"
