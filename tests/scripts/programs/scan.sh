#!/usr/bin/env bash
# Scans are loops. Recurrent modules, and a selective state space written with F.scan, train as PyTorch does
# (tests/golden/scan), on one rank and on meshes. A scan is what its steps one after the other are, to the bit on one
# rank, for any number of steps, and the text of its program is as long for thousands of steps as for three.
#   SCANS="tp=2"     only programs that this matches (an extended regular expression)
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
facts=$golden/scan

# check NAME KIND TOLERANCE LOSSES PLAN DEFINITIONS...: these losses.
check() {
  local name=$1 kind=$2 tolerance=$3 losses=$4 plan=$5 value files=() arguments=()
  shift 5
  for value; do arguments+=(-D "$value"); done
  [ "$kind" != cuda ] || arguments+=(--target cuda)
  [ ! -f "$facts/$plan.weights.safetensors" ] ||
    files=(--weights "$facts/$plan.weights.safetensors" --data "$facts/$plan.data.safetensors")
  "$TPGEN" "tests/plans/scan/$plan.lua" -o "$WORK/$name" "${arguments[@]}" || { fail "$name: tpgen"; return; }
  make_ranks "$WORK/$name" "$kind" || { fail "$name does not compile"; return; }
  start "$WORK/$name" "$WORK/$name" "${files[@]}" || { fail "$name ended with status $?"; return; }
  [ "$losses" = none ] || same_losses "$name" "$WORK/$name.losses" "$losses" "$tolerance"
}

for kind in plain sanitized cuda; do
  make_runtime $kind > "$WORK/runtime.$kind.log" 2>&1 || { cat "$WORK/runtime.$kind.log"; fail "the runtime"; }
done

programs=(
  "recurrent plain"
  "recurrent plain dp=2 tp=2 fsdp=1"
  "recurrent sanitized tp=3"
  "recurrent cuda dp=2"
  "recurrent plain dp=2 accumulate=2 fsdp=1"
  "mamba plain"
  "mamba plain tp=2 dp=2 fsdp=1"
  "mamba sanitized dp=3 checkpoint=layer"
  "mamba cuda tp=2"
)
checked=0
for program in "${programs[@]}"; do
  [[ "$program" =~ ${SCANS:-.} ]] || continue
  read -r plan kind sizes <<< "$program"
  name=${program// /_}
  # shellcheck disable=SC2086
  beside "$WORK/$name.log" check "$name" "$kind" 1e-5 "$facts/$plan.losses" "$plan" $sizes
  checked=$((checked + 1))
done
all_are_done

# The loop and its steps one after the other.
same_as_unrolled() {
  local name=steps$1
  check "$name.unrolled" plain 0 none loop "steps=$1" unroll=1
  check "$name" plain 0 "$WORK/$name.unrolled.losses" loop "steps=$1"
  check "$name.cut" plain 1e-5 "$WORK/$name.unrolled.losses" loop "steps=$1" dp=2
}
for steps in 1 2 3 7; do
  [[ "loop steps=$steps" =~ ${SCANS:-.} ]] || continue
  beside "$WORK/steps$steps.log" same_as_unrolled $steps
done
all_are_done
cat "$WORK"/*.log

# Kernels of few elements may have other forms.
lines() { cat "$WORK/$1/$2" | wc -l; }
for steps in 3 5000 65536; do
  "$TPGEN" tests/plans/scan/loop.lua -o "$WORK/long$steps" -D steps=$steps > /dev/null || fail "$steps steps: tpgen"
done
[ "$(lines long3 step.c)" = "$(lines long65536 step.c)" ] && [ "$(lines long5000 kernels.c)" = "$(lines long65536 kernels.c)" ] ||
  fail "the text grows with the steps"
make_ranks "$WORK/long5000" plain && start "$WORK/long5000" "$WORK/long5000" --steps 2 || fail "5000 steps do not run"
finish "$checked programs train as PyTorch does; loops are as their steps; 65,536 steps are as much text as 3"
