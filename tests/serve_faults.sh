#!/usr/bin/env bash
# What goes wrong while a program serves, on two ranks that share memory, started by run.sh as a user does:
#   lost      a rank is killed or stopped, idle and with answers under way: the job ends at once with one message, which
#             names the rank and what waits for it
#   signals   SIGTERM of run.sh, or of any rank alone, ends the server when its answers are made; a second one ends it at once
. "$(dirname "$0")/common.sh"
command -v curl > /dev/null || { echo "serve_faults: SKIPPED: there is no curl"; exit 77; }
transport=${SERVE_TRANSPORT:-shared}
runtime_plan=plans/generate.lua
. "$root/tests/programs.sh"
make_runtimes plain
of=$golden/generate/llama
make served plain plans/generate.lua -D config="$of/config.json" -D context=2000 -D prefill=16 -D slots=4 -D tp=2 || finish
as_built "$WORK/served"
cp "$of"/* "$WORK"
byte_tokenizer > "$WORK/tokenizer.json"
export OMP_NUM_THREADS=1
build=$WORK/served/build
[ $transport != mpi ] || build+=/mpi

# serves ARGUMENTS...: starts run.sh at some port that is free; it is process $server, its ranks are ${ranks[@]}.
server='' ranks=()
serves() {
  local tried i
  for tried in 1 2 3 4 5; do
    port=$((20000 + (RANDOM + $$ + tried) % 12000)) at=http://127.0.0.1:$port
    "$WORK/served/run.sh" --transport $transport --weights "$WORK" --serve $port "$@" < /dev/null > "$WORK/served.out" 2> "$WORK/served.log" &
    server=$!
    for ((i = 0; i < 600; i++)); do
      if grep -q '^listening at' "$WORK/served.log"; then
        ranks=("$(pgrep -f "^$build/rank0 .*--serve $port")" "$(pgrep -f "^$build/rank1 .*--serve $port")")
        return 0
      fi
      kill -0 $server 2> /dev/null || break
      sleep 0.05
    done
    kill $server 2> /dev/null || true
  done
  cat "$WORK/served.log"
  fail "the server does not start"
  finish
}
trap '[ -z "$server" ] || kill $server 2> /dev/null || true' EXIT

# ends HOW MOST: sets $status; the server ends within so many hundredths of a second since $began, and no rank is left.
ends() {
  local i
  for ((i = 0; i < 1500; i++)); do
    kill -0 $server 2> /dev/null || break
    sleep 0.01
  done
  took=$(((${EPOCHREALTIME/./} - began) / 10000))
  [ $i -lt 1500 ] || { fail "$1: it stays"; kill $server "${ranks[@]}" 2> /dev/null; kill -9 "${ranks[@]}" 2> /dev/null; }
  status=0
  wait $server 2> /dev/null || status=$?
  server=''
  [ $took -le "$2" ] || fail "$1: it ended after $took hundredths of a second, not $2"
  ! pgrep -f "^$build/rank[01] .*--serve $port" || fail "$1: a rank is left"
}

# Answers that take for as long as the test needs them.
clients=()
work() {
  local i
  for i in 1 2 3 4 5 6; do
    curl -sS -N --max-time 60 -H 'Content-Type: application/json' -d '{"prompt": "Hello", "max_tokens": 1900, "stream": true}' \
      "$at/v1/completions" > "$WORK/answer.$i" 2>&1 &
    clients+=($!)
  done
  for ((i = 0; i < 500; i++)); do
    ! grep -qs '^data:' "$WORK"/answer.* || break
    sleep 0.01
  done
}
leave() {
  kill "${clients[@]}" 2> /dev/null
  wait "${clients[@]}" 2> /dev/null
  clients=()
}

# lost HOW MOST PATTERN: there is one message, it matches, and the job has failed.
lost() {
  ends "$1" "$2"
  [ $status -ne 0 ] || fail "$1: status 0"
  [ "$(grep -cE 'error:|^run.sh:|Killed' "$WORK/served.log")" = 1 ] || { fail "$1: not one message"; cat "$WORK/served.log"; }
  grep -qE "$3" "$WORK/served.log" || { fail "$1: other words"; cat "$WORK/served.log"; }
  printf '  %-24s %3d/100 s  %s\n' "$1" "$took" "$(grep -m 1 -E 'error:|^run.sh:' "$WORK/served.log")"
}

# ---- lost ranks ---------------------------------------------------------------------------------

place='in MPI_[A-Z][a-z_]+ \([a-z_0-9]+\.c:[0-9]+\)(, which plans/[a-z/0-9]+\.lua:[0-9]+ asks for)?'
slower=0 how="the job was ended while it waited $place"
# mpirun takes its time: the ranks see by themselves who is gone. One that broadcasts by MPI need not wait.
[ $transport != mpi ] || { slower=200 how="(nothing moves $place|the server cannot go on)"; }
for who in 0 1; do
  for what in idle busy; do
    serves
    rm -f "$WORK"/answer.*
    if [ $what = busy ]; then work; else sleep 0.5; fi
    began=${EPOCHREALTIME/./}
    kill -KILL "${ranks[who]}"
    lost "rank $who killed, $what" $((150 + slower)) "^rank $((1 - who)): error: $how; rank $who is gone$"
    leave || true
    serves
    rm -f "$WORK"/answer.*
    if [ $what = busy ]; then work; else sleep 0.5; fi
    began=${EPOCHREALTIME/./}
    kill -STOP "${ranks[who]}"
    lost "rank $who stopped, $what" $((180 + slower)) "^rank $((1 - who)): error: ((nothing moves|nothing has moved for 1 s) $place|the server cannot go on); rank $who is stopped$"
    leave || true
  done
done
serves --deadline 0
began=${EPOCHREALTIME/./}
kill -STOP "${ranks[1]}"
sleep 2.5
kill -0 "$server" 2> /dev/null || fail "a stopped rank, without a deadline, ends the job"
kill -CONT "${ranks[1]}"
curl -sS --max-time 10 "$at/health" > "$WORK/got" || fail "a rank that goes on"

# ---- signals ------------------------------------------------------------------------------------

# ended HOW MOST: without a message.
ended() {
  ends "$1" "$2"
  # mpirun sends a second SIGTERM by itself.
  [ "$1$transport" = 'TERM of allmpi' ] || ! grep -E 'error:|^run.sh:' "$WORK/served.log" || fail "$1: a message"
  printf '  %-24s %3d/100 s\n' "$1" "$took"
}
began=${EPOCHREALTIME/./}
kill -TERM $server
ended 'TERM of run.sh, idle' $((150 + slower))
for who in 0 1; do
  serves
  work
  began=${EPOCHREALTIME/./}
  kill -TERM "${ranks[who]}"
  ended "TERM of rank $who, busy" 150
  for i in 1 2 3 4 5 6; do
    ! grep -q '^data:' "$WORK/answer.$i" || tail -n 2 "$WORK/answer.$i" | finds 'DONE' || { tail "$WORK/answer.$i"; fail "TERM of rank $who: answer $i is cut"; }
  done
  leave || true
  [ $status -eq 0 ] || fail "TERM of rank $who: status $status"
done
serves
began=${EPOCHREALTIME/./}
kill -TERM "${ranks[0]}" "${ranks[1]}" "$server"
ended 'TERM of all' $((150 + slower))
# A second signal does not wait for answers, nor for a rank that stands still.
serves --deadline 0
kill -STOP "${ranks[1]}"
kill -TERM "${ranks[0]}"
sleep 0.5
began=${EPOCHREALTIME/./}
kill -TERM "${ranks[0]}"
lost 'TERM of rank 0, twice' $((100 + slower)) "^rank 0: error: the job was ended while it waited $place; rank 1 is stopped$"
finish "a server whose ranks are lost, and signals"
