#!/usr/bin/env bash
# Ranks that are lost, stopped or slow; tests/disturb.c stands in MPI's place.
#   killed   at a collective, the others are out within seconds and one of them says which rank is gone and
#            which collective, of which line of the plan, waited for it
#   stopped  the others end the job after the deadline, and say so
#   counted  a step that saves has as many more as a save takes, and no other has
#   slow     ranks that come late to collectives change no bit of what is saved; what is whole on several
#            ranks is the same on all of them
#   LOST=all         every collective of a step in the place of every seventh
. "$(dirname "$0")/common.sh"
. "$root/tests/programs.sh"
optimized=-O1
every=7
[ "${LOST:-}" != all ] || every=1
seconds=4 messages=1
libraries+=(-Wl,--wrap={reduce_scatter,reduce_parcels}) # the runtime's own are disturbed as MPI's are

plan=tests/equal/llama.lua program=llama
"$TPGEN" $plan -o "$WORK/llama" -D tp=2 || fail "tpgen ended with status $?"
make_runtime plain && objects "$WORK/plain" plain "$root/tests/disturb.c" && make_ranks "$WORK/llama" plain &&
  "$TPGEN" plans/llama3.lua -o "$WORK/fsdp" -D dp=2 && make_ranks "$WORK/fsdp" plain &&
  "$TPGEN" $plan -o "$WORK/three" -D tp=3 && make_ranks "$WORK/three" plain ||
  { fail "the program does not compile"; exit 1; }

# disturbed NAME HOW ARGUMENTS...: runs the program so; its status is $status, its seconds $took.
disturbed() {
  local name=$1 how=$2 began=$EPOCHREALTIME
  shift 2
  status=0
  DISTURB=$how REPLICAS=$WORK/$name.replicas start "$WORK/$program" "$WORK/$name" "$@" > /dev/null || status=$?
  took=$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
}

# lost NAME HOW PATTERN ARGUMENTS...: it ends in time, with one message, which the pattern matches.
lost() {
  local name=$1 how=$2 pattern=$3
  shift 3
  disturbed "$name" "$how" "$@"
  [ $status -ne 0 ] && [ $status -ne 124 ] || fail "$how: status $status"
  awk -v t="$took" -v most=$seconds 'BEGIN { exit t > most }' || fail "$how: it ended after $took s"
  grep -qE "$pattern" "$WORK/$name.out" || { fail "$how: the message is missing"; cat "$WORK/$name.out"; }
  [ "$(grep -c 'error:' "$WORK/$name.out")" -le $messages ] || { fail "$how: more than one message"; cat "$WORK/$name.out"; }
  printf '  %-12s %4s s  %s\n' "$how" "$took" "$(grep -m 1 'error:' "$WORK/$name.out")"
}

# How many collectives there are before the first step, and in one.
DISTURB=count REPLICAS=$WORK/none start "$WORK/llama" "$WORK/none" --steps 0
DISTURB=count REPLICAS=$WORK/one start "$WORK/llama" "$WORK/one" --steps 1
before=$(($(<"$WORK/none.0") - 4)) # behind the steps: one agrees on the metrics, three on what is saved
step=$(($(<"$WORK/one.0") - $(<"$WORK/none.0")))
[ "$step" -gt 20 ] || fail "a step has $step collectives"

# Saved on the way is each second step, and the last one once: three more for step 2.
for often in "" "--save-every 2"; do
  # shellcheck disable=SC2086
  DISTURB=count REPLICAS=$WORK/four start "$WORK/llama" "$WORK/four" --steps 4 $often
  cat "$WORK/four.0"
done > "$WORK/four.counts"
read -r -d '' plainly often < "$WORK/four.counts" || true
[ $((often - plainly)) = 3 ] || fail "--save-every 2: $((often - plainly)) collectives more in four steps, not 3"

waited="in MPI_[A-Z][a-z_]+ \(step(_1)?\.c:[0-9]+\), which $plan:[0-9]+ asks for, step 2"
for ((k = before + step + 1; k <= before + 2 * step; k += every)); do
  beside "$WORK/kill.$k.log" lost "kill.$k" "kill:1:$k" "^rank 0: error: .*$waited; rank 1 is gone$"
done
beside "$WORK/kill.first.log" lost kill.first kill:0:$((before + step + 2)) \
  "^rank 1: error: .*$waited; rank 0 is gone$"
program=fsdp
beside "$WORK/kill.sum.log" lost kill.sum sum:1:5 \
  "^rank 0: error: .*in reduce_parcels \(step\.c:[0-9]+\), which plans/llama3.lua:[0-9]+ asks for, step [12]; rank 1 is gone$" --steps 4
# Of those that are left the lowest says it.
program=three
beside "$WORK/kill.three.log" lost kill.three kill:0:$((before + step + 2)) \
  "^rank 1: error: .*; rank 0 is gone$"
program=llama
all_are_done
# The stopped rank goes on when the job is ended, and may say so.
seconds=9 messages=2
beside "$WORK/stop.log" lost stop "stop:1:$((before + step + 5))" \
  "^rank 0: error: nothing has moved for 1 s $waited; rank 1 is stopped$" --deadline 1
for ((k = 0; k < 10; k++)); do beside "$WORK/delay.$k.log" disturbed "delay.$k" "delay:$k"; done
all_are_done

for ((k = 0; k < 10; k++)); do
  hash_of "$WORK/delay.$k.saved"
  [ -s "$WORK/delay.$k.replicas.0" ] || fail "delay $k: no parameter is whole on a rank"
  cmp "$WORK/delay.$k.replicas.0" "$WORK/delay.$k.replicas.1" || fail "delay $k: replicas differ"
done > "$WORK/hashes"
[ "$(sort -u "$WORK/hashes" | wc -l)" = 1 ] || fail "slow ranks change what is saved"
cat "$WORK"/kill.*.log "$WORK/stop.log"
finish "of $step collectives of a step every ${every}th was the last of a rank; 10 slow runs left the same bits"
