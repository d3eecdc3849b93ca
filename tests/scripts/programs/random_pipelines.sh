#!/usr/bin/env bash
# Random pipelines equal one rank: of each random model (pipeline/random.lua) some trials, which are random meshes,
# schedules, stages and micro-batches, have the losses and norms of gradients of one rank, and the weights in the
# end. No trial may be refused.
#   PIPELINE_MODELS=400   so many models, not 3 (CASES=all: 8, SOAK=1: 400)
#   PIPELINE_TRIALS=5     so many trials of each
#   PIPELINE_FIRST=1000   the first model
#   PIPELINE_ONLY=3       this trial of each alone
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
export OMP_NUM_THREADS=1
plan=tests/plans/pipeline/random.lua
models=${PIPELINE_MODELS:-${SOAK:+400}} trials=${PIPELINE_TRIALS:-5} first=${PIPELINE_FIRST:-1}
models=${models:-$(all_cases && echo 8 || echo 3)}
make_runtimes plain

# run NAME ARGUMENTS...: the plan's program, in $WORK/NAME, with its losses and norms in NAME.numbers.
run() {
  local to=$WORK/$1
  "$TPGEN" $plan -o "$to" "${@:2}" && make_ranks "$to" plain || { fail "${*:2}: no program"; return 1; }
  start "$to" "$to" || { fail "${*:2}: no run"; return 1; }
  { numbers loss "$to.jsonl"; numbers grad_norm "$to.jsonl"; } > "$to.numbers"
}

# check_model NUMBER: its trials against one rank.
check_model() {
  local one=$1.one within=5e-7 weights=2e-5 trial name
  run "$one" -D model="$1" || return 0
  ! grep -q ' bf16,' "$WORK/$one/plan.txt" || { within=0.0039 weights=; echo "  in bfloat16"; }
  for trial in ${PIPELINE_ONLY:-$(seq "$trials")}; do
    name=$1.$trial
    run "$name" -D model="$1" -D trial=$trial || continue
    sed -n 's/^\(mesh\|pipeline\) */  /p' "$WORK/$name/plan.txt"
    same_losses "$name" "$WORK/$name.numbers" "$WORK/$one.numbers" "$within"
    [ -z "$weights" ] || "$TOOLS/compare_safetensors" "$WORK/$one.saved/model.safetensors" \
      "$WORK/$name.saved/model.safetensors" $weights || fail "$name: other weights"
    rm -rf "${WORK:?}/$name"{,.saved}
  done
  rm -rf "${WORK:?}/$one"{,.saved}
}

for ((model = first; model < first + models; model++)); do
  beside "$WORK/$model.log" check_model $model
done
# One more: backwards whole and in two parts, with receives whose place is in no slot.
[ "$first" != 1 ] || PIPELINE_ONLY=2 beside "$WORK/114.log" check_model 114
all_are_done
grep -h -B 2 -A 4 FAILED "$WORK"/*.log || true
finish "$((models * trials)) pipelines of $models models, at most $(sed -n 's/.* at most \(.*\) apart/\1/p' \
  $(grep -L bfloat16 "$WORK"/*.log) | sort -g | tail -n 1) apart"
