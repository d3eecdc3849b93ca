#!/usr/bin/env bash
# Attention of one sequence, causal, forward and backward, on this machine: tpgen's ring on two ranks beside PyTorch's
# over gloo, and both beside one process. Medians of the steps' seconds, without the first.
#   PYTHON  a python with torch (python3)   TPGEN  the compiler (build/tpgen)
#   SEQ (32768)   HEADS (8)   SIZE (64)   STEPS (3)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
TPGEN=${TPGEN:-$root/build/tpgen} PYTHON=${PYTHON:-python3} seq=${SEQ:-32768} heads=${HEADS:-8} size=${SIZE:-64} steps=${STEPS:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
median() { sed -n 's/.*"\(seconds\|step_seconds\)": *\([-+.e0-9]*\).*/\2/p' "$1" | tail -n +2 | sort -g | awk '{ a[NR] = $1 } END { print (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'; }
tell() { printf '%-34s %8.3f s\n' "$1" "$(median "$2")"; }
threads=$(nproc)
for ways in "one:cp=1" "ring:cp=2" "balanced:cp=2 balance=headtail" "gather:cp=2 context=allgather" "ulysses:cp=2 context=ulysses"; do
  name=${ways%%:*} given=()
  for d in ${ways#*:}; do given+=(-D "$d"); done
  (cd "$root" && "$TPGEN" tests/bench/context.lua -o "$work/$name" -D seq="$seq" -D heads="$heads" -D size="$size" "${given[@]}")
  each=$threads
  [ "$name" = one ] || each=$(((threads + 1) / 2))
  OMP_NUM_THREADS=$each "$work/$name/run.sh" --steps "$steps" --metrics "$work/$name.jsonl" > "$work/$name.log" 2>&1 || { tail "$work/$name.log" >&2; exit 1; }
  tell "tpgen, $name" "$work/$name.jsonl"
done
"$PYTHON" "$here/context_torch.py" "$steps" "$seq" "$heads" "$size" > "$work/torch1" 2> "$work/torch.log"
tell "PyTorch, one process" "$work/torch1"
"$PYTHON" -m torch.distributed.run --standalone --nproc-per-node=2 "$here/context_torch.py" "$steps" "$seq" "$heads" "$size" > "$work/torch2" 2> "$work/torch.log" ||
  { tail "$work/torch.log" >&2; exit 1; }
tell "PyTorch's ring over gloo, 2 ranks" "$work/torch2"
