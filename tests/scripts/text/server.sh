# A program that serves, whose ranks are one program (local_mpi): its start and its end. `arguments` are those of every start.
# serves ARGUMENTS...: starts $WORK/$program/ranks, which is process $server and answers at $at, at some port that is free.
server='' program=served
serves() {
  local tried
  for tried in 1 2 3 4 5; do
    port=$((20000 + (RANDOM + $$ + tried) % 12000)) at=http://127.0.0.1:$port
    : > "$WORK/served.log"
    "$WORK/$program/ranks" "${arguments[@]}" --serve $port "$@" > "$WORK/served.out" 2> "$WORK/served.log" &
    server=$!
    for ((i = 0; i < 600; i++)); do
      ! grep -q '^listening at' "$WORK/served.log" || return 0
      kill -0 $server 2> /dev/null || break
      sleep 0.05
    done
    kill -9 $server 2> /dev/null || true
  done
  cat "$WORK/served.log"
  fail "the server does not start"
  finish
}
trap '[ -z "$server" ] || kill -9 $server 2> /dev/null || true' EXIT

# stops SIGNAL: the server ends by it, within seconds, and all its ranks with it.
stops() {
  local status=0 rank ranks
  ranks=$(cat /proc/$server/task/$server/children)
  for rank in $ranks; do kill -s "$1" "$rank"; done
  for ((i = 0; i < 100; i++)); do
    kill -0 $server 2> /dev/null || break
    sleep 0.1
  done
  ! kill -0 $server 2> /dev/null || { fail "the server does not end by SIG$1"; kill -9 $server; }
  wait $server || status=$?
  server=''
  [ $status -eq 0 ] || { tail -n 30 "$WORK/served.log"; fail "the server ended by SIG$1 with status $status"; }
}
