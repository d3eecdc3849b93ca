#!/usr/bin/env bash
# Pairs of files. dump/NAME.lua with NAME.PASS.expected: the output of `tpgen --dump=PASS`. passes/NAME.PASS.in
# with NAME.PASS.expected: a dump before the pass, and its operations after the pass, with the lines of new
# values. NAME.plan.txt: plan.txt of the CUDA target. errors/NAME.lua with NAME.err: the message for an invalid
# plan, with status 1 and no output.
#
# `tests/scripts/language/pairs.sh --update` rewrites the expected files; a new dump pair begins with an empty file.
. "$(dirname "$0")/../common.sh"

update=${1:-}
pairs=0
# compare EXPECTED GOT
compare() {
  pairs=$((pairs + 1))
  if [ "$update" = --update ]; then
    cp "$2" "$1"
  else
    diff -u "$1" "$2" || fail "$1 differs"
  fi
}

for expected in tests/dump/*.expected; do
  stem=${expected%.expected}
  pass=${stem##*.}
  plan=${stem%.*}.lua
  read -ra args <<< "$(plan_args "$plan")"
  "$TPGEN" "$plan" "${args[@]}" "--dump=$pass" > "$WORK/got" 2>&1 ||
    fail "$plan: --dump=$pass ended with status $?"
  compare "$expected" "$WORK/got"
done

for in in tests/passes/*.in; do
  stem=${in%.in}
  from=$(sed -n 's/^after \([a-z_]*\) .*/\1/p' "$in")
  "$TPGEN" "--from=$from" "$in" "--dump=${stem##*.}" > "$WORK/dump" 2> "$WORK/message" ||
    fail "$in: status $?: $(cat "$WORK/message")"
  awk 'NR == FNR { was[$0]; next } /^[a-z_]* {$/ { on = 1 } on || (/^v[0-9]/ && !($0 in was))' "$in" "$WORK/dump" > "$WORK/got"
  compare "$stem.expected" "$WORK/got"
done

for expected in tests/dump/*.plan.txt; do
  plan=${expected%.plan.txt}.lua
  read -ra args <<< "$(plan_args "$plan")"
  "$TPGEN" "$plan" "${args[@]}" --target cuda -o "$WORK/cuda" || fail "$plan: status $?"
  compare "$expected" "$WORK/cuda/plan.txt"
done

for plan in tests/errors/*.lua; do
  read -ra args <<< "$(plan_args "$plan")"
  status=0
  "$TPGEN" "$plan" "${args[@]}" -o "$WORK/out" > "$WORK/stdout" 2> "$WORK/got" || status=$?
  [ $status -eq 1 ] || fail "$plan: status $status instead of 1"
  [ ! -s "$WORK/stdout" ] || fail "$plan: wrote to standard output"
  [ ! -e "$WORK/out" ] || fail "$plan: left output behind"
  rm -rf "$WORK/out"
  compare "${plan%.lua}.err" "$WORK/got"
done
finish "$pairs pairs"
