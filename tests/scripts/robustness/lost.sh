#!/usr/bin/env bash
# Lost, stopped and slow ranks; tests/tools/faulty_mpi.c wraps MPI.
#   killed   at a collective: the others end within seconds, and one of them reports which rank is gone and
#            which collective, of which line of the plan, waited for it; or which action of a pipeline
#   stopped  the others end the job after the deadline, and report it
#   early    the same of run.sh while the ranks start and end, with one message and no rank left
#   reported one rank's report of its failure is the only message, though the launcher ends it while it leaves
#   counted  a step that saves has exactly the collectives of a save in addition, and no other step has
#   slow     ranks that come late to collectives change no bit of what is saved; replicated tensors are equal
#            on all of their ranks
#   SOAK=1           120 more ranks, killed and stopped at random instants within half a second
#   LOST=all         every collective of a step, instead of every seventh
#   LOST_TRANSPORT=shared  ranks that share memory, without MPI
. "$(dirname "$0")/../common.sh"
transport=${LOST_TRANSPORT:-mpi}
. "$root/tests/scripts/programs.sh"
optimized=-O1
every=7
[ $transport = mpi ] || every=21 # what wraps a collective is the same
[ "${LOST:-}" != all ] || every=1
export TPGEN_TOKEN=lost.$$.$RANDOM
at_once=$((3 * at_once)) # the jobs mostly wait
seconds=20 # until a job has ended: much more than it takes, and less than any other deadline
libraries+=(-Wl,--wrap={reduce_scatter,reduce_segments,send_to}) # the runtime's own are disturbed as MPI's are

plan=tests/equal/llama.lua program=llama
"$TPGEN" $plan -o "$WORK/llama" -D tp=2 || fail "tpgen ended with status $?"
make_runtime plain && objects "$WORK/plain" plain "$root/tests/tools/faulty_mpi.c" && make_ranks "$WORK/llama" plain &&
  "$TPGEN" plans/llama3.lua -o "$WORK/fsdp" -D dp=2 && make_ranks "$WORK/fsdp" plain &&
  "$TPGEN" $plan -o "$WORK/three" -D tp=3 && make_ranks "$WORK/three" plain &&
  "$TPGEN" plans/llama3.lua -o "$WORK/stages" -D pp=2 -D microbatches=4 && make_ranks "$WORK/stages" plain ||
  { fail "the program does not compile"; exit 1; }
[ $transport = mpi ] || for program in llama fsdp three stages; do as_built "$WORK/$program"; done
program=llama

# disturbed NAME HOW ARGUMENTS...: runs the program with this fault; sets $status and $took, in seconds.
disturbed() {
  local name=$1 how=$2 began=$EPOCHREALTIME
  shift 2
  status=0
  DISTURB=$how REPLICAS=$WORK/$name.replicas start "$WORK/$program" "$WORK/$name" "$@" > /dev/null || status=$?
  took=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
}

# lost NAME HOW PATTERN ARGUMENTS...: it ends in time, with one message, which matches the pattern.
lost() {
  local name=$1 how=$2 pattern=$3
  shift 3
  disturbed "$name" "$how" "$@"
  [ $status -ne 0 ] && [ $status -ne 124 ] || fail "$how: status $status"
  awk -v t="$took" -v most=$seconds 'BEGIN { exit t > most }' || fail "$how: it ended after $took s"
  grep -qE "$pattern" "$WORK/$name.out" || { fail "$how: the message is missing"; cat "$WORK/$name.out"; }
  [ "$(grep -c 'error:' "$WORK/$name.out")" = 1 ] || { fail "$how: more than one message"; cat "$WORK/$name.out"; }
  printf '  %-12s %4s s  %s\n' "$how" "$took" "$(grep -m 1 'error:' "$WORK/$name.out")"
}

# The number of collectives before the first step, and in one step.
DISTURB=count REPLICAS=$WORK/none start "$WORK/llama" "$WORK/none" --steps 0
DISTURB=count REPLICAS=$WORK/one start "$WORK/llama" "$WORK/one" --steps 1
DISTURB=count REPLICAS=$WORK/both start "$WORK/llama" "$WORK/both" --steps 2
before=$(($(<"$WORK/none.0") - 7)) # behind the steps: six are of what is saved, one agrees on the metrics
step=$(($(<"$WORK/one.0") - $(<"$WORK/none.0")))
[ "$step" -gt 20 ] || fail "a step has $step collectives"
# Behind the first step the ranks ask each other whether one is to end the job early.
second=$((before + $(<"$WORK/both.0") - $(<"$WORK/none.0") - step))
[ $((second - before - step)) = 1 ] || fail "$((second - before - step)) collectives between two steps, not 1"

# Every second step is saved, and the last one once: six more collectives for step 2.
for often in "" "--save-every 2"; do
  # shellcheck disable=SC2086
  DISTURB=count REPLICAS=$WORK/four start "$WORK/llama" "$WORK/four" --steps 4 --save-at-once $often
  rm -rf "$WORK/four.saved"
  cat "$WORK/four.0"
done > "$WORK/four.counts"
read -r -d '' plainly often < "$WORK/four.counts" || true
[ $((often - plainly)) = 6 ] || fail "--save-every 2: $((often - plainly)) collectives more in four steps, not 6"

waited="in MPI_[A-Z][a-z_]+ \(step(_1)?\.c:[0-9]+\), which $plan:[0-9]+ asks for, step 2"
for ((k = second + 1; k <= second + step; k += every)); do
  beside "$WORK/kill.$k.log" lost "kill.$k" "kill:1:$k" "^rank 0: error: .*$waited; rank 1 is gone$"
done
beside "$WORK/kill.first.log" lost kill.first kill:0:$((second + 2)) \
  "^rank 1: error: .*$waited; rank 0 is gone$"
program=fsdp
beside "$WORK/kill.sum.log" lost kill.sum sum:1:5 \
  "^rank 0: error: .*in reduce_segments \(step\.c:[0-9]+\), which plans/lib/parallel.lua:[0-9]+ asks for, step [12]; rank 1 is gone$" --steps 4
# In the middle of a pipeline the message has the name of the action: of what is not received, or not sent, or what
# was sent and nobody has taken yet.
program=stages
asked='\(step_stage[01]\.c:[0-9]+\), which plans/[a-z0-9/]+\.lua:[0-9]+ asks for'
beside "$WORK/kill.forward.log" lost kill.forward send:0:5 "^rank 1: error: .*in 1RECV_F0 $asked, step 2; rank 0 is gone$" --steps 4
beside "$WORK/kill.backward.log" lost kill.backward send:1:2 "^rank 0: error: .*in 0RECV_B1 $asked, step 1; rank 1 is gone$" --steps 4
# On a busy machine it may still compute what it sends.
beside "$WORK/kill.sent.log" lost kill.sent send:0:7 "^rank 1: error: .*(in 1SEND_B1 $asked|the job was ended), step 2; rank 0 is gone$" --steps 4
# The lowest remaining rank reports.
program=three
beside "$WORK/kill.three.log" lost kill.three kill:0:$((second + 2)) \
  "^rank 1: error: .*; rank 0 is gone$"
program=llama
beside "$WORK/stop.log" lost stop "stop:1:$((second + 5))" \
  "^rank 0: error: nothing has moved for [0-9]+ s $waited; rank 1 is stopped$" --deadline 3

# ---- while they start and end ----------------------------------------------------------------------

build=$WORK/llama/build
if [ $transport = mpi ]; then
  build+=/mpi
  as_built "$WORK/llama"
fi

# is_over NAME HOW BEGAN STATUS LOG PATTERN: run.sh has ended in time, with a failure and one message, and no
# rank is left.
is_over() {
  local how=$2 log=$5
  awk -v a="$3" -v b="$EPOCHREALTIME" -v most=$seconds 'BEGIN { exit b - a > most }' || fail "$how: it ended late"
  [ "$4" -ne 0 ] && [ "$4" -ne 124 ] || fail "$how: status $4"
  [ "$(grep -cE 'error:|^run.sh:' "$log")" = 1 ] || { fail "$how: not one message"; cat "$log"; }
  grep -qE "$6" "$log" || { fail "$how: other words"; cat "$log"; }
  ! pgrep -f "^$build/rank. .*--metrics $WORK/$1.jsonl" || fail "$how: a rank is left"
}
# early NAME HOW PATTERN ARGUMENTS...
early() {
  local name=$1 how=$2 pattern=$3 began=$EPOCHREALTIME status=0
  shift 3
  DISTURB=$how timeout 60 "$WORK/llama/run.sh" --transport $transport --metrics "$WORK/$name.jsonl" --steps 2 "$@" < /dev/null > "$WORK/$name.out" 2>&1 ||
    status=$?
  is_over "$name" "$how" "$began" $status "$WORK/$name.out" "$pattern"
  printf '  %-12s %s\n' "$how" "$(grep -m 1 -E 'error:|^run.sh:' "$WORK/$name.out")"
}
for who in 0 1; do
  other="^rank $((1 - who)): error: the job was ended while it waited in MPI_[A-Za-z_]+ \((cpu_)?(cpu|job)\.c:[0-9]+\); rank $who is gone$"
  none='^run\.sh: a rank was killed by signal 9 \(KILL\)$'
  for where in load init met end exit $([ $who = 0 ] || echo 1 3 $before); do
    pattern=$other
    # The other rank may not have begun, or may have ended; or it is leaving, and waits for nobody.
    [ $where != load ] && [ $where != exit ] && [ "$where$transport" != initshared ] || pattern="$other|$none"
    [ $where != exit ] || pattern+="|^rank $((1 - who)): error: the job was ended; rank $who is gone$"
    beside "$WORK/early.kill.$who.$where.log" early "early.kill.$who.$where" "kill:$who:$where" "$pattern"
  done
done
for who in 0 1; do
  for where in load init met end; do
    beside "$WORK/early.stop.$who.$where.log" early "early.stop.$who.$where" "stop:$who:$where" \
      "^rank $((1 - who)): error: nothing has moved for [0-9]+ s in MPI_[A-Za-z_]+ \((cpu_)?(cpu|job)\.c:[0-9]+\); rank $who is stopped$" --deadline 5
  done
done

# One rank refuses the file to load. The first rank that leaves makes the launcher end the other one, which
# prints only its reason, however late it is.
refusal="the folder has neither model.safetensors nor"
for ((k = 1; k <= before; k++)); do
  beside "$WORK/reported.$k.log" early "reported.$k" "late:0:$k" "^rank 0: error: $WORK: $refusal" --data "$WORK"
done
for who in 0 1; do
  for where in end exit; do
    beside "$WORK/reported.$who.$where.log" early "reported.$who.$where" "late:$who:$where" "^rank 0: error: $WORK: $refusal" --data "$WORK"
  done
done

# at_random NAME SIGNAL RANK: at a random time after the rank has started.
at_random() {
  local name=$1 signal=$2 who=$3 began pid='' status=0 i
  timeout 100 "$WORK/llama/run.sh" --transport $transport --metrics "$WORK/$name.jsonl" --steps 1000000 --log-every 1000000 --deadline 3 \
    < /dev/null > "$WORK/$name.out" 2>&1 &
  local job=$!
  for ((i = 0; i < 3000; i++)); do
    ! pid=$(pgrep -f "^$build/rank$who .*--metrics $WORK/$name.jsonl") || break
  done
  sleep "0.$(printf %03d $((RANDOM % 500)))"
  began=$EPOCHREALTIME
  kill -"$signal" "$pid" || fail "$name: rank $who has ended"
  wait $job || status=$?
  is_over "$name" "$signal to rank $who" "$began" $status "$WORK/$name.out" "error:|^run\.sh: a rank was killed"
}
for ((k = 0; k < ${SOAK:+12}0; k++)); do
  signals=(KILL STOP KILL TERM) # a rank that stops within a step waits as long as its deadline
  seconds=20 beside "$WORK/random.$k.log" at_random "random.$k" ${signals[k / 2 % 4]} $((k % 2))
done
for ((k = 0; k < 10; k++)); do beside "$WORK/delay.$k.log" disturbed "delay.$k" "delay:$k"; done
all_are_done

for ((k = 0; k < 10; k++)); do
  hash_of "$WORK/delay.$k.saved"
  [ -s "$WORK/delay.$k.replicas.0" ] || fail "delay $k: no parameter is whole on a rank"
  cmp "$WORK/delay.$k.replicas.0" "$WORK/delay.$k.replicas.1" || fail "delay $k: replicas differ"
done > "$WORK/hashes"
[ "$(sort -u "$WORK/hashes" | wc -l)" = 1 ] || fail "slow ranks change what is saved"
cat "$WORK"/{kill,early,reported}.*.log "$WORK/stop.log"
[ -z "${SOAK:-}" ] || cat "$WORK"/random.*.log
! find /proc/[0-9]*/fd -lname "*tpgen-job-$TPGEN_TOKEN*" 2> "$WORK/find" | grep . || fail "memory of a job is left"
finish "of $step collectives of a step every ${every}th was the last of a rank; 10 slow runs left the same bits"
