#!/usr/bin/env bash
# Validations, against PyTorch: the mean loss over all labels that count, on meshes and on the stand-in, where the
# last batch is smaller and where a step takes several; without dropout, and by the running statistics of a batch
# norm; the best checkpoint and others kept; an end when nothing gets better, also behind a checkpoint.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
plan=tests/plans/data_sets/plan.lua
data=$golden/data_sets
make_runtimes plain cuda
given=(--weights "$data/model.safetensors" --data "$data/data.safetensors")
normed=(--weights "$data/normed.safetensors" --data "$data/data.safetensors")
held=(--validate "$data/validation.safetensors")

# Every line of metrics is JSON.
validated() { sed -n 's/.*"validation_loss": *\([-+.0-9eE]*\),.*/\1/p' "$1.jsonl"; }

# validates NAME KIND WAY ARGUMENTS...: what training tells of validations is PyTorch's, and of itself, too.
validates() {
  local name=$1 kind=$2 way=$3
  make "$name" "$kind" $plan "${@:4}" || return
  local of=("${given[@]}")
  [ "$way" != normed ] || of=("${normed[@]}")
  start "$WORK/$name" "$WORK/$name" "${of[@]}" "${held[@]}" --validate-every 4 "${more[@]}" || { fail "$name"; return; }
  golden_line "$data/losses.tsv" "$way" > "$WORK/$name.golden"
  same_losses "$name" "$WORK/$name.losses" "$WORK/$name.golden" 1e-5
  golden_line "$data/validation.tsv" "$way" > "$WORK/$name.golden"
  [ "$(validated "$WORK/$name" | wc -l)" -eq 5 ] || fail "$name: $(validated "$WORK/$name" | wc -l) validations, not 5"
  validated "$WORK/$name" | head -n 4 > "$WORK/$name.validated"
  same_losses "$name" "$WORK/$name.validated" "$WORK/$name.golden" 1e-5
}
more=()
beside "$WORK/one.log" validates one plain smaller -D last=smaller
beside "$WORK/mesh.log" validates mesh plain shuffled -D last=smaller -D shuffle=5 -D dp=2 -D tp=2
beside "$WORK/measured.log" validates measured plain smaller -D last=smaller -D measured=true -D dp=2 -D microbatches=2 -D every=4
beside "$WORK/uneven.log" validates uneven plain shuffled_dropped -D last=dropped -D shuffle=5 -D dp=3
beside "$WORK/square.log" validates square plain square -D last=smaller -D shuffle=5 -D loss=mse -D dp=2
beside "$WORK/large.log" validates large plain large -D last=smaller -D batch=30 -D dp=2
beside "$WORK/accumulated.log" validates accumulated plain accumulated -D last=smaller -D shuffle=5 -D accumulate=2 \
  -D dp=2 -D every=7
beside "$WORK/means.log" validates means plain accumulated_means -D last=smaller -D shuffle=5 -D accumulate=2 \
  -D mean=batches -D dp=3 -D every=7
beside "$WORK/on_stand_in.log" validates on_stand_in cuda shuffled -D last=smaller -D shuffle=5 -D dp=2
beside "$WORK/accumulated_cuda.log" validates accumulated_cuda cuda accumulated -D last=smaller -D shuffle=5 \
  -D accumulate=2 -D tp=2 -D every=7
# A batch norm: by what its buffers hold, and they stay as they are.
beside "$WORK/normed.log" validates normed plain normed -D last=dropped -D shuffle=5 -D norm=1
beside "$WORK/normed_dp.log" validates normed_dp plain normed -D last=dropped -D shuffle=5 -D norm=1 -D dp=2
beside "$WORK/normed_mesh.log" validates normed_mesh plain normed -D last=dropped -D shuffle=5 -D norm=1 -D dp=2 -D tp=2
beside "$WORK/normed_sharded.log" validates normed_sharded plain normed -D last=dropped -D shuffle=5 -D norm=1 -D dp=2 -D zero=3
beside "$WORK/normed_cuda.log" validates normed_cuda cuda normed -D last=dropped -D shuffle=5 -D norm=1 -D dp=2
more=(--graph)
beside "$WORK/graph.log" validates graph cuda shuffled -D last=smaller -D shuffle=5 -D tp=2
all_are_done
cat "$WORK"/{one,mesh,measured,uneven,square,large,accumulated,means,on_stand_in,accumulated_cuda,normed,normed_dp,normed_mesh,normed_sharded,normed_cuda,graph}.log

# The plan tells it all; a command line tells it otherwise.
make by_plan plain $plan -D last=smaller -D every=6 -D validation="$data/validation.safetensors" -D batches=1
start "$WORK/by_plan" "$WORK/by_plan" "${given[@]}" || fail "by_plan"
[ "$(grep -o '"step":[0-9]*,"validation_loss"' "$WORK/by_plan.jsonl" | tr -dc '0-9\n' | xargs)" = "6 12 18" ] || fail "by_plan: not every 6 steps"
start "$WORK/by_plan" "$WORK/again" "${given[@]}" --validate-every 9 --validate-steps 3 || fail "by options"
[ "$(validated "$WORK/again" | wc -l)" -eq 2 ] || fail "by options: not every 9 steps"
! diff <(validated "$WORK/by_plan" | tail -n 1) <(validated "$WORK/again" | tail -n 1) > /dev/null ||
  fail "one batch has the loss of all three"

# ---- without dropout ------------------------------------------------------------------------------------

# Before the first step the loss is that of a program that has no dropout, to the bit; and training drops still.
for kind in plain cuda; do
  make dry$kind $kind $plan -D last=smaller
  make wet$kind $kind $plan -D last=smaller -D drop=0.5
  make many$kind $kind $plan -D last=smaller -D drop=0.5 -D accumulate=2 -D every=1
  for program in dry$kind wet$kind many$kind; do
    start "$WORK/$program" "$WORK/$program" "${given[@]}" "${held[@]}" --steps 0 || fail $program
    [ "$(validated "$WORK/$program")" = "$(validated "$WORK/dry$kind")" ] || fail "$program: another loss than without dropout"
  done
  start "$WORK/wet$kind" "$WORK/trained$kind" "${given[@]}" "${held[@]}" --validate-every 2 || fail "wet$kind"
  start "$WORK/wet$kind" "$WORK/plain$kind" "${given[@]}" || fail "wet$kind"
  cmp "$WORK/trained$kind.losses" "$WORK/plain$kind.losses" || fail "wet$kind: a validation changes the training"
  cmp -s "$WORK/wet$kind.losses" "$WORK/one.losses" && fail "wet$kind drops nothing"
done
# Nor do the buffers of a batch norm.
for name in normed normed_sharded normed_cuda; do
  start "$WORK/$name" "$WORK/$name.alone" "${normed[@]}" || fail "$name alone"
  cmp "$WORK/$name.losses" "$WORK/$name.alone.losses" || fail "$name: a validation changes the training"
  "$TOOLS/compare_safetensors" "$WORK/$name.saved/model.safetensors" "$WORK/$name.alone.saved/model.safetensors" 0 ||
    fail "$name: a validation changes what is saved"
done
# Inputs that no file gives come back behind it.
start "$WORK/dryplain" "$WORK/random" "${held[@]}" --validate-every 3 || fail random
start "$WORK/dryplain" "$WORK/undisturbed" || fail undisturbed
cmp "$WORK/random.losses" "$WORK/undisturbed.losses" || fail "random inputs do not come back"

# ---- metrics of a step of several batches -----------------------------------------------------------------

# A validation has one batch, which is all of each number: so a program of several batches validates as one of one batch, before
# the first step.
all_metrics() { # NAME KIND ARGUMENTS...
  make "$1" "$2" tests/plans/data_sets/metrics.lua -D validates=true "${@:3}" &&
    start "$WORK/$1" "$WORK/$1" --data "$data/data.safetensors" "${held[@]}" --steps 0 &&
    grep -o '"validation_.*"best_v' "$WORK/$1.jsonl" | grep -oE '[0-9.]+(e[-+][0-9]+)?' > "$WORK/$1.metrics" || fail "$1"
}
beside "$WORK/metrics_one.log" all_metrics metrics_one plain
beside "$WORK/metrics_many.log" all_metrics metrics_many plain -D accumulate=3 -D dp=2
beside "$WORK/metrics_cuda.log" all_metrics metrics_cuda cuda -D accumulate=2 -D microbatches=2
beside "$WORK/metrics_stages.log" all_metrics metrics_stages plain -D accumulate=2 -D pp=2
all_are_done
cat "$WORK"/metrics_*.log
[ "$(grep -c . "$WORK/metrics_one.metrics")" -ge 14 ] || fail "metrics_one: $(xargs < "$WORK/metrics_one.metrics")"
for name in many cuda stages; do same_losses "metrics_$name" "$WORK/metrics_$name.metrics" "$WORK/metrics_one.metrics" 1e-6; done

# ---- the moving average of the weights -------------------------------------------------------------------

# averages NAME KIND ARGUMENTS...: --ema validates what --export writes, and training goes on with the same bits.
averages() {
  local name=$1
  make "$name" "$2" $plan -D last=smaller -D ema=0.8 "${@:3}" || return
  start "$WORK/$name" "$WORK/$name" "${given[@]}" "${held[@]}" --validate-every 5 --ema --export "$WORK/$name.ema" || { fail "$name"; return; }
  start "$WORK/$name" "$WORK/$name.own" "${given[@]}" "${held[@]}" --validate-every 5 --export "$WORK/$name.last" || { fail "$name"; return; }
  "$TOOLS/compare_safetensors" "$WORK/$name.saved/model.safetensors" "$WORK/$name.own.saved/model.safetensors" 0 || fail "$name: --ema changes the training"
  local way
  for way in ema last; do
    start "$WORK/$name" "$WORK/$name.$way" --weights "$WORK/$name.$way" "${held[@]}" --steps 0 --ema || { fail "$name.$way"; return; }
  done
  [ "$(validated "$WORK/$name" | tail -n 1)" = "$(validated "$WORK/$name.ema")" ] || fail "$name: --ema validates other weights"
  [ "$(validated "$WORK/$name.own" | tail -n 1)" = "$(validated "$WORK/$name.last")" ] || fail "$name: a validation of other weights"
  ! diff <(validated "$WORK/$name") <(validated "$WORK/$name.own") > /dev/null || fail "$name: --ema changes nothing"
}
averages ema_one plain
averages ema_zero1 plain -D zero=1 -D dp=2
averages ema_zero2 plain -D zero=2 -D dp=3
averages ema_sharded plain -D zero=3 -D dp=2 -D tp=2
averages ema_cuda cuda -D zero=1 -D dp=2
validated "$WORK/ema_one" > "$WORK/averages.golden"
for name in zero1 zero2 sharded cuda; do
  validated "$WORK/ema_$name" > "$WORK/averages.validated"
  same_losses "ema_$name" "$WORK/averages.validated" "$WORK/averages.golden" 1e-5
done
# It goes on behind a checkpoint.
start "$WORK/ema_one" "$WORK/half" "${given[@]}" --steps 7 &&
  start "$WORK/ema_sharded" "$WORK/rest" --load "$WORK/half.saved" --data "$data/data.safetensors" --ema --export "$WORK/rest.ema" ||
  fail "an average behind a checkpoint"
"$TOOLS/compare_safetensors" "$WORK/rest.ema/model.safetensors" "$WORK/ema_one.ema/model.safetensors" 1e-5 ||
  fail "another average behind a checkpoint"

# ---- the best, the last, and the end ---------------------------------------------------------------------

# steps_in FOLDER: which step each of its checkpoints is of.
steps_in() {
  local folder
  for folder in "$1" "$1"/*/; do
    printf '%s:%s ' "$(basename "$folder")" "$(head -c 2000 "$folder/model.safetensors" | tr -d '\0' | grep -o '"step":"[0-9]*"' | tr -dc 0-9)"
  done
}
# Its loss is least after step 4.
keeps=("${held[@]}" --validate-every 4 --save-every 2 --keep best,2)
start "$WORK/large" "$WORK/kept" "${given[@]}" "${keeps[@]}" --stop-after 2 || fail "kept"
[ "$(steps_in "$WORK/kept.saved")" = "kept.saved:12 best:4 step-00000010:10 step-00000012:12 " ] ||
  fail "kept: $(steps_in "$WORK/kept.saved")"
grep -q '^step: 12  stops: 2 validations were no better than that of step 4$' "$WORK/kept.out" || fail "kept: $(tail -n 3 "$WORK/kept.out")"
[ "$(wc -l < "$WORK/kept.losses")" -eq 12 ] || fail "kept: $(wc -l < "$WORK/kept.losses") steps, not 12"
# It knows behind a checkpoint what was best; and the best one is a checkpoint as any.
start "$WORK/large" "$WORK/kept_on" --data "$data/data.safetensors" --load "$WORK/kept.saved" "${keeps[@]}" --stop-after 3 || fail "kept on"
[ "$(steps_in "$WORK/kept_on.saved")" = "kept_on.saved:16 step-00000014:14 step-00000016:16 " ] || fail "kept on: $(steps_in "$WORK/kept_on.saved")"
start "$WORK/large" "$WORK/from_best" --data "$data/data.safetensors" --load "$WORK/kept.saved/best" || fail "from the best"
tail -n 14 "$WORK/large.losses" | cmp - "$WORK/from_best.losses" || fail "the best goes on otherwise"
# A folder of other people's stays.
mkdir -p "$WORK/foreign.saved/best"
echo mine > "$WORK/foreign.saved/best/notes"
! start "$WORK/large" "$WORK/foreign" "${given[@]}" "${keeps[@]}" > /dev/null || fail "foreign: status 0"
grep -q 'best: no checkpoint is kept in its place: it holds notes' "$WORK/foreign.out" || fail "foreign: $(tail -n 2 "$WORK/foreign.out")"
[ "$(cat "$WORK/foreign.saved/best/notes")" = mine ] || fail "foreign: it has removed what is not its own"

# ---- metrics of the plan's -------------------------------------------------------------------------------

# counts NAME KIND ARGUMENTS...: ten samples of validation, four or three a batch, have the metrics of all ten at once.
counts() {
  make "$1" "$2" $plan -D counted=joined "${@:3}" && start "$WORK/$1" "$WORK/$1" "${given[@]}" "${held[@]}" --validate-every 5 \
    --best max:accuracy --keep best || { fail "$1"; return; }
  grep '"validation_loss"' "$WORK/$1.jsonl" > "$WORK/$1.counted"
}
counts counted_whole plain -D last=dropped -D shuffle=5 -D batch=10
counts counted plain -D last=dropped -D shuffle=5 -D batch=10 -D dp=2 -D microbatches=2
counts counted_cuda cuda -D last=dropped -D shuffle=5 -D batch=10 -D dp=2
counts counted_small plain -D last=dropped -D shuffle=5 -D batch=4 -D dp=2
counts counted_three plain -D shuffle=5 -D batch=3 -D last=smaller -D tp=2
for name in counted counted_cuda; do
  for number in loss accuracy hits $([ $name = counted ] || echo least greatest); do
    numbers "validation_$number" "$WORK/$name.counted" > "$WORK/$name.numbers"
    numbers "validation_$number" "$WORK/counted_whole.counted" > "$WORK/$name.whole"
    [ -s "$WORK/$name.numbers" ] || fail "$name: no $number"
    same_losses "$name" "$WORK/$name.numbers" "$WORK/$name.whole" 1e-5
  done
done
# evaluate NAME: the weights of counted_whole.
evaluate() {
  "$WORK/$1/ranks" --metrics "$WORK/$1.evaluated.jsonl" --weights "$WORK/counted_whole.saved/model.safetensors" \
    --evaluate "$data/validation.safetensors" > "$WORK/$1.evaluated.out" 2>&1
}
# Other sizes of batches train otherwise: the same weights are evaluated by all.
for name in counted_whole counted counted_cuda counted_small counted_three; do
  evaluate $name || fail "$name: --evaluate"
  ! grep -q '"loss"\|steps:' "$WORK/$name.evaluated.jsonl" "$WORK/$name.evaluated.out" || fail "$name: --evaluate trains"
  for number in loss accuracy hits $([ $name = counted ] || echo least greatest); do
    numbers "validation_$number" "$WORK/$name.evaluated.jsonl" > "$WORK/$name.numbers"
    numbers "validation_$number" "$WORK/counted_whole.evaluated.jsonl" > "$WORK/$name.whole"
    same_losses "$name" "$WORK/$name.numbers" "$WORK/$name.whole" 1e-5
  done
  grep -o '"validation_of_class":\[[^]]*' "$WORK/$name.evaluated.jsonl" | tr -d '[' | sed 's/.*://' | tr , '\n' > "$WORK/$name.classes"
  [ "$(wc -l < "$WORK/$name.classes")" -eq 5 ] || fail "$name: not five means by class"
  same_losses "$name" "$WORK/$name.classes" "$WORK/counted_whole.classes" 1e-5
done
# The best one is that with the most hits; a job that goes on knows it.
best=$(numbers validation_accuracy "$WORK/counted_small.counted" | sort -g | tail -n 1)
[ "$(numbers best_validation_accuracy "$WORK/counted_small.counted" | tail -n 1)" = "$best" ] || fail "counted_small: the best is not $best"
start "$WORK/counted_small" "$WORK/counted_on" --load "$WORK/counted_small.saved" "${held[@]}" --best max:accuracy --steps 19 || fail counted_on
[ "$(numbers best_validation_accuracy "$WORK/counted_on.jsonl" | awk -v best="$best" '{ print ($1 >= best) }')" = 1 ] ||
  fail "counted_on: the best of before is forgotten"
# A plan that does not say how has means, and of whole batches only.
make unsaid plain $plan -D counted=yes -D last=dropped -D shuffle=5 -D batch=4 -D dp=2
evaluate unsaid || fail unsaid
grep -q 'the metrics of validations leave out the last 2 samples' "$WORK/unsaid.evaluated.out" || fail "unsaid: no note"

# ---- what a job takes, and what TensorBoard reads -----------------------------------------------------------

# dry NAME KIND: it tells what it takes, and leaves nothing.
dry() {
  start "$WORK/$1" "$WORK/$1.dry" "${given[@]}" "${held[@]}" --keep best,3 --save-every 6 --dry-run > /dev/null || fail "$1: a dry run"
  local words
  for words in 'nothing is trained or saved' '^memory: .* of this rank.s are the program.s, .* all that it has had; a save takes .* more, for a copy$' \
    '^time: .* a step (3 measured), .* for 18 steps$' '^reads: .*model.safetensors$' '^reads: .*data.safetensors, 22 samples$' \
    '^reads: .*validation.safetensors, 10 samples, for [0-9]* batches a validation$' \
    '^writes: .*dry.saved: [0-9]* bytes a checkpoint, at most 5 at once; .* are free there$'; do
    grep -q -- "$words" "$WORK/$1.dry.out" || fail "$1: a dry run does not say '$words': $(cat "$WORK/$1.dry.out")"
  done
  [ ! -e "$WORK/$1.dry.saved" ] && [ ! -e "$WORK/$1.dry.jsonl" ] || fail "$1: a dry run leaves files"
}
dry mesh
dry on_stand_in
start "$WORK/one" "$WORK/events" "${given[@]}" "${held[@]}" --tensorboard "$WORK/events" --steps 3 || fail "events"
[ "$(cat "$WORK"/events/events.out.tfevents.* | grep -ao loss | wc -l)" -eq 5 ] ||
  fail "events: not the losses of three steps, that of a validation and the best"

# ---- what is refused -------------------------------------------------------------------------------------

# refuses NAME WORDS ARGUMENTS...
refuses() {
  ! start "$WORK/$1" "$WORK/$1.bad" "${@:3}" > /dev/null || fail "$1 ${*:3}: status 0"
  grep -qF -- "$2" "$WORK/$1.bad.out" || fail "$1 ${*:3}: not '$2': $(tail -n 3 "$WORK/$1.bad.out")"
}
refuses one "--keep best wants --validate FILE" --keep best
refuses one "--stop-after wants --validate FILE" --stop-after 3
refuses counted '--best max:recall: validations have no such number' "${held[@]}" --best max:recall
refuses counted '--best max:of_class: validations have no such number' "${held[@]}" --best max:of_class
refuses counted '--evaluate FILE trains nothing' --evaluate "$data/validation.safetensors"
refuses one "validation.none: cannot open" --validate "$WORK/validation.none"
refuses one "--ema: this program keeps no moving average of its weights" --ema --export "$WORK/none"
refuses ema_one "--ema wants --export, --export-adapter or --validate" --ema
make pending plain $plan -D last=smaller -D accumulate=2 -D dp=2
refuses pending "this program cannot validate: its loss is whole only after the last batch of a step. Say validate = {}" "${held[@]}"

finish "validations tell what PyTorch's do, and change nothing"
