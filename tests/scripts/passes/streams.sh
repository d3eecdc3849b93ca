#!/usr/bin/env bash
# Programs run as CUDA on the stand-in, which follows what every kernel, product, copy and collective reads and
# writes: no byte is touched on two streams that no event and no wait orders, in a first step and in two that
# are captured as graphs. They are two plans of tests/equal, and plans made at random, of which those are
# taken that have collectives on streams of their own.
#   STREAMS_RANDOM=100   so many plans made at random, not 6 (SOAK=1: not 300)
#   STREAMS_SEED=1000    the first of them
#   STREAMS_LINES=5000   of those whose steps have fewer lines, not 900 (SOAK=1: not 3,000)
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"

count=${STREAMS_RANDOM:-${SOAK:+300}} seed=${STREAMS_SEED:-1} longest=${STREAMS_LINES:-${SOAK:+3000}}
count=${count:-6} longest=${longest:-900}
watched=(-fsanitize=thread)
patience=200

# run NAME: builds the program in $WORK/NAME, and runs it.
run() {
  local to=$WORK/$1
  make_ranks "$to" cuda > "$to.log" 2>&1 || { fail "$1 does not compile"; tail -n 5 "$to.log"; return; }
  start "$to" "$to" --steps 3 --graph > "$to.log" || { fail "$1: it ended with status $?"; cat "$to.log"; return; }
  rm -rf "$to" "$to".{saved,jsonl,losses,out}
}

# steps NAME PATTERN: how many lines of its steps are such.
steps() { cat "$WORK/$1"/step*.cu | grep -c "$2" || true; }

# add PLAN NAME MESH...: the plan's program on this mesh, unless it is refused, too long or has next to nothing
# on other streams.
programs=0 behind=0
add() {
  local plan=$1 name=$2 to=$WORK/$2
  shift 2
  if ! "$TPGEN" "$plan" "${@/#/-D}" --target cuda -o "$to" > "$to.log" 2>&1; then
    is_random_refusal "$to.log" || fail "$name: $(tail -n 1 "$to.log")"
    return
  fi
  if [ "$(steps "$name" '^ *end_on(')" -ge 2 ] && [ "$(steps "$name" .)" -lt "$longest" ]; then
    programs=$((programs + 1)) behind=$((behind + $(steps "$name" '^ *begin_behind(')))
    beside "$to.said" run "$name"
  else
    rm -rf "$to"
  fi
}

make_runtime cuda > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime does not compile"; }
longest_random=$longest longest=5000
add tests/equal/chain.lua chain dp=2 tp=2
add tests/equal/copies.lua copies copies=2 dp=3
[ $programs -eq 2 ] && [ $behind -gt 2 ] || fail "chain and copies: no collective begins behind another"
longest=$longest_random
for ((i = seed; programs < count + 2 && i < seed + 40 * count; i++)); do
  "$TOOLS/random_plan" $i 4 > "$WORK/random$i.lua"
  read -ra mesh < <(sed -n 's/^-- mesh: *//p' "$WORK/random$i.lua")
  add "$WORK/random$i.lua" "random$i" "${mesh[@]}"
done
all_are_done
cat "$WORK"/*.said
[ $programs -eq $((count + 2)) ] || fail "only $programs programs have collectives on streams of their own"
finish "$programs programs, in which $behind collectives begin behind others"
