#!/usr/bin/env bash
# tpgen --calibrate --target cuda. A file with exactly the rates of a preset (tools/preset_device.c) gives the preset's steps, within
# 2 % where they take more than 10 ms. Steps follow the figures of a file; a mesh that it has no links of is refused, and so is a file
# that is damaged. The program that measures, on the stand-in for CUDA, leaves such a file: with two ranks, in CI with two nodes of two.
. "$(dirname "$0")/../common.sh"
machine=$WORK/machine debug=(plans/llama3.lua -D preset=debug)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# makes NAME PLAN ARGUMENTS...: the program of rank 0, and in NAME.seconds its simulated step.
makes() {
  "$TPGEN" "${@:2}" --target cuda --ranks 0 -o "$WORK/$1" > "$WORK/$1.log" 2>&1 || { cat "$WORK/$1.log" && fail "$1: no program" && return 0; }
  figure "$1" seconds > "$WORK/$1.seconds"
  [ -s "$WORK/$1.seconds" ] || fail "$1: no simulated step"
}
figure() { sed -n '/"simulated_step"/,/}/s/^ *"'"$2"'": *\([0-9.e+-]*\),*$/\1/p' "$WORK/$1/plan.json"; }
ratio() { awk -v a="$(cat "$WORK/$1.seconds")" -v b="$(cat "$WORK/$2.seconds")" 'BEGIN { print a / b }'; }
is_longer() { awk -v ratio="$(ratio "$1" "$2")" -v times="$3" 'BEGIN { exit !(ratio > times) }'; }

# ---- the rates of a preset ----------------------------------------------------------------------

# like_preset DEVICE PLAN ARGUMENTS...
like_preset() {
  makes preset "${@:2}" -D "device=$1"
  makes file "${@:2}" -D "device=$WORK/$1.json"
  printf '  %-5s %-98s %.3f\n' "$1" "${*:2}" "$(ratio file preset)"
  awk -v ratio="$(ratio file preset)" 'BEGIN { exit !(ratio > 0.98 && ratio < 1.02) }' || fail "$*: $(ratio file preset) times the preset's step"
}
for device in A100 H100; do "$TOOLS/preset_device" $device 8 2 > "$WORK/$device.json" || fail "no rates of $device"; done
big=(plans/llama3.lua -D preset=8b -D dtype=bfloat16)
like_preset H100 "${big[@]}" -D dp=8 -D batch=8 -D checkpoint=layer
like_preset H100 "${big[@]}" -D tp=8 -D dp=2 -D batch=8
like_preset A100 "${big[@]}" -D dp=16 -D batch=16
like_preset A100 "${big[@]}" -D tp=4 -D pp=2 -D batch=8 -D microbatches=8
more like_preset A100 plans/gpt2.lua -D dp=2 -D dim=1024 -D n_layers=12 -D n_heads=16 -D positions=1024 -D batch=16
more like_preset H100 plans/moe.lua -D dim=2048 -D hidden=4096 -D n_heads=16 -D n_kv_heads=8 -D head_dim=128 -D seq=2048 -D batch=64 -D dp=8 -D ep=8 -D dtype=bfloat16

# ---- figures of a file --------------------------------------------------------------------------

# changed NAME SED: H100's file, changed so.
changed() { sed -E "$2" "$WORK/H100.json" > "$WORK/$1.json"; }
of_two=("${debug[@]}" -D tp=2)
changed as_is ''
changed far 's/\[(256|1024|4096|16384|65536|262144), [0-9.e-]+\]/[\1, 0.01]/g'
changed slow_host 's/"launch": 1e-09|"launch": 1e-9/"launch": 1e-4/'
changed beside 's/"arithmetic": 1.15, "collective": 1/"arithmetic": 3, "collective": 2/'
makes as_is "${of_two[@]}" -D "device=$WORK/as_is.json"
makes far "${of_two[@]}" -D "device=$WORK/far.json"
makes slow_host "${of_two[@]}" -D "device=$WORK/slow_host.json"
makes beside_1 "${big[@]}" -D dp=8 -D batch=8 -D "device=$WORK/as_is.json"
makes beside "${big[@]}" -D dp=8 -D batch=8 -D "device=$WORK/beside.json"
is_longer far as_is 2 || fail "collectives that begin late cost nothing"
is_longer slow_host as_is 3 || fail "a slow host costs nothing"
is_longer beside beside_1 1.02 || fail "what runs side by side is no slower"
awk -v a="$(figure slow_host in_graph)" -v b="$(figure as_is seconds)" 'BEGIN { exit !(a > 0.99 * b && a < 1.01 * b) }' ||
  fail "in a graph the host is late, too: $(figure slow_host in_graph)"
grep -q 'measured on host (A H100), 2026-01-01T00:00:00Z, 2 nodes of 8 devices' "$WORK/as_is/plan.txt" || fail "plan.txt does not say where it was measured"
grep -q 'as one graph (--graph) it takes' "$WORK/slow_host/plan.txt" || fail "plan.txt does not say what a graph takes"
rm -f "$WORK"/{as_is,far}/{plan.txt,plan.json,files.txt}
grep -rlE 'A H100|2026-01-01T' "$WORK/as_is" > "$WORK/names" && fail "a program's text names the machine: $(cat "$WORK/names")"
# The reserve of memory is what was measured, and more with more groups.
changed libraries 's/"libraries": [0-9]+, "group": 0/"libraries": 3000000000, "group": 1000000000/'
makes libraries "${debug[@]}" -D tp=2 -D dp=2 -D "device=$WORK/libraries.json"
libraries=$(sed -n 's/^ *"libraries": \([0-9]*\).*/\1/p' "$WORK/libraries/plan.json")
((libraries >= 4000000000 && (libraries - 3000000000) % 1000000000 == 0)) || fail "libraries take $libraries bytes"
# From its dump the same follows.
"$TPGEN" "${of_two[@]}" --target cuda -D "device=$WORK/slow_host.json" --dump=lua > "$WORK/dump" &&
  "$TPGEN" --from=lua "$WORK/dump" --target cuda --ranks 0 -o "$WORK/again" && figure again seconds | cmp - "$WORK/slow_host.seconds" ||
  fail "a dump does not have the figures"

# A group that was not measured takes what the nearest one does, and as much more as the model of links says.
makes many "${big[@]}" -D dp=64 -D batch=64 -D "device=$WORK/H100.json"
makes many_preset "${big[@]}" -D dp=64 -D batch=64 -D device=H100
awk -v ratio="$(ratio many many_preset)" 'BEGIN { exit !(ratio > 0.98 && ratio < 1.02) }' || fail "64 ranks: $(ratio many many_preset)"
printf '{"name": "ours", "device": "H100.json", "nodes": 4, "inter": {"bandwidth": 1e9}}\n' > "$WORK/cluster.json"
makes slow_links "${big[@]}" -D dp=32 -D batch=32 -D "cluster=$WORK/cluster.json"

# ---- refusals -----------------------------------------------------------------------------------

# refuses WORDS ARGUMENTS...
refuses() {
  "$TPGEN" "${debug[@]}" --target cuda -o "$WORK/none" "${@:2}" > "$WORK/message" 2>&1 && fail "${*:2}: taken"
  grep -qF -- "$1" "$WORK/message" || fail "${*:2}: says '$(cat "$WORK/message")', and nothing of '$1'"
}
"$TOOLS/preset_device" H100 1 1 > "$WORK/one.json"
"$TOOLS/preset_device" H100 8 1 > "$WORK/node.json"
refuses "has figures of 1 device and no intra.bandwidth" -D tp=2 -D "device=$WORK/one.json"
refuses "has figures of 8 devices and no inter.bandwidth" -D dp=16 -D batch=16 -D "device=$WORK/node.json"
# wrong WORDS SED: the file, changed so, is refused.
wrong() {
  changed wrong "$2"
  refuses "$1" -D "device=$WORK/wrong.json"
}
wrong "target must be cuda" 's/"target": "cuda"/"target": "cpu"/'
wrong "devices is missing" 's/"devices"/"devises"/'
wrong "nodes must be a number" 's/"nodes": 2, "memory"/"nodes": 0, "memory"/'
wrong "libraries must be a number" 's/"libraries": [0-9]+/"libraries": -1/'
wrong "peaks.bfloat16 must be a number" 's/"bfloat16": [0-9.e+]+\}/"bfloat16": "many"}/'
wrong "runs[0].ranks must be devices times nodes, 16" 's/"ranks": 16, "processors"/"ranks": 8, "processors"/'
wrong "runs[0].processors is missing" 's/"processors"/"threads"/'
wrong "runs[0].launch must be a number" 's/"launch": 1e-0?9/"launch": 0/'
wrong "runs[0].beside.arithmetic must be a number from 1" 's/"arithmetic": 1.15/"arithmetic": 0.5/'
wrong "runs[0].memory.rows is missing" 's/"rows"/"lines"/'
wrong "collectives[0].nodes must divide its ranks" 's/"kind": "all_gather", "ranks": 2, "nodes": 2/"kind": "all_gather", "ranks": 3, "nodes": 2/'
wrong "has more ranks or nodes than were measured" 's/"kind": "all_gather", "ranks": 2, "nodes": 2/"kind": "all_gather", "ranks": 12, "nodes": 4/'
wrong "is not JSON" 's/^\{/[/'
# Cut anywhere, or with other bytes in it, it is refused, or taken where it still is one.
size=$(stat -c %s "$WORK/H100.json")
for ((i = 1; i <= 12; i++)); do
  head -c $((size * i / 13)) "$WORK/H100.json" > "$WORK/cut.json"
  refuses "is not JSON" -D "device=$WORK/cut.json"
  { head -c $((size * i / 13)) "$WORK/H100.json" && printf '9e999' && tail -c +$((size * i / 13 + 4)) "$WORK/H100.json"; } > "$WORK/changed.json"
  status=0
  "$TPGEN" "${debug[@]}" --target cuda -o "$WORK/none" -D "device=$WORK/changed.json" > "$WORK/message" 2>&1 || status=$?
  [ $status -le 1 ] || fail "damaged at $((size * i / 13)): $(cat "$WORK/message")"
done

# ---- the program that measures ------------------------------------------------------------------

export CMAKE_ARGS="-DTPGEN_CUDA_ON_CPU=$root/tests/cuda_on_cpu -DTPGEN_STAND_IN=$TOOLS/libcuda_on_cpu.a -DCMAKE_CXX_FLAGS=-O0 -DCMAKE_C_FLAGS=-O0"
"$TPGEN" --calibrate --target cuda -o "$machine" || fail "--calibrate: status $?"
# measures RANKS ARGUMENTS...
measures() {
  timeout 300 "$machine/run.sh" --short --ranks "$@" > "$WORK/log" 2>&1 || { tail "$WORK/log" && fail "the program that measures: status $?"; }
}
measures 2
[ "$failures" -ne 0 ] || makes measured "${of_two[@]}" -D "device=$machine/device.json"
if ci_cases && [ "$failures" -eq 0 ]; then
  measures 4 --devices-per-node 2 --output "$WORK/nodes.json"
  grep -q '"nodes": 2' "$WORK/nodes.json" || fail "no group is of two nodes"
  makes nodes "${debug[@]}" -D tp=2 -D dp=2 -D "device=$WORK/nodes.json"
  "$machine/run.sh" --short --ranks 3 --devices-per-node 2 > "$WORK/log" 2>&1 && fail "three ranks on nodes of two"
  grep -q 'each node must have as many ranks' "$WORK/log" || fail "three ranks on nodes of two: $(tail -n 3 "$WORK/log")"
  [ -e "$machine/device.json.new" ] && fail "half a file is left"
fi
finish "GPUs are measured, and steps simulated by their figures; a preset's figures give its steps"
