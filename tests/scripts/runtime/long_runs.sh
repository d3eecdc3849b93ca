#!/usr/bin/env bash
# Jobs that go on: --resume starts and continues with one command, a later checkpoint is not replaced, metrics are
# one file, signals and --max-time end a job with its checkpoint and a status of their own, --restarts starts ranks
# again that were killed: the end has the bits of a job that was let alone.
#   LONG_RUNS_KILLS=200   so many ranks are killed at random instants, not 6 (CASES=all: 200)
. "$(dirname "$0")/../common.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
kills=${LONG_RUNS_KILLS:-$(all_cases && echo 200 || echo 6)}
head -c 700 README.md > "$WORK/text.txt"
"$TPGEN" tests/plans/resume/tiny.lua -D tp=2 -o "$WORK/tiny" || { fail "tiny"; finish; }
for transport in shared mpi; do
  "$WORK/tiny/run.sh" --transport $transport --build > "$WORK/build.log" 2>&1 || { cat "$WORK/build.log"; fail "the build"; finish; }
done

cd "$WORK"
# job STATUS ARGUMENTS...: what it says is in said.
job() {
  local status=0 expected=$1
  shift
  timeout 300 tiny/run.sh --data text.txt "$@" > said 2>&1 < /dev/null || status=$?
  [ "$status" -eq "$expected" ] || fail "$*: status $status, not $expected: $(tail -n 3 said)"
}
says() { grep -qF -- "$1" said || fail "it says nothing of '$1': $(tail -n 3 said)"; }
# The numbers that do not depend on the clock.
reported() { sed -E 's/"(seconds|tps|tokens_per_second|tflops|memory)":[^,}]*,?//g' "$@"; }
same() { cmp "$1" "$2" || fail "$3"; }
step_of() { tiny/run.sh --verify "$1" | sed -n 's/.*, step \([0-9]*\):.*/\1/p'; }

# ---- one command ---------------------------------------------------------------------------------------

job 0 --steps 12 --save alone --metrics alone.jsonl
job 0 --steps 5 --resume ck --metrics ck.jsonl
says "note: ck has no checkpoint yet"
# A job that was lost has told of steps behind its last checkpoint, and half of a line.
printf '{"step":6,"loss":9}\n{"step":7,"lo' >> ck.jsonl
job 0 --steps 12 --resume ck --metrics ck.jsonl
same alone/model.safetensors ck/model.safetensors "--resume: other bits"
diff <(reported alone.jsonl) <(reported ck.jsonl) || fail "--resume: other metrics"
job 0 --steps 12 --resume ck --metrics ck.jsonl # there is nothing left to do
same alone/model.safetensors ck/model.safetensors "--resume at the end: other bits"
echo "notes" > notes
job 1 --steps 13 --resume ck --metrics notes
says "notes:1: this is no line of metrics"
[ "$(cat notes)" = notes ] || fail "another file is changed"

# ---- what is not replaced ------------------------------------------------------------------------------

job 1 --steps 4 --save ck
says "ck: it has the checkpoint of step 12, and this job, from step 1 on, would replace it by that of step 4"
job 1 --steps 20 --save ck --save-every 8
says "by that of step 8"
same alone/model.safetensors ck/model.safetensors "what was refused has changed a checkpoint"
cp -r ck other
job 0 --steps 4 --save other --overwrite
[ "$(step_of other)" = 4 ] || fail "--overwrite: it has not replaced"
job 0 --steps 12 --save ck # not an earlier one
job 2 --resume ck --load ck
job 2 --resume ck --save other
job 2 --overwrite
job 2 --max-time 5
job 2 --max-time 5x --save ck

# ---- ended early ---------------------------------------------------------------------------------------

# asked_to_end NAME TRANSPORT PREPARE: a long job; once it has done its first steps, `ask PID` asks it to end.
asked_to_end() {
  local name=$1 status=0 pid
  timeout 300 tiny/run.sh --transport "$2" --data text.txt --steps 1000000 --resume "$name" --metrics "$name.jsonl" --log-every 10 \
    > "$name.said" 2>&1 < /dev/null &
  pid=$(pgrep -P $! -f run.sh) || { sleep 0.1; pid=$(pgrep -P $! -f run.sh); }
  for ((i = 0; i < 1000; i++)); do
    [ -s "$name.jsonl" ] && break
    sleep 0.02
  done
  ask "$pid"
  wait $! || status=$?
  [ $status -eq 75 ] || fail "$name: status $status, not 75: $(tail -n 3 "$name.said")"
  grep -q "stops: .*; $name has its checkpoint" "$name.said" || fail "$name: it does not say that it stops: $(tail -n 3 "$name.said")"
  ! grep -q 'error' "$name.said" || fail "$name: $(grep error "$name.said")"
}
for transport in shared mpi; do
  ask() { kill -TERM "$1"; }
  asked_to_end "term.$transport" $transport
  ask() { kill -USR1 "$1"; }
  asked_to_end "usr1.$transport" $transport
done
ask() { pkill -TERM -f "^$WORK/tiny/build/rank1 "; }
asked_to_end one_rank shared
# What it has saved is a step of the job that is let alone.
reached=$(step_of term.shared)
job 0 --steps $((reached + 3)) --resume term.shared
job 0 --steps $((reached + 3)) --save term.alone --log-every 1000
same term.alone/model.safetensors term.shared/model.safetensors "ended by SIGTERM: other bits"
job 75 --steps 1000000 --resume timed --max-time 2s --log-every 1000
says "stops: --max-time is over"
job 75 --steps 1000000 --resume timed --max-time 0:00:02 --log-every 1000
[ "$(step_of timed)" -gt 10 ] || fail "--max-time: it has come to step $(step_of timed)"
# Without a checkpoint there is nothing to wait for.
timeout 300 tiny/run.sh --data text.txt --steps 1000000 --metrics plain.jsonl > said 2>&1 < /dev/null &
while ! [ -s plain.jsonl ]; do sleep 0.02; done
pkill -TERM -P $!
status=0
wait $! || status=$?
[ $status -eq 143 ] || fail "SIGTERM without --save: status $status"

# ---- ranks that are lost -------------------------------------------------------------------------------

job 2 --restarts 2
says "--restarts wants --resume DIR"
job 2 --restarts x --resume lost
# A job of so many steps that each kill comes before its end.
RANDOM=7
steps=$((kills * 400))
timeout 3000 tiny/run.sh --data text.txt --steps $steps --resume lost --save-every 40 --restarts $kills --log-every 50 --metrics lost.jsonl \
  > lost.said 2>&1 < /dev/null &
job=$!
killed=0
for ((i = 0; i < kills; i++)); do
  at=$(tail -n 1 lost.jsonl 2> /dev/null | sed -n 's/.*"step":\([0-9]*\).*/\1/p') || true
  for ((k = 0; k < 3000; k++)); do # until it has gone on from the last kill
    now=$(tail -n 1 lost.jsonl 2> /dev/null | sed -n 's/.*"step":\([0-9]*\).*/\1/p') || true
    [ "${now:-0}" -gt "${at:-0}" ] && break
    kill -0 $job 2> /dev/null || break
    sleep 0.02
  done
  sleep "0.0$((RANDOM % 10))"
  ! pkill -KILL -f "^$WORK/tiny/build/rank$((RANDOM % 2)) " || killed=$((killed + 1))
done
status=0
wait $job || status=$?
[ $status -eq 0 ] || fail "--restarts: status $status: $(tail -n 3 lost.said)"
[ $((2 * killed)) -gt "$kills" ] || fail "--restarts: $killed kills of $kills"
job 0 --steps $steps --save lost.alone --log-every 1000
same lost.alone/model.safetensors lost/model.safetensors "--restarts: other bits"
# A failure that comes each time ends it.
job 1 --steps $((steps + 1)) --resume lost --restarts 1 --metrics notes
[ "$(grep -c 'it starts again' said)" -eq 1 ] || fail "--restarts 1: $(cat said)"

# ---- saves beside the steps ----------------------------------------------------------------------------

gcc -O1 -D_GNU_SOURCE -shared -fPIC -o faulty.so "$root/tests/tools/faulty_calls.c" -ldl || fail "faulty_calls.c"
# A disk that is full for one save ends nothing: it is told, and the next one is there.
LD_PRELOAD=$WORK/faulty.so FAULTY_CALL=fsync FAULTY_NTH=6 FAULTY_ERRNO=28 FAULTY_RANK=0 FAULTY_UNDER=$WORK/full \
  job 0 --steps 12 --save "$WORK/full" --save-every 3
says "note: the checkpoint of step 6 is not saved: $WORK/full/"
says "saved: step 3 in $WORK/full"
same alone/model.safetensors full/model.safetensors "a full disk: other bits"
[ "$(find full -mindepth 1 | wc -l)" -eq 1 ] || fail "a full disk: files are left: $(ls -A full)"
job 0 --steps 12 --save at_once --save-every 3 --save-at-once --keep 2
! grep 'saved: step' said || fail "--save-at-once: it saves beside the steps"
[ "$(echo at_once/step-*)" = "at_once/step-00000009 at_once/step-00000012" ] || fail "--keep: $(ls at_once)"
job 0 --steps 12 --save beside --save-every 3 --keep 2
[ "$(echo beside/step-*)" = "beside/step-00000009 beside/step-00000012" ] || fail "--keep: $(ls beside)"
same at_once/step-00000009/model.safetensors beside/step-00000009/model.safetensors "a save beside the steps: other bits"

# ---- numbers that are not finite -----------------------------------------------------------------------

# The seventh batch of samples has one.
"$TPGEN" "$root/tests/plans/long_runs/samples.lua" -o samples && samples/run.sh --build > build.log 2>&1 || fail "samples"
header='{"input":{"dtype":"F32","shape":[64,4],"data_offsets":[0,1024]},"target":{"dtype":"F32","shape":[64,1],"data_offsets":[1024,1280]}}'
printf -v length '\\x%02x' ${#header}
{
  printf "$length\\0\\0\\0\\0\\0\\0\\0%s" "$header"
  head -c 416 /dev/zero
  printf '\0\0\300\177' # sample 26
  head -c 860 /dev/zero
} > samples.safetensors
# of_samples STATUS ARGUMENTS...
of_samples() {
  local status=0
  samples/run.sh --data samples.safetensors --steps 12 "${@:2}" > said 2>&1 < /dev/null || status=$?
  [ $status -eq "$1" ] || fail "${*:2}: status $status: $(cat said)"
}
of_samples 0
says "warning: the loss is nan at step 7; training goes on"
of_samples 1 --on-nan stop
says "step 7: the loss or the norm of the gradients is not finite: nothing of it is saved"
of_samples 1 --on-nan stop --save stopped --save-every 4
says "stopped has the checkpoint of step 4"
of_samples 1 --on-nan rollback --save none
says "there is no checkpoint to go back to"
of_samples 0 --on-nan rollback --save back --save-every 3 --metrics back.jsonl
says "step: 7  goes back: the loss or the norm of the gradients is not finite; on from step 6"
! tail -n 6 back.jsonl | grep null || fail "--on-nan rollback: not finite"
of_samples 2 --on-nan never
says "--on-nan is stop, rollback or skip"
of_samples 2 --on-nan skip
says "--on-nan skip wants the norm of the gradients"
# As if the seventh batch were not there; the other ones are equal, and SGD's updates do not depend on the step's number.
"$TPGEN" "$root/tests/plans/long_runs/samples.lua" -D skips=true -o samples > said || fail "skips"
of_samples 0 --on-nan skip --save skipped
says "step: 7  is skipped: the loss or the norm of the gradients is not finite"
head -c 1600 /dev/zero > zeros
{ head -c $((8 + ${#header})) samples.safetensors; head -c 1280 zeros; } > clean.safetensors
samples/run.sh --data clean.safetensors --steps 11 --save clean > said 2>&1 || fail "clean: $(cat said)"
"$TOOLS/compare_safetensors" skipped/model.safetensors clean/model.safetensors 0 > compared 2>&1 || fail "--on-nan skip: other weights: $(cat compared)"

# ---- scripts for schedulers ----------------------------------------------------------------------------

job 0 --sbatch 2 --resume "a b" --steps 4
bash -n said || fail "--sbatch: no script"
says '#SBATCH --ntasks-per-node=1'
says ' --resume a\ b --steps 4'
job 0 --kubernetes 1 --resume 'a "b'
says 'slotsPerWorker: 2'
says '"a \"b"'
job 2 --sbatch 3
says "the program has 2 ranks, which they do not share equally"
finish "jobs go on by one command, end early with their checkpoint, and start again when ranks are lost ($killed kills)"
