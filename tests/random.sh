#!/usr/bin/env bash
# Plans made at random, for both targets: each becomes a program, or is refused for what it asks. The checks
# behind the passes find nothing wrong in any. (equal.sh runs some.)
#   RANDOM_PLANS=1000   so many, not 200 (SOAK=1: not 1,000)
#   RANDOM_SEED=1000    the first of them
. "$(dirname "$0")/common.sh"

refusal='error: .* cannot be \(sharded over\|done: make it whole first\)'
seed=${RANDOM_SEED:-1} count=${RANDOM_PLANS:-${SOAK:+1000}} refused=0 programs=0
count=${count:-200}
for ((i = seed; i < seed + count; i++)); do
  "$TOOLS/random_plan" $i > "$WORK/plan.lua"
  while read -ra mesh; do
    for target in cpu cuda; do
      if "$TPGEN" "$WORK/plan.lua" "${mesh[@]/#/-D}" --target $target -o "$WORK/out" > "$WORK/log" 2>&1; then
        programs=$((programs + 1))
      elif grep -q "$refusal" "$WORK/log"; then
        refused=$((refused + 1))
      else
        fail "random_plan $i ${mesh[*]} for $target: $(tail -n 1 "$WORK/log")"
      fi
      rm -rf "$WORK/out"
    done
  done < <(sed -n 's/^-- mesh: *//p' "$WORK/plan.lua")
done
[ $((4 * refused)) -le $programs ] || fail "$refused are refused: too many"
finish "$programs programs, $refused refused"
