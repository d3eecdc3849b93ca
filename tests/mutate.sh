#!/usr/bin/env bash
# 1,000 mutants of the toy plan (or $MUTANTS): tpgen takes or refuses each within 3 seconds, never
# crashes, and touches nothing outside its output. `build/tests/mutate ... N` runs mutant N again.
. "$(dirname "$0")/common.sh"

"$TOOLS/mutate" "$TPGEN" plans/toy.lua "$WORK" "${MUTANTS:-1000}" || fail "see above"
finish "no mutant did harm"
