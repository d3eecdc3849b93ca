#!/usr/bin/env bash
# A layer of experts, forward and backward in float32, on this machine: tpgen's beside Hugging Face's Mixtral block in
# PyTorch, by each of its implementations for CPUs, on as many threads, in turn; and its products alone, by PyTorch's
# library, of rows in balance. The least of the steps' seconds, and the ratios: the last line is the most that any
# program with these products can gain.
#   EXPERTS (8)   TOP_K (2)   DIM (512)   HIDDEN (1792)   TOKENS (4096)   ROUNDS (3)   STEPS (4), of a round
#   WAYS    which implementations (eager grouped_mm); batched_mm copies the weights of each place, 90 GB at these sizes
#   ONE_THREAD=1  processor seconds of a step instead, on one thread: for machines on which other programs run, too
set -euo pipefail
. "$(dirname "$0")/common.sh"
experts=${EXPERTS:-8} top_k=${TOP_K:-2} dim=${DIM:-$(short_or 64 512)} hidden=${HIDDEN:-$(short_or 96 1792)} tokens=${TOKENS:-$(short_or 64 4096)}
rounds=${ROUNDS:-$(short_or 1 3)} steps=${STEPS:-$(short_or 2 4)} ways=${WAYS:-eager grouped_mm} products=products
has_modules torch && has_modules transformers || ways='' products=''
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
[ -z "${ONE_THREAD:-}" ] || OMP_NUM_THREADS=1

# run WAY [STEPS]: seconds of each step are added to $work/WAY.
run() {
  local log=$work/$1.log steps=${2:-$steps}
  if [ "$1" = tpgen ]; then
    "$work/program/run.sh" --steps "$steps" --metrics "$log" > "$log.err" 2>&1
  else
    "$PYTHON" "$here/moe_torch.py" "$1" "$steps" "$experts" "$top_k" "$dim" "$hidden" "$tokens" > "$log" 2> "$log.err"
  fi || { tail "$log.err" >&2; exit 1; }
  sed -n 's/.*"seconds": *\([-+.e0-9]*\).*/\1/p' "$log" >> "$work/$1"
}

(cd "$root" && "$TPGEN" tests/bench/moe.lua -o "$work/program" -D experts="$experts" -D top_k="$top_k" -D dim="$dim" \
  -D hidden="$hidden" -D tokens="$tokens")
"$work/program/run.sh" --steps 0 > "$work/build.log" 2>&1 || { tail "$work/build.log" >&2; exit 1; }
# spent WAY STEPS: the processor seconds of a run.
spent() { (TIMEFORMAT='%U %S'; { time run "$@"; } 2>&1) | awk '{ print $1 + $2 }'; }
# step_of WAY: the processor seconds of a step are added to $work/WAY: what a run with so many more takes, but for the first one's.
step_of() {
  local one all
  one=$(spent "$1" 1) all=$(spent "$1" $((steps + 1)))
  awk -v one="$one" -v all="$all" -v steps="$steps" 'BEGIN { print (all - one) / steps }' >> "$work/$1.spent"
}
measure=run in=
[ -z "${ONE_THREAD:-}" ] || measure=step_of in=.spent
for ((round = 0; round < rounds; round++)); do
  for way in tpgen $ways $products; do $measure "$way"; done
done
for way in tpgen $products $ways; do echo "$way $(sort -g "$work/$way$in" | head -n 1)"; done | awk '
  { least[$1] = $2; printf "%-12s %8.3f s\n", $1, $2 }
  $1 != "tpgen" && $1 != "products" && (!best || $2 < best) { best = $2 }
  END {
    if (!best) exit
    printf "PyTorch, its best, over tpgen: %.2f; products over tpgen: %.2f\n", best / least["tpgen"], least["products"] / least["tpgen"]
    printf "PyTorch, its best, over products: %.2f\n", best / least["products"]
  }'
tell_memory "$work/program" "$work/tpgen.log"
