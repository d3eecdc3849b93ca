#!/usr/bin/env bash
# What goes wrong while a program serves, on two ranks that share memory, started by run.sh as a user does:
#   lost      a rank is killed or stopped, idle and with answers under way: the job ends at once with one message, which
#             names the rank and what waits for it
#   signals   SIGTERM of run.sh, or of any rank alone, ends the server when its answers are made; a second one ends it at once
#   framing   requests that a proxy might read otherwise are refused, and the connection closed (RFC 9112); runtime.text_head
#             has more of them
#   silent    a client that says nothing more gets its answer; those that say nothing at all keep no other out
. "$(dirname "$0")/../common.sh"
command -v curl > /dev/null || { echo "serve_faults: SKIPPED: there is no curl"; exit 77; }
transport=${SERVE_TRANSPORT:-shared}
runtime_plan=plans/generate.lua
. "$root/tests/scripts/programs.sh"
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
    : > "$WORK/served.log"
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

place='in MPI_[A-Z][a-z_]+ \([a-z_0-9]+\.c:[0-9]+\)(, which plans/[a-z_/0-9]+\.lua:[0-9]+ asks for)?'
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

# ---- framing of requests ------------------------------------------------------------------------

# asks EXPECTED HOW HEADERS BODY: after it a second request; the statuses of all answers, and how the connection is then. In
# HEADERS and BODY \\r, \\n and others stand for themselves.
second='GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n'
asks() {
  local got try
  for ((try = 0; try < ${tries:-1}; try++)); do
    got=$(printf "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n$3\r\n\r\n$4${second/a/b}" |
      "$TOOLS/fuzz_http" raw $port "$2") || got="no answer"
    [ "$got" != "$1" ] || break
  done
  [ "$got" = "$1" ] || fail "framing: $2 $3: $got, not $1"
}
body='{"prompt": "Hello", "max_tokens": 2}' n=36
[ ${#body} = $n ] || fail "the body's length"
length="Host: a\r\nContent-Length: $n" chunked='Host: a\r\nTransfer-Encoding: chunked'
chunks="10\r\n${body:0:16}\r\n14;x=y\r\n${body:16}\r\n0\r\nTrailer: x\r\n\r\n"
for how in whole slow half; do
  state=open
  [ $how != half ] || state=closed
  asks "200 200 $state" $how "$length" "$body"
  asks "200 200 $state" $how "$chunked" "$chunks"
done
asks '200 closed' whole "$length\r\nConnection: close" "$body"
# On a busy machine the body may be there before the server looks: then it need not ask for it.
tries=5 asks '100 200 200 open' slow "$length\r\nExpect: 100-continue" "$body"
smuggled="0\r\n\r\n$second"
for headers in "$length\r\nContent-Length: 5" "$length\r\nContent-Length: $n" "$length\r\nTransfer-Encoding: chunked" \
  "$chunked\r\nContent-Length: 5" "Host: a\r\nTransfer-Encoding : chunked" "$length\r\nTransfer-Encoding : chunked" \
  "Host: a\r\nContent-Length: +5" "Host: a\r\nContent-Length: 5, 5" "Host: a\r\nContent-Length: 0x5" "Host: a\r\nContent-Length: -5" \
  "Host: a\r\nContent-Length:" "$chunked, chunked" "$chunked\r\nTransfer-Encoding: chunked" "Host: a\r\nTransfer-Encoding: identity" \
  "Host: a\r\nTransfer-Encoding: xchunked" "Content-Length: 5" "$length\r\nHost: a" "$length\r\nX: a\rTransfer-Encoding: chunked" \
  "$length\r\nX: a\r\n Transfer-Encoding: chunked" "$length\r\nX: a\\000b" "$length\nX: a" " $length" "$length\r\nX a" "$length\r\n: a" \
  "Host: a b\r\nContent-Length: $n"; do
  asks '400 closed' whole "$headers" "$smuggled"
done
asks '413 closed' whole 'Host: a\r\nContent-Length: 99999999999999999999999' "$smuggled"
asks '501 closed' whole 'Host: a\r\nTransfer-Encoding: gzip, chunked' "$smuggled"
asks '417 closed' whole "$length\r\nExpect: tea" "$smuggled"
for bad in 'x\r\n' '5\nabcde\r\n0\r\n\r\n' '5\r\nabcdef\r\n0\r\n\r\n' '-5\r\n' '0x5\r\nabcde\r\n' '10000000000000005\r\n' '5 \r\nabcde\r\n' ';\r\n' \
  '5;a\rb\r\nabcde\r\n' '0\r\nX: \001\r\n\r\n' '0\r\nX: a\n\r\n\r\n'; do
  asks '400 closed' whole "$chunked" "$bad$second"
done

# ---- silent clients -----------------------------------------------------------------------------

for stream in false true; do
  asked="{\"prompt\": \"Hello\", \"max_tokens\": 1900, \"stream\": $stream}"
  got=$(printf "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${#asked}\r\n\r\n$asked" |
    "$TOOLS/fuzz_http" raw $port half)
  [ "$got" = '200 closed' ] || fail "a client that closes its side, streamed: $stream: $got"
done
# Those that are gone free their slots, though they had asked for a whole answer.
for i in 1 2 3 4 5 6 7 8; do
  curl -sS --max-time 0.2 -H 'Content-Type: application/json' -d '{"prompt": "Hello", "max_tokens": 1900}' "$at/v1/completions" > "$WORK/gone" 2>&1 || true
done
began=${EPOCHREALTIME/./}
curl -sS --max-time 60 -H 'Content-Type: application/json' -d '{"prompt": "Hello", "max_tokens": 2}' "$at/v1/completions" | finds text || fail "clients that are gone"
printf '  clients that are gone     %d/100 s\n' $(((${EPOCHREALTIME/./} - began) / 10000))
"$TOOLS/fuzz_http" silent $port 400 > "$WORK/silent" 2>&1 & silent=$!
for ((i = 0; i < 100; i++)); do
  [ ! -s "$WORK/silent" ] || break
  sleep 0.05
done
grep -q connected "$WORK/silent" || fail "silent clients"
curl -sS --max-time 2 "$at/health" | finds ok || fail "silent clients keep others out"
curl -sS --max-time 5 -H 'Content-Type: application/json' -d '{"prompt": "Hello", "max_tokens": 2}' "$at/v1/completions" | finds text ||
  fail "silent clients keep a request out"
kill $silent
wait $silent 2> /dev/null || true

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
