#!/usr/bin/env bash
# A step of the toy on two ranks of this machine, tpgen's (CPU, MPI) beside PyTorch's (CPU, gloo): in
# turn, several rounds, one thread for each rank; the medians and their ratio.
#   ROUNDS   (5)
set -euo pipefail
. "$(dirname "$0")/common.sh"
rounds=${ROUNDS:-$(short_or 1 5)} steps=$(short_or 100 20000)
has_modules torch && peer=yes || peer=

(cd "$root" && "$TPGEN" plans/toy.lua -o "$work/toy")
export OMP_NUM_THREADS=1
"$work/toy/run.sh" --steps 1 > /dev/null 2>&1
step_of() { sed -n 's/.*us_per_step: *\([0-9.]*\).*/\1/p'; }

echo "microseconds per step, 2 ranks"
echo "round       tpgen     PyTorch"
for ((i = 1; i <= rounds; i++)); do
  "$work/toy/run.sh" --steps "$steps" --log-every "$steps" | step_of >> "$work/tpgen"
  [ -z "$peer" ] || "$PYTHON" -m torch.distributed.run --standalone --nproc-per-node=2 "$here/toy_torch.py" 100 500 \
    2> "$work/errors" | step_of >> "$work/torch" || { cat "$work/errors" >&2; exit 1; }
  printf '%5d  %10s  %10s\n' "$i" "$(tail -n 1 "$work/tpgen")" "$([ -z "$peer" ] || tail -n 1 "$work/torch")"
done
[ -n "$peer" ] || exit 0
ours=$(median "$work/tpgen") theirs=$(median "$work/torch")
awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "median %10.2f  %10.2f   PyTorch / tpgen: %.0f\n", a, b, b / a }'
