#!/usr/bin/env bash
# Models of thousands of operations that are no list of equal layers: whatever the plan, a run of tpgen takes
# three seconds and 512 MiB at most, and ends with the programs or with one message that says what is too
# large.
. "$(dirname "$0")/../common.sh"

# Twice what is promised, for a machine half as fast as the one that it was measured on; under sanitizers, which
# take a multiple of the time and of the memory, a quarter of the operations.
most=6000 fewer=1
if grep -q __asan_init "$TPGEN"; then most=40000 fewer=4; fi

# took FORM N ARGUMENTS...: the milliseconds of a processor's time that it takes, and the status and the
# KiB: the least of up to three runs, as long as that is too much.
took() {
  local form=$1 n=$(($2 / fewer)) least=
  shift 2
  for _ in 1 2 3; do
    rm -rf "$WORK/out"
    "$TOOLS/run_measured" 60 "$WORK/report" "$TPGEN" tests/plans/wide_models.lua -o "$WORK/out" -D form="$form" -D n=$n "$@" \
      > "$WORK/said" 2>&1
    read -r status _ kib milliseconds < "$WORK/report"
    if [ -z "$least" ] || [ "$milliseconds" -lt "$least" ]; then least=$milliseconds; fi
    [ "$least" -gt $most ] || break
  done
  echo "$least $status $kib"
}

# runs STATUS FORM N ARGUMENTS...
all=0 longest=0
runs() {
  local expected=$1 milliseconds status kib
  shift
  read -r milliseconds status kib <<< "$(took "$@")"
  [ "$status" -eq "$expected" ] || [ $fewer -gt 1 ] || fail "$*: status $status: $(head -c 200 "$WORK/said")"
  [ "$status" -le 1 ] || fail "$*: status $status"
  [ "$status" -eq 0 ] || [ "$(wc -l < "$WORK/said")" -eq 1 ] || fail "$*: $(head -n 5 "$WORK/said")"
  [ "$milliseconds" -le $most ] || fail "$*: $milliseconds ms"
  [ "$kib" -le 524288 ] || [ $fewer -gt 1 ] || fail "$*: $kib KiB"
  [ "$milliseconds" -le $longest ] || longest=$milliseconds
  all=$((all + milliseconds))
}

runs 0 linears   1000 -D dp=2 -D tp=2
for bound in 'check .* 4,096 operations' 'merge_products .* 512 operations' 'schedule .* 512 operations'; do
  [ $fewer -gt 1 ] || sed -n '/^ended early/,/^$/p' "$WORK/out/plan.txt" | finds "$bound" || fail "plan.txt: not ended early: $bound"
done
runs 0 residual   700 -D dp=2 -D tp=2
runs 0 norms      900 -D dp=2
runs 0 unlike     900 -D dp=2
runs 0 tied      5000
runs 0 permutes 16000 -D infer=1
runs 0 views    10000 -D infer=1
runs 0 relus     5000
runs 0 products  8000
runs 0 softmaxes 1500
runs 0 powers    1500
runs 0 read      3000
runs 0 lists     1000
runs 0 over_a    1000
# As far as the limits of operations and of memory, and beyond.
runs 1 products 16000
runs 1 residual  8000 -D dp=2
runs 1 lists     8000
runs 1 softmaxes 16000

# A module that is called as the program calls a group of ranks: there is no name that is both.
"$TPGEN" tests/plans/wide_models.lua -o "$WORK/over" -D form=over_a -D n=3 -D dp=2 || fail "over_a: status $?"
for file in step.c rank0.c kernels.c; do
  mpicc -std=c11 -D_GNU_SOURCE -fsyntax-only -I"$WORK/over/runtime" "$WORK/over/$file" 2> "$WORK/said" ||
    fail "over_a: $file: $(head -n 3 "$WORK/said")"
done
finish "at most $longest ms each, $all ms in all"
