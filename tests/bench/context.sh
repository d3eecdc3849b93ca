#!/usr/bin/env bash
# Attention of one sequence, causal, forward and backward, on this machine: tpgen's methods on two ranks beside PyTorch's
# ring over gloo, and both beside one process. Medians of steps' seconds, in turn; of several steps without the first.
#   SEQ (32768)   HEADS (8)   SIZE (64)   ROUNDS (3)   STEPS (1), of a round
#   WAYS    which: one ring balanced gather ulysses torch_one torch_ring
#   BUILT   a folder for the programs, which a later run finds there; with ROUNDS=0 it only builds
set -euo pipefail
shopt -s extglob
. "$(dirname "$0")/common.sh"
seq=${SEQ:-$(short_or 256 32768)} heads=${HEADS:-8} size=${SIZE:-64} threads=$(nproc)
rounds=${ROUNDS:-$(short_or 1 3)} steps=${STEPS:-1} ways=${WAYS:-one ring balanced gather ulysses torch_one torch_ring}
[[ $ways != *torch* ]] || has_modules torch || ways=${ways//torch_*([a-z])/}
built=${BUILT:-$work/built}

# definitions WAY: of tests/bench/context.lua.
definitions() {
  case $1 in
  one) echo cp=1 ;;
  ring) echo cp=2 ;;
  balanced) echo cp=2 balance=headtail ;;
  gather) echo cp=2 context=allgather ;;
  ulysses) echo cp=2 context=ulysses ;;
  esac
}

# run WAY STEPS: seconds of each step are added to $work/WAY.
run() {
  local way=$1 n=$2 each=$threads log=$work/$1.log
  case $way in
  torch_one) "$PYTHON" "$here/context_torch.py" "$n" "$seq" "$heads" "$size" > "$log" 2> "$log.err" || return ;;
  torch_ring)
    "$PYTHON" -m torch.distributed.run --standalone --nproc-per-node=2 "$here/context_torch.py" "$n" "$seq" "$heads" "$size" \
      > "$log" 2> "$log.err" || return
    ;;
  *)
    [ "$way" = one ] || each=$(((threads + 1) / 2))
    OMP_NUM_THREADS=$each "$built/$way/run.sh" --steps "$n" --metrics "$log" > "$log.err" 2>&1 || return
    ;;
  esac
  sed -n 's/.*"\(seconds\|step_seconds\)": *\([-+.e0-9]*\).*/\2/p' "$log" | tail -n +$((n > 1 ? 2 : 1)) >> "$work/$way"
}

for way in $ways; do
  given=()
  for d in $(definitions "$way"); do given+=(-D "$d"); done
  [ ${#given[@]} -gt 0 ] || continue
  (cd "$root" && "$TPGEN" tests/bench/context.lua -o "$built/$way" -D seq="$seq" -D heads="$heads" -D size="$size" "${given[@]}")
  "$built/$way/run.sh" --steps 0 > "$work/build.log" 2>&1 || { tail "$work/build.log" >&2; exit 1; }
done
for ((round = 0; round < rounds; round++)); do
  for way in $ways; do run "$way" "$steps" || { tail "$work/$way.log.err" >&2; exit 1; }; done
done
[ "$rounds" -gt 0 ] || exit 0
for way in $ways; do
  printf '%-12s %8.3f s\n' "$way" "$(median "$work/$way")"
  [ ! -e "$built/$way/plan.json" ] || tell_memory "$built/$way" "$work/$way.log"
done
