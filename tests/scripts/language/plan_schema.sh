#!/usr/bin/env bash
# plan.json conforms to plans/plan.schema.json: for some plans, on both targets; and the check detects a missing
# member, a new one, one of another type and another version.
. "$(dirname "$0")/../common.sh"

schema=plans/plan.schema.json
n=0
# fulfils PLAN ARGUMENTS...
fulfils() {
  for target in cpu cuda; do
    "$TPGEN" "$1" -o "$WORK/$n" --target $target "${@:2}" 2> "$WORK/notes" || fail "$1: tpgen ended with status $?"
    "$TOOLS/check_schema" $schema "$WORK/$n/plan.json" || fail "$*, $target: plan.json is not as the schema says"
    n=$((n + 1))
  done
}
fulfils plans/toy.lua
fulfils plans/toy.lua -D tp=3 -D dp=2
fulfils plans/llama3.lua -D tp=2 -D dp=2
fulfils plans/llama3.lua -D tp=2 -D async_tp=2
fulfils plans/reshard.lua
fulfils plans/generate.lua -D weight_dtype=int8
fulfils tests/equal/strided_rows.lua -D dp=4
fulfils tests/dump/streams.lua
fulfils tests/dump/async_tp.lua
fulfils tests/dump/turns.lua
grep -q '"dp": "S(0)\[1\]"' "$WORK/$((n - 1))/plan.json" || fail "plan.json does not tell which dimension of the mesh cuts first"
fulfils plans/gpt2.lua -D pp=2 -D tp=2
grep -q '"pipeline": {' "$WORK/$((n - 1))/plan.json" || fail "plan.json does not have the stages"
# Its step is that of plan.txt.
seconds=$(sed -n '/"simulated_step"/,/}/s/.*"seconds": *\([0-9.e-]*\).*/\1/p' "$WORK/$((n - 1))/plan.json")
[ "$(awk -v s="$seconds" 'BEGIN { printf "%.1f us", s * 1e6 }')" = "$(awk '/^  in all/ { print $3, $4; exit }' "$WORK/$((n - 1))/plan.txt")" ] ||
  fail "plan.json has a step of $seconds, and plan.txt another one"
fulfils plans/llama3.lua -D tp=2 -D dp=2 -D microbatches=2 --report
fulfils plans/gpt2.lua -D pp=2 -D tp=2 --report
grep -q '"actions": \[' "$WORK/$((n - 1))/plan.json" && grep -q '"timeline": ' "$WORK/$((n - 1))/plan_stage1.json" ||
  fail "plan.json with --report has no timeline"
rows=$n
fulfils plans/moe.lua -D dp=2 -D ep=2 -D bound=1.5
more fulfils plans/moe.lua -D dp=3 -D ep=3 -D batch=8 -D microbatches=2

# Rows by expert have the numbers of plan.txt.
for i in $rows $((rows + 1)); do
  sed -n '/^rows by expert/,/^$/p' "$WORK/$i/plan.txt" | sed 1d | grep -o ' [0-9,]\+ \+[0-9,]\+ \+[0-9,]\+$' | tr -d , | tr -s ' ' > "$WORK/$i.text"
  tr -d '\n' < "$WORK/$i/plan.json" | grep -o '"rows_by_expert": \[.*' | sed 's/"files": .*//' |
    grep -o '"in_balance": [0-9]*, *"room": [0-9]*, *"at_worst": [0-9]*' | sed 's/[^0-9 ]//g' | tr -s ' ' > "$WORK/$i.json"
  [ "$(wc -l < "$WORK/$i.text")" -ge 2 ] && diff <(sort "$WORK/$i.text") <(sort "$WORK/$i.json") ||
    fail "plan.json has other rows by expert than plan.txt"
done

# refused NAME SED [NUMBER]: the check must detect this change of the first plan.json, or of that one.
refused() {
  local of=${3:-0}
  sed "$2" "$WORK/$of/plan.json" > "$WORK/$1.json"
  ! cmp -s "$WORK/$of/plan.json" "$WORK/$1.json" || fail "$1: nothing is changed"
  ! "$TOOLS/check_schema" $schema "$WORK/$1.json" 2> "$WORK/$1.said" || fail "$1 is not seen"
  [ "$(wc -l < "$WORK/$1.said")" -ge 1 ] || fail "$1: no word"
}
refused missing '/"hash":/d'
refused new 's/"target": "cpu"/"target": "cpu", "mine": 1/'
refused type 's/"ranks": 2,/"ranks": "2",/'
refused version 's/"version": 1/"version": 2/'
refused kind 's/"all_reduce"/"all_rdeuce"/'
refused negative 's/"bytes": 400/"bytes": -400/'
refused stages '/"pipeline":/,/^  }/d' $((rows - 1))
refused room '/"at_worst":/d;s/\("room": [0-9]*\),/\1/' "$rows"
finish "$n plans fulfil the schema, and eight faults are seen"
