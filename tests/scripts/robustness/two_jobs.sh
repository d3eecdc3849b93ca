#!/usr/bin/env bash
# Two jobs save in one folder and are killed at random: every file that is ever named model.safetensors is
# whole, and stays a state of one of them.
#   refused   the second one ends at its start, as long as the first one lives, and has the folder then
#   unlocked  on a file system without locks the first one ends at its next save
#   late      its ranks are killed but for one that is stopped; that one goes on beside the next job
#   waking    without locks a job is stopped, and wakes up when the next one has the folder
#   SOAK=1    200 rounds, not 8; TWO_JOBS_ROUNDS: so many; TWO_JOBS_SEED: others
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
rounds=8
[ "${SOAK:-}" != 1 ] || rounds=200
rounds=${TWO_JOBS_ROUNDS:-$rounds}
RANDOM=${TWO_JOBS_SEED:-1}

make_runtime plain && "$TPGEN" tests/plans/resume/tiny.lua -o "$WORK/tiny" -D tp=2 && make_ranks "$WORK/tiny" plain &&
  gcc -O1 -D_GNU_SOURCE -shared -fPIC -o "$WORK/two_jobs.so" tests/tools/two_jobs.c -ldl ||
  { fail "it does not compile"; exit 1; }
head -c 700 README.md > "$WORK/one.txt"
head -c 900 LICENSE > "$WORK/two.txt"
mkdir "$WORK/kept" "$WORK/right"

doze() { read -rt "$1" <> <(:) || true; }
doze_some() { doze "0.$(printf %03d $((RANDOM % $1)))"; }
# begin NAME LOCKS: a job on NAME.txt, in a session of its own, whose number is in $session; what it says is in
# NAME.out, and its status in NAME.status. LOCKS: yes, or what the machine without them is called.
begin() {
  local name=$1 locks=() arguments=(--data "$WORK/$1.txt" --steps 60 --save "$into" --overwrite --save-every 1 --deadline 20)
  [ "$2" = yes ] || locks=("NO_LOCKS=$2")
  rm -f "$WORK/$name.status"
  session=$(setsid bash -c 'status=0; "$@" > "$0.out" 2>&1 < /dev/null || status=$?; echo $status > "$0.status"' \
    "$WORK/$name" env LD_PRELOAD="$WORK/two_jobs.so" KEPT="$kept" "${locks[@]}" "${launch[@]}" \
    -n 1 "$WORK/tiny/rank0" "${arguments[@]}" : -n 1 "$WORK/tiny/rank1" "${arguments[@]}" > /dev/null & echo $!)
}
# Until the job of that name has ended, or is in the folder.
ended() {
  local i
  for ((i = 0; i < 6000; i++)); do
    [ ! -s "$WORK/$1.status" ] || { read -r status < "$WORK/$1.status"; return 0; }
    doze 0.01
  done
  fail "$1 does not end: $(tail -n 1 "$WORK/$1.out")"
  status=none
}
saving() {
  local i
  for ((i = 0; i < 3000; i++)); do
    [ ! -e "$into/model.safetensors" ] || return 0
    doze 0.01
  done
  fail "nothing is saved: $(cat "$WORK"/{one,two}.out)"
}
end_session() {
  pkill -KILL -s "$1" || true
  while pgrep -s "$1" > /dev/null; do doze 0.01; done
}
says() { grep -qF -- "$2" "$WORK/$1.out" || fail "$kind: $1 does not say '$2': $(tail -n 2 "$WORK/$1.out")"; }
is_done() { ended "$1" && [ "$status" = 0 ] || fail "$kind: $1: status $status: $(tail -n 2 "$WORK/$1.out")"; }
is_ended() { ended "$1" && [ "$status" != 0 ] || fail "$kind: $1 goes on beside the other job"; }

refused() {
  begin one yes
  local first=$session
  saving
  begin two yes
  if [ ! -s "$WORK/one.status" ]; then
    ended two
    [ "$status" = 0 ] || says two "another job saves here: process"
    ! grep -q '^step: ' "$WORK/two.out" || [ -s "$WORK/one.status" ] || fail "two trains beside one"
  fi
  doze_some 100
  end_session "$first"
  begin two yes
  is_done two
}
unlocked() {
  begin one here
  saving
  local first=$session
  doze_some 100
  begin two elsewhere
  ended one
  [ "$status" = 0 ] || says one "another job has taken this folder"
  ((RANDOM % 2)) && is_done two || { doze_some 200; end_session "$session"; }
  end_session "$first"
}
# stop RANK of the job in that session
stop() { stopped=$(pgrep -s "$1" -x "rank$2") && kill -STOP "$stopped"; }
late() {
  begin one yes
  local first=$session other
  saving
  doze_some 100
  stop "$first" 1 || return 0 # it has ended
  for other in $(pgrep -s "$first"); do
    [ "$other" = "$stopped" ] || kill -KILL "$other" 2> /dev/null || true
  done
  begin two yes
  doze_some 900
  kill -CONT "$stopped" 2> /dev/null || true
  is_done two
  end_session "$first"
}
waking() {
  begin one here
  local first=$session
  saving
  doze_some 100
  stop "$first" $((RANDOM % 2)) || return 0
  begin two elsewhere
  is_done two
  kill -CONT "$stopped"
  ended one
  [ "$status" = 0 ] || says one "another job has taken this folder"
  end_session "$first"
}

# What each of the two saves when it is alone.
kept=$WORK/right
for name in one two; do
  into=$WORK/alone.$name
  begin $name yes
  kind=alone is_done $name
done
sha256sum "$WORK"/right/* | cut -d ' ' -f 1 | sort -u > "$WORK/states"
[ "$(wc -l < "$WORK/states")" -eq 120 ] || fail "the two have $(wc -l < "$WORK/states") states"

kept=$WORK/kept seen=0
kinds=(refused unlocked late waking)
for ((round = 0; round < rounds; round++)); do
  kind=${kinds[round % 4]}
  into=$WORK/folder.$round
  "$kind"
  sha256sum "$kept"/* "$into/model.safetensors" | cut -d ' ' -f 1 | sort > "$WORK/found"
  seen=$((seen + $(wc -l < "$WORK/found")))
  [ -z "$(comm -23 <(sort -u "$WORK/found") "$WORK/states")" ] || {
    fail "round $round, $kind: a model.safetensors is no state of either"
    break
  }
  rm -r "$into" "$kept"
  mkdir "$kept"
done
finish "$rounds rounds of two jobs: each of $seen files named model.safetensors is a state of one of them"
