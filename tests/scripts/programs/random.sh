#!/usr/bin/env bash
# Random plans, for both targets: each becomes a program, or is refused for its contents, within 3 seconds and
# 512 MiB. The checks after the passes find no fault. (equal.sh runs some.)
#   RANDOM_PLANS=1000   so many, not 50 (CASES=all: 120; SOAK=1: 1,000)
#   RANDOM_SEED=1000    the first of them
. "$(dirname "$0")/../common.sh"

count=${RANDOM_PLANS:-${SOAK:+1000}}
count=${count:-$(more echo 120)}
"$TOOLS/random_run" "$TPGEN" "$TOOLS/random_plan" "$random_refusals" "$WORK" \
  "${RANDOM_SEED:-1}" "${count:-50}" | tee "$WORK/log" ||
  fail "see above"
finish "$(tail -n 1 "$WORK/log")"
