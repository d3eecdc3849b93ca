#!/usr/bin/env bash
# The toy on the CPU target: PyTorch's ten losses on every mesh, one all-reduce, ranks that differ in
# constants only, random numbers that do not depend on the mesh, and weights that do not either; and it
# begins where a launcher starts its ranks before it is built. One program is built and started as a
# user does, by run.sh; the others' ranks are one program.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
optimized=-O2

train_golden_on() {
  local name=$1
  shift
  generate "$name" "$@"
  [ $name = tp2 ] || make_ranks "$WORK/$name" plain || fail "$name does not compile"
  train_golden "$name"
}
make_runtime plain || fail "the runtime does not compile"
for tp in 1 2 3 4 5 8; do train_golden_on tp$tp -D tp=$tp; done
train_golden_on dp2_tp4 -D dp=2 -D tp=4
train_golden_on dp3 -D dp=3
train_golden_on dp3_tp1 -D dp=3 -D tp=1

# One all-reduce forward, of 20 x 5 float32, and none backward.
for tp in 2 3 4 5 8; do
  got=$("$TOOLS/collectives" "$WORK/tp$tp/plan.json")
  [ "$got" = "forward all_reduce tp 400" ] || fail "tp=$tp: its collectives are: $got"
done
[ -z "$("$TOOLS/collectives" "$WORK/tp1/plan.json")" ] || fail "tp=1: a collective on one rank"

# Without comments and with every number and truth value the same, the ranks' files are one text.
constants_aside() { sed -E 's://.*::; s:/\*.*\*/::g; s/\b(true|false)\b/0/g; s/[0-9]+/0/g; s/ +//g' "$1"; }
if cmp -s "$WORK/tp2/rank0.c" "$WORK/tp2/rank1.c"; then fail "rank0.c and rank1.c are equal"; fi
diff <(constants_aside "$WORK/tp2/rank0.c") <(constants_aside "$WORK/tp2/rank1.c") ||
  fail "rank0.c and rank1.c differ in more than constants"

# Weights and data from Philox: what one rank learns from them, all meshes do.
for name in tp1 tp2 tp3 tp4 tp5 tp8 dp2_tp4 dp3 dp3_tp1; do
  save=()
  case $name in tp1 | tp2 | tp3 | dp2_tp4) save=(--save "$WORK/$name.saved") ;; esac
  train $name "${save[@]}"
  losses_of "$WORK/$name.jsonl" > "$WORK/$name.random"
  same_losses "$name, random" "$WORK/$name.random" "$WORK/tp1.random"
done

# The trained weights, in files that do not show the mesh.
for name in tp2 tp3 dp2_tp4; do
  "$TOOLS/compare_safetensors" "$WORK/tp1.saved/model.safetensors" \
    "$WORK/$name.saved/model.safetensors" 1e-5 || fail "tp=1 and $name saved other weights"
done

# What was saved can be read: training goes on from it on another mesh, with the step and the
# optimizer's state, to the loss that an unbroken run has.
train tp3 --steps 11
losses_of "$WORK/tp3.jsonl" | tail -n 1 > "$WORK/unbroken"
rm "$WORK/tp2.jsonl"
train tp2 --load "$WORK/tp3.saved" --steps 11
losses_of "$WORK/tp2.jsonl" > "$WORK/resumed"
same_losses "resumed" "$WORK/resumed" "$WORK/unbroken"

# Ranks that a launcher starts build once, while the others wait, and then all begin.
generate started -D tp=4
CMAKE_ARGS=-DCMAKE_C_FLAGS=-O0 timeout 120 mpirun -n 4 --oversubscribe "$WORK/started/run.sh" --steps 1 \
  --metrics "$WORK/started.jsonl" > "$WORK/started.log" 2>&1 || {
  tail -n 5 "$WORK/started.log"
  fail "four ranks that mpirun starts do not begin: status $?"
}
[ "$(grep -c 'building in' "$WORK/started.log")" = 1 ] || fail "four ranks build more than once"
finish "PyTorch's losses on 9 meshes"
