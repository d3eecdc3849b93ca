#!/usr/bin/env bash
# A step of the toy on two ranks of this machine, tpgen's (CPU, MPI) beside PyTorch's (CPU, gloo): in
# turn, several rounds, one thread for each rank; the medians and their ratio.
#   PYTHON   a python with torch   (python3)
#   TPGEN    the compiler          (build/tpgen)
#   ROUNDS   (5)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
TPGEN=${TPGEN:-$root/build/tpgen}
PYTHON=${PYTHON:-python3}
rounds=${ROUNDS:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$PYTHON" -c 'import torch' 2> /dev/null || { echo "toy.sh: $PYTHON has no torch; set PYTHON" >&2; exit 1; }

(cd "$root" && "$TPGEN" plans/toy.lua -o "$work/toy")
export OMP_NUM_THREADS=1
"$work/toy/run.sh" --steps 1 > /dev/null 2>&1
step_of() { sed -n 's/.*us_per_step: *\([0-9.]*\).*/\1/p'; }
median() { sort -n "$1" | awk '{ a[NR] = $1 } END { print (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'; }

echo "microseconds per step, 2 ranks"
echo "round       tpgen     PyTorch"
for ((i = 1; i <= rounds; i++)); do
  "$work/toy/run.sh" --steps 20000 --log-every 20000 | step_of >> "$work/tpgen"
  "$PYTHON" -m torch.distributed.run --standalone --nproc-per-node=2 "$here/toy_torch.py" 100 500 \
    2> "$work/errors" | step_of >> "$work/torch" || { cat "$work/errors" >&2; exit 1; }
  printf '%5d  %10s  %10s\n' "$i" "$(tail -n 1 "$work/tpgen")" "$(tail -n 1 "$work/torch")"
done
ours=$(median "$work/tpgen") theirs=$(median "$work/torch")
awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "median %10.2f  %10.2f   PyTorch / tpgen: %.0f\n", a, b, b / a }'
