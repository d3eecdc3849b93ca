#!/usr/bin/env bash
# 40 mutants (or $MUTANTS) of the dump after each pass, for two plans, and for one with a pipeline: tpgen takes or
# refuses each with one line, and never crashes.
# `build/tests/mutate_dump TPGEN DUMP DIRECTORY COUNT N` runs mutant N again.
. "$(dirname "$0")/../common.sh"

passes=$("$TPGEN" --help | sed -n '/^  --dump=PASS/,/--explain/p' | sed '1d;$d')
number=0
for plan in "tests/dump/layers.lua -D dp=2 -D tp=2" "tests/equal/data.lua -D how=shard -D dp=2 --target cuda" \
  "tests/plans/pipeline/plan.lua -D schedule=interleaved_zero_bubble"; do
  number=$((number + 1))
  for pass in $passes; do
    "$TPGEN" $plan --dump="$pass" > "$WORK/$number.$pass" || fail "$plan: --dump=$pass"
    "$TOOLS/mutate_dump" "$TPGEN" "$WORK/$number.$pass" "$WORK" "${MUTANTS:-40}" > "$WORK/log" || fail "$(cat "$WORK/log")"
  done
done
finish "no mutant did harm"
