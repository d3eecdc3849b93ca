#!/usr/bin/env bash
# tpgen --move: its output for people and for programs, its steps and bytes against the tables of facts, and its
# messages for invalid questions. Then plans/reshard.lua, which has the same moves: 8 ranks have the results of
# one.
. "$(dirname "$0")/../common.sh"
. tests/scripts/programs.sh

# ------------------------------------------------------------------------------------ for programs

# json QUESTION OPTIONS...: its answer in $WORK/json.
json() {
  local question=$1
  shift
  "$TPGEN" --move "$question" --json "$@" > "$WORK/json" 2> "$WORK/err" || {
    fail "$question: status $?: $(cat "$WORK/err")"
    return 1
  }
}
# numbers KEY: the numbers of that key for the whole program, one a line: bytes by rank, or the bound.
numbers() { sed -E "s/.*\\](,\"sent\":.*)$/\\1/; s/.*\"$1\":\\[?([0-9,]*).*/\\1/" "$WORK/json" | tr , '\n'; }
most() { numbers "$1" | sort -n | tail -n 1; }
total() { numbers "$1" | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; }
# steps: "all_gather over b: S(0) S(0) -> S(0) R", one a line.
steps() {
  sed 's/{"kind"/\n&/g' "$WORK/json" |
    sed -nE 's/^\{"kind":"([a-z_]*)","over":\[([^]]*)\],"shape":\[[0-9,]*\],"from":"([^"]*)","to":"([^"]*)".*/\1 over \2: \3 -> \4/p' | tr -d '"'
}

# Every move of the table: no byte beyond the lower bound, which is the table's; every byte that one rank sends,
# another receives. The greedy planner matches the table, and is never below the other.
n=0
while IFS=$'\t' read -r mesh src dst greedy _ _ _ _ _ bound; do
  [[ $mesh != '#'* ]] || continue
  n=$((n + 1))
  question="f32[16384,8192] on a=${mesh%x*},b=${mesh#*x}: $src -> $dst"
  json "$question" || continue
  [ "$(most received)" = "$bound" ] || fail "$question: $(most received) bytes received, $bound needed"
  [ "$(numbers bound)" = "$bound" ] || fail "$question: the bound is $bound, not $(numbers bound)"
  [ "$(total sent)" = "$(total received)" ] || fail "$question: $(total sent) sent, $(total received) received"
  [ "$(numbers sent | wc -l)" -eq 8 ] || fail "$question: not eight ranks"
  json "$question" --planner greedy || continue
  [ "$(most received)" = "$greedy" ] || fail "$question: greedily $(most received) received, not $greedy"
done < "$golden/redistribute_bytes.tsv"
[ "$n" -ge 40 ] || fail "only $n moves"

# Greedy steps are the table's: "0:S(0)->R ; 1:R->S(0)".
greedy_steps() {
  steps | sed -E 's/^[a-z_]* over //' | awk -F '[:>-]+ *' '
    { split($2, from, " "); split($3, to, " "); d = index("abc", $1)
      printf "%s%d:%s->%s", (NR > 1 ? " ; " : ""), d - 1, from[d], to[d] }
    END { if (!NR) printf "none" }'
}
names=(a b c)
m=0
while IFS=$'\t' read -r mesh shape src dst plan _; do
  [[ $mesh != '#'* ]] || continue
  m=$((m + 1))
  [ $((m % 5)) -eq 0 ] || continue
  on='' i=0
  for size in ${mesh//x/ }; do
    on+=${on:+,}${names[i]}=$size
    i=$((i + 1))
  done
  question="f32[${shape//x/,}] on $on: $src -> $dst"
  json "$question" --planner greedy || continue
  got=$(greedy_steps | sed 's/P(sum)/P/g')
  [ "$got" = "$plan" ] || fail "$question: $got, expected $plan"
done < "$golden/redistribute_plans.tsv"
[ "$m" -ge 40 ] || fail "only $m plans"

# Along a mesh dimension of one rank nothing is sharded; an empty tensor has no bytes; the cut order is printed.
json "f32[6,4] on a=1,b=2: S(0) S(1) -> S(1) S(1)" && [ -z "$(steps)" ] || fail "one rank moves something"
json "f32[0,4] on a=2: S(0) -> R" && [ "$(total received)" = 0 ] || fail "an empty tensor has bytes"
json "f32[8] on a=2,b=2: S(0)[1] S(0)[0] -> S(0) S(0)" || true
[ "$(steps)" = "permute over a,b: S(0)[1] S(0)[0] -> S(0) S(0)" ] || fail "from one order to another: $(steps)"
[ "$(numbers received | tr '\n' ' ')" = "0 8 8 0 " ] || fail "from one order to another: $(numbers received)"
# A strided shard is moved like a tensor with that dimension split.
json "f32[24,5] on a=2,b=3: S(0/4) S(1) -> R S(1)" || true
[ "$(steps)" = "all_gather over a: S(1) S(2) -> R S(2)" ] || fail "a strided shard: $(steps)"
grep -qF '"shape":[4,6,5]' "$WORK/json" || fail "a strided shard: $(cat "$WORK/json")"
[ "$(most received)" = 96 ] && [ "$(numbers bound)" = 96 ] || fail "a strided shard: $(most received) bytes"
# A slow link changes the steps; a greedy planner does not take it into account.
question="f32[4096,4096] on a=2,b=4: P P -> R R"
json "$question" && usual=$(steps)
json "$question" --link a=1e8,1 && [ "$(steps)" != "$usual" ] || fail "a slow link changes nothing"

# -------------------------------------------------------------------------------------- for people

"$TPGEN" --move 'f32[16384,8192] on a=2,b=4: S(0) S(0) -> S(1) S(1)' > "$WORK/text"
for words in 'f32[16384, 8192], 536,870,912 bytes, on a=2 b=4: S(0) S(0) -> S(1) S(1)' ' over a, b ' \
  '0-7' '58,720,256' 'lower bound, bytes received: 58,720,256'; do
  grep -qF -- "$words" "$WORK/text" || fail "the text says nothing of '$words': $(cat "$WORK/text")"
done
sed '0,/^[$] build\/tpgen --move/d; /^```/,$d' docs/layouts.md | diff - "$WORK/text" || fail "docs/layouts.md shows another text"

# ------------------------------------------------------------------- what is none: one line, status 2

# refused QUESTION WORDS OPTIONS...
refused() {
  local question=$1 words=$2 status=0
  shift 2
  "$TPGEN" --move "$question" "$@" > "$WORK/out" 2> "$WORK/err" || status=$?
  [ $status -eq 2 ] || fail "$question: status $status instead of 2"
  [ ! -s "$WORK/out" ] || fail "$question: prints something"
  [ "$(wc -l < "$WORK/err")" -eq 1 ] || fail "$question: not one line: $(cat "$WORK/err")"
  grep -qF -- "$words" "$WORK/err" || fail "$question: says nothing of '$words': $(cat "$WORK/err")"
  if LC_ALL=C grep -q '[^ -~]' "$WORK/err"; then fail "$question: its message would move a terminal"; fi
}
refused '' 'character 1, at the end: a type'
refused 'f64[2] on a=2: R -> R' "character 1, at 'f64[2] on a=2: R'...: a type"
refused 'f32 on a=2: R -> R' 'character 5'
refused 'f32[2' 'after a size comes'
refused 'f32[-2] on a=2: R -> R' 'character 5'
refused 'f32[99999999999999999999] on a=2: R -> R' 'from 0 to 2^62'
refused 'f32[4611686018427387904] on a=2: R -> R' 'bytes'
refused 'f32[0,4611686018427387904,4611686018427387904] on a=2: R -> R' 'bytes'
refused 'f32[1,2,3,4,5,6,7,8,9] on a=2: R -> R' 'at most 8 dimensions'
refused 'f32[2] a=2: R -> R' 'character 8'
refused 'f32[2] on a=0: R -> R' 'at least 1'
refused 'f32[2] on a=99999999: R -> R' '1024 ranks'
refused 'f32[2] on a=64,b=64: R R -> R R' '4096 ranks'
refused 'f32[2] on a=2,a=2: R R -> R R' 'two dimensions of this name'
refused 'f32[2] on a=1,b=1,c=1,d=1,e=1,f=1,g=1: R -> R' 'at most 6 dimensions'
refused 'f32[2] on a=2,b=2: R -> R R' '1 placement'
refused 'f32[2] on a=2,b=2: R R -> R R R' 'character 31'
refused 'f32[2] on a=2: Q -> R' "character 16, at 'Q -> R'"
refused 'f32[2] on a=2: S(1) -> R' 'dimension'
refused 'f32[] on a=2: S(0) -> R' 'cannot be cut'
refused 'f32[2] on a=2,b=2: S(0)[1] S(0)[1] -> R R' 'in the same order'
refused 'f32[2] on a=2,b=2: S(0)[1] R -> R R' 'in order 1'
refused 'f32[2] on a=2,b=2: S(0)[2] R -> R R' 'orders count from 0 to 1'
refused 'f32[2] on a=2,b=2: P(sum) P(max) -> R R' 'one reduction'
refused 'f32[2] on a=2: P(avg) -> R' 'sum, max, min'
refused 'bool[2] on a=2: P -> R' 'never pending'
refused 'f32[6] on a=2: S(0/4) -> R' 'equal parts'
refused 'f32[4] on a=2: S(0/4) -> R' 'equal parts'
refused 'f32[0] on a=2: S(0/2) -> R' 'equal parts'
refused 'f32[12] on a=2,b=2: S(0/4) S(0/6) -> R R' 'divide each other'
refused $'f32[2] on a=2: \xff\n\e[0m -> R' 'character 16'
refused "$(printf 'f32[2] on a=2: %0100000d' 0)" 'character 16'
good='f32[2] on a=2: R -> S(0)'
refused "$good" 'no such dimension' --link b=1e9
refused "$good" 'write --link' --link a
refused "$good" 'bandwidth' --link a=0
refused "$good" 'bandwidth' --link a=25
refused "$good" 'bandwidth' --link a=nan
refused "$good" 'latency' --link a=1e9,-1
refused "$good" 'the planners are' --planner quickest
refused "$good" 'takes no plan' plans/toy.lua

# ------------------------------------------------------------------------------ plans/reshard.lua

# reshard NAME DEFINITIONS...: generated and run, in $WORK/NAME.
reshard() {
  local to=$WORK/$1
  shift
  "$TPGEN" plans/reshard.lua -o "$to" "${@/#/-D}" || { fail "$to: tpgen ended with status $?"; return 1; }
  make_ranks "$to" plain || { fail "$to does not compile"; return 1; }
  start "$to" "$to" || { fail "$to ended with status $?"; return 1; }
}
make_runtime plain > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime does not compile"; }
for shape in "rows=64 columns=48" "rows=37 columns=13"; do
  read -ra sizes <<< "$shape"
  reshard one a=1 b=1 "${sizes[@]}" || continue
  for planner in fastest greedy; do
    reshard $planner a=2 b=4 planner=$planner "${sizes[@]}" || continue
    "$TOOLS/compare_safetensors" "$WORK/one.saved/outputs.safetensors" \
      "$WORK/$planner.saved/outputs.safetensors" 2e-5 || fail "reshard, $shape, $planner: other outputs"
  done
done
# The plan's choice of planner is respected.
for planner in fastest greedy; do
  "$TPGEN" plans/reshard.lua -o "$WORK/large" -D rows=16384 -D columns=8192 -D planner=$planner
  cp "$WORK/large/plan.txt" "$WORK/$planner.txt"
done
grep -q 'lower bound' "$WORK/fastest.txt" && grep -q '58,720,256 .*58,720,256 .*58,720,256' "$WORK/fastest.txt" ||
  fail "plan.txt does not tell what the first move takes"
! grep -qw exchange "$WORK/greedy.txt" || fail "DTensor's planner knows no exchange"
finish "$n moves at their bounds; 8 ranks leave what one rank does"
