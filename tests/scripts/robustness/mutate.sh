#!/usr/bin/env bash
# 250 mutants of the toy plan (CASES=all: 1,000; or $MUTANTS), and some hundred of plans that call every function:
# tpgen takes or refuses each within 3 seconds, never crashes, and touches nothing outside its output.
# `build/tests/mutate ... N` runs mutant N again.
. "$(dirname "$0")/../common.sh"

mutants=${MUTANTS:-$(all_cases && echo 1000 || echo 250)}
"$TOOLS/mutate" "$TPGEN" plans/toy.lua "$WORK" "$mutants" || fail "see above"
for plan in tests/functions/shapes.lua tests/equal/transformer.lua tests/equal/training.lua; do
  "$TOOLS/mutate" "$TPGEN" $plan "$WORK" $((mutants / 4)) || fail "$plan: see above"
done
finish "no mutant did harm"
