#!/usr/bin/env bash
# Large meshes: up to six dimensions and 600 ranks, and 65,536 ranks of which eight are written. A run of
# tpgen takes at most three seconds and 512 MiB, and ends with the programs or with one message. A plan is
# large_meshes/frame.lua and a file of that folder.
. "$(dirname "$0")/../common.sh"

# Twice the promised time, for a machine half as fast as the one that measured it. Under sanitizers no time is
# checked.
most=6000
if grep -q __asan_init "$TPGEN"; then most=600000; fi

for plan in tests/plans/large_meshes/*_*.lua; do
  cat tests/plans/large_meshes/frame.lua "$plan" > "$WORK/$(basename "$plan")"
done

# runs STATUS MESSAGE PLAN ARGUMENTS...: the quickest of up to three runs counts.
longest=0
runs() {
  local expected=$1 message=$2 plan=$3 least=
  shift 3
  for _ in 1 2 3; do
    "$TOOLS/run_measured" 120 "$WORK/report" "$TPGEN" "$WORK/$plan.lua" -o "$WORK/out" "$@" > "$WORK/said" 2>&1
    read -r status _ kib milliseconds < "$WORK/report"
    if [ -z "$least" ] || [ "$milliseconds" -lt "$least" ]; then least=$milliseconds; fi
    [ "$least" -gt $most ] || break
  done
  [ "$status" -eq "$expected" ] || fail "$plan $*: status $status: $(head -c 200 "$WORK/said")"
  [ -z "$message" ] || finds -F -- "$message" "$WORK/said" || fail "$plan $*: $(head -c 200 "$WORK/said")"
  [ "$least" -le $most ] || fail "$plan $*: $least ms"
  [ "$kib" -le 524288 ] || [ $most -gt 6000 ] || fail "$plan $*: $kib KiB"
  [ "$least" -le $longest ] || longest=$least
}

# The error is found only after every value has a layout.
runs 1 'async_tp: over tp nothing can be cut' 144_ranks
runs 1 'async_tp: over tp nothing can be cut' 160_ranks
runs 1 'async_tp: over tp nothing can be cut' 6_dimensions
runs 0 '' 240_ranks --ranks 0-7
runs 0 '' 420_ranks --ranks 0-7
runs 0 '' 336_ranks --ranks 0-7 --target cuda
runs 1 'say which to write, as in --ranks 0-7' 336_ranks
runs 0 '' 65536_ranks --ranks 0-7
runs 0 '' 65536_ranks --ranks 0-7 --target cuda

# A list omits the ranks at its end without elements.
for file in step.cu step_1.cu; do
  [ "$(wc -c < "$WORK/out/$file")" -le 300000 ] || fail "$file: $(wc -c < "$WORK/out/$file") bytes"
done

# Too many ranks are refused before anything is planned.
runs 2 'no more than 4096 programs are written at once: say which, as in --ranks 0-7' 65536_ranks
[ "$milliseconds" -le 500 ] || [ $most -gt 6000 ] || fail "65536_ranks: $milliseconds ms to say so"
finish "at most $longest ms"
