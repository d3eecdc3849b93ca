#!/usr/bin/env bash
# Checkpoints of running programs: what is stopped and resumed ends with the very bits of what was not,
# whatever instant a job is killed at; another mesh loads them; where they cannot be written or read there
# is one clear message, and the old one stays.
#   RESUME_KILLS=200   so many kills of one rank's jobs, not 16 (CASES=all: 45); and an eighth as many of two ranks' jobs
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
kills=${RESUME_KILLS:-$(all_cases && echo 45 || echo 16)}
seed=${RESUME_SEED:-1}

make_runtime plain > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime does not compile"; }
# A text that ends within some steps of 40 tokens: batches begin again.
head -c 700 README.md > "$WORK/text.txt"

# make NAME ARGUMENTS...: the plan on a mesh.
make() {
  local to=$WORK/$1
  shift
  "$TPGEN" tests/plans/resume/tiny.lua -o "$to" "$@" && make_ranks "$to" plain || { fail "$to"; exit 1; }
}
# The command that runs all of a program's ranks, on the text where no data is given; one rank needs no launcher.
command_of() {
  local to=$WORK/$1 rank text=(--data "$WORK/text.txt")
  shift
  [[ " $* " != *" --data "* ]] || text=()
  command=("$to/rank0" "${text[@]}" "$@")
  [ -e "$to/rank1" ] || return 0
  command=("${launch[@]}" -n 1 "${command[@]}")
  for ((rank = 1; rank < $(find "$to" -name 'rank*.o' | wc -l); rank++)); do
    command+=(: -n 1 "$to/rank$rank" "${text[@]}" "$@")
  done
}
# job NAME RESULT ARGUMENTS...: what it says is in RESULT.out.
job() {
  local name=$1 result=$WORK/$2
  shift 2
  command_of "$name" "$@"
  timeout 300 "${command[@]}" > "$result.out" 2>&1 < /dev/null
}
run() {
  job "$@" || { fail "$*: status $?"; tail -n 5 "$WORK/$2.out"; }
}
same() { cmp "$WORK/$1" "$WORK/$2" || fail "$3"; }

make tp1 -D tp=1
make tp2 -D tp=2
make tp3 -D tp=3

# ---- stopped and resumed ---------------------------------------------------------------------------

run tp2 whole --steps 12 --save "$WORK/whole" --metrics "$WORK/whole.jsonl"
run tp2 half --steps 6 --save "$WORK/half" --metrics "$WORK/half.jsonl"
cp -r "$WORK/half" "$WORK/half3"
run tp2 rest --load "$WORK/half" --steps 12 --save "$WORK/rest" --metrics "$WORK/rest.jsonl"
same whole/model.safetensors rest/model.safetensors "resumed at step 6: other bits"
# All but what depends on the clock is the same on both halves' lines.
reported() { sed -E 's/"(seconds|tps|tokens_per_second|tflops|memory)":[^,}]*,?//g' "$@"; }
diff <(reported "$WORK/whole.jsonl") <(reported "$WORK/half.jsonl" "$WORK/rest.jsonl") || fail "resumed: other metrics"
[ "$(sed -n '1s/.*"step":\([0-9]*\).*/\1/p;$s/.*"step":\([0-9]*\).*/\1/p' "$WORK/rest.jsonl" | xargs)" = "7 12" ] ||
  fail "resumed: not steps 7 to 12"
# In several files, and saved on the way.
run tp2 shards --steps 9 --save "$WORK/shards" --save-every 4 --shard-bytes 2K
[ "$(find "$WORK/shards" -name 'model-*' | wc -l)" -gt 10 ] || fail "--shard-bytes 2K: not several files"
run tp2 rest --load "$WORK/shards" --steps 12 --save "$WORK/rest"
same whole/model.safetensors rest/model.safetensors "resumed from several files: other bits"

# Another mesh goes on from it, and carries it unchanged.
run tp3 other --load "$WORK/half3" --steps 12 --save "$WORK/other" --metrics "$WORK/other.jsonl"
losses_of "$WORK/other.jsonl" > "$WORK/other.losses"
losses_of "$WORK/rest.jsonl" > "$WORK/rest.losses"
same_losses "tp=2, then tp=3" "$WORK/other.losses" "$WORK/rest.losses"
run tp3 carried --load "$WORK/half" --steps 6 --save "$WORK/half3" --shard-bytes 1K
run tp2 carried --load "$WORK/half3" --steps 6 --save "$WORK/carried"
same half/model.safetensors carried/model.safetensors "tp=2, tp=3, tp=2: other bits"

# The parameters alone, under others' names, begin another training.
run tp2 export --load "$WORK/half" --steps 6 --export "$WORK/export" --shard-bytes 4K
grep -q '"h\.2\.mlp\.fc\.weight": "model-0000' "$WORK/export/model.safetensors.index.json" || fail "--export: no alias"
run tp3 from --weights "$WORK/export" --steps 0 --export "$WORK/from"
run tp2 from2 --weights "$WORK/half" --steps 0 --export "$WORK/from2"
same from/model.safetensors from2/model.safetensors "--export and --weights: other bits"

# ---- what cannot be reported ---------------------------------------------------------------------------

# unreported NAME STATUS: the job ended so, and has saved all the same, and says that it did not report all.
unreported() {
  [ "$2" -eq 1 ] || fail "$1: status $2, not 1"
  same unreported/model.safetensors "$1/model.safetensors" "$1: other bits are saved"
  [ -s "$WORK/$1.export/model.safetensors" ] || fail "$1: nothing is exported"
  grep -q 'note: step .*cannot write: .*; the job goes on' "$WORK/$1.err" || fail "$1: no note: $(cat "$WORK/$1.err")"
  grep -q 'error: .*what was to be saved is saved' "$WORK/$1.err" || fail "$1: no error: $(cat "$WORK/$1.err")"
  [ "$(wc -l < "$WORK/$1.err")" -eq 2 ] || fail "$1: more than two lines: $(cat "$WORK/$1.err")"
}
run tp1 unreported --steps 30 --save "$WORK/unreported"
for name in metrics output pipe; do
  status=0
  command_of tp1 --steps 30 --save "$WORK/$name" --export "$WORK/$name.export"
  case $name in
  metrics) "${command[@]}" --metrics /dev/full > /dev/null 2> "$WORK/$name.err" || status=$? ;;
  output) "${command[@]}" > /dev/full 2> "$WORK/$name.err" || status=$? ;;
  pipe) # whose reader has gone
    { sleep 0.3 && "${command[@]}" 2> "$WORK/$name.err" || echo $? > "$WORK/pipe.status"; } | true
    status=$(cat "$WORK/pipe.status") || status=0
    ;;
  esac
  unreported $name $status
done

# ---- changed ---------------------------------------------------------------------------------------

verify() { "$WORK/tp1/rank0" --verify "$1" > "$WORK/verify.out" 2>&1; }
verify "$WORK/whole" || fail "--verify: $(cat "$WORK/verify.out")"
grep -q 'step 12: as they were saved' "$WORK/verify.out" || fail "--verify: $(cat "$WORK/verify.out")"
cp -r "$WORK/whole" "$WORK/changed"
printf x | dd of="$WORK/changed/model.safetensors" bs=1 seek=$(($(wc -c < "$WORK/changed/model.safetensors") - 3)) conv=notrunc status=none
! verify "$WORK/changed" || fail "--verify: a changed byte is not seen"
grep -q 'optim\..*: its bytes have changed' "$WORK/verify.out" || fail "--verify: $(cat "$WORK/verify.out")"

# ---- killed ----------------------------------------------------------------------------------------

# A chain of jobs: each goes on from where the one before was killed, saves at every step, in turns in one
# file and in several, and is killed at some instant. The end is that of one job that was let alone.
# A job that comes to its last step on a busy machine ends by itself; most have to be killed.
doze() { read -rt "$1" <> <(:) || true; }
# wait_for_save FOLDER JOB: until the job, which now holds the folder, writes a new file there, or has ended.
# What the job before has left is not touched here: each job is to remove it.
holder=
wait_for_save() {
  local i token
  for ((i = 0; i < 3000; i++)); do
    token=$(sed -n 2p "$1/.tpgen.lock" 2> /dev/null) || true
    [ -n "$token" ] && [ "$token" != "$holder" ] && compgen -G "$1/.model*.$token.tmp" > /dev/null && break
    kill -0 "$2" 2> /dev/null || break
    doze 0.01
  done
  holder=$token
  [ $i -lt 3000 ]
}
# chain NAME FOLDER JOBS STEPS: a job does so many steps at most, however late its kill comes.
chain() {
  local name=$1 into=$2 jobs=$3 steps=$4 i load=() pid reached killed=0
  RANDOM=$((seed + jobs))
  mkdir "$WORK/$into"
  for ((i = 0; i < jobs; i++)); do
    [ -z "$(find "$WORK/$into" -name 'model.safetensors*')" ] || load=(--load "$WORK/$into")
    command_of "$name" "${load[@]}" --steps $(((i + 1) * steps)) --save "$WORK/$into" --save-every 1 \
      --shard-bytes $((i % 3 ? 4000 : 1 << 30))
    pid=$(setsid "${command[@]}" > "$WORK/$into.out" 2>&1 < /dev/null & echo $!) # no child of this shell
    wait_for_save "$WORK/$into" "$pid" || fail "$into: job $i saves nothing: $(tail -n 1 "$WORK/$into.out")"
    doze "0.$(printf %03d $((RANDOM % 80)))"
    ! pkill -KILL -s "$pid" || killed=$((killed + 1))
    while pgrep -s "$pid" > /dev/null; do doze 0.01; done
  done
  ! job "$name" "$into" --load "$WORK/$into" --steps 0 || fail "$into: it stands at step 0"
  [ $((2 * killed)) -gt "$jobs" ] || fail "$into: $killed of $jobs jobs are killed: $(tail -n 1 "$WORK/$into.out")"
  reached=$(sed -n 's/.*its training has done step \([0-9]*\),.*/\1/p' "$WORK/$into.out")
  [ "${reached:-0}" -gt $((jobs / 4)) ] || fail "$into: it has come to step '${reached:-}' in $jobs jobs"
  run "$name" "$into" --load "$WORK/$into" --steps $((reached + 3)) --save "$WORK/$into"
  run "$name" "$into.alone" --steps $((reached + 3)) --save "$WORK/$into.alone" --log-every 1000
  same "$into/model.safetensors" "$into.alone/model.safetensors" "$into: other bits"
  [ "$(find "$WORK/$into" -mindepth 1 | wc -l)" -eq 1 ] || fail "$into: files are left: $(ls -A "$WORK/$into")"
  echo "  $name, $into: $killed jobs killed, $((reached + 3)) steps, the bits of one job"
}
beside "$WORK/one.log" chain tp1 one $((kills / 2)) 200
beside "$WORK/another.log" chain tp1 another $((kills - kills / 2)) 200
beside "$WORK/two.log" chain tp2 two $((kills / 8)) 40
all_are_done
cat "$WORK"/{one,another,two}.log

# ---- what cannot be --------------------------------------------------------------------------------

# refused STATUS WORDS NAME ARGUMENTS...: it ends with that status and one message with these words.
refused() {
  local expected=$1 words=$2 status=0
  shift 2
  job "$1" refused "${@:2}" || status=$?
  [ $status -eq "$expected" ] || fail "$*: status $status, not $expected"
  grep -qF -- "$words" "$WORK/refused.out" || fail "$*: says nothing of '$words': $(cat "$WORK/refused.out")"
  [ "$(grep -c 'error:' "$WORK/refused.out")" -le 1 ] || fail "$*: more than one message: $(cat "$WORK/refused.out")"
}
cp "$WORK/half/model.safetensors" "$WORK/before"
mkdir "$WORK/theirs"
echo '{"weight_map": {"w": "model-00001-of-00002.safetensors"}}' > "$WORK/theirs/model.safetensors.index.json"
refused 1 "it holds model.safetensors.index.json, which no checkpoint or export of such a program wrote" tp2 --save "$WORK/theirs"
refused 1 "it holds model.safetensors.index.json, which no checkpoint" tp2 --export "$WORK/theirs"
refused 1 "--weights come from this folder" tp2 --weights "$WORK/half" --save "$WORK/half"
refused 1 "--weights come from this folder" tp2 --weights "$WORK/half/model.safetensors" --export "$WORK/half"
refused 1 "its bytes have changed since they were saved" tp3 --load "$WORK/changed"
run tp2 insisting --load "$WORK/changed" --no-verify --steps 13
refused 2 "--verify looks at a checkpoint, and nothing else" tp2 --verify "$WORK/half"
refused 1 "is to be the last: say more by --steps N" tp2 --load "$WORK/half" --steps 5
refused 1 "the folder has neither model.safetensors nor" tp2 --load "$WORK"
refused 1 "it has no optim.exp_avg" tp2 --load "$WORK/from"
refused 1 "folders of their own" tp2 --save "$WORK/both" --export "$WORK/both/"
refused 1 "cannot make the directory: Not a directory" tp2 --save "$WORK/text.txt"
mkfifo "$WORK/fifo"
refused 1 "fifo: nobody reads this FIFO" tp2 --metrics "$WORK/fifo"
refused 1 "fifo: not a file but a FIFO" tp2 --data "$WORK/fifo"
refused 1 "fifo: not a file but a FIFO" tp2 --weights "$WORK/fifo"
refused 1 "cannot make the directory: Not a directory" tp2 --save "$WORK/fifo"
refused 2 "--weights and --load" tp1 --load "$WORK/half" --weights "$WORK/half"
refused 2 "--save-every wants --save" tp1 --save-every 3
refused 2 "--shard-bytes 5X: not a number" tp1 --save "$WORK/x" --shard-bytes 5X
refused 2 "--tokens is bytes, uint16 or uint32" tp1 --tokens utf8
head -c 20 "$WORK/text.txt" > "$WORK/short.txt"
refused 1 "short.txt: it has 20 bytes, but a batch of 20 needs at least 21" tp2 --data "$WORK/short.txt"
head -c 44 /dev/zero | tr '\0' '\377' > "$WORK/large.u16"
refused 1 "large.u16: token 0 is 65535, which is not below the vocabulary of 256" tp2 --data "$WORK/large.u16"
# Of all batches of all steps, before the first of them.
{ head -c 140 /dev/zero; printf '\377\377'; head -c 58 /dev/zero; } > "$WORK/late.u16"
refused 1 "late.u16: token 70 is 65535, which is not below the vocabulary of 256" tp2 --data "$WORK/late.u16" --steps 2
! grep -q 'step: 1' "$WORK/refused.out" || fail "a token of step 2 is looked at when step 1 is done"
same half/model.safetensors before "what was refused has changed a checkpoint"
finish "what was stopped, killed or carried to another mesh goes on with the same bits"
