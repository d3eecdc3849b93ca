#!/usr/bin/env bash
# The plans of plans/ on meshes that divide nothing evenly: samples, micro-batches of unlike sizes, parts of parameters, some
# of them empty. They have the losses and norms of one rank; what they save is verified, read by one rank, which goes on from
# there with the same losses, and exported: the same numbers.
#   SHIPPED="gpt2 moe"   these plans alone
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
export OMP_NUM_THREADS=1
models=$golden/models
make_runtimes plain

# make_and_run NAME PLAN ARGUMENTS...: two steps, with `data`; their losses and norms are in NAME.numbers.
make_and_run() {
  local to=$WORK/$1
  "$TPGEN" "plans/$2.lua" -o "$to" "${@:3}" 2> "$to.notes" && make_ranks "$to" plain && start "$to" "$to" --steps 2 "${data[@]}" ||
    { cat "$to.notes"; fail "$1: no program, or it failed"; return 1; }
  { numbers loss "$to.jsonl"; numbers grad_norm "$to.jsonl"; } > "$to.numbers"
}

# check NAME PLAN ARGUMENTS ... / MESH ...: what stands behind the slash is for the mesh alone.
check() {
  local name=$1 plan=$2 arguments=() data=() program
  [ "$plan" != bert ] || data=(--data "$models/bert/batch.safetensors")
  shift 2
  while [ "$1" != / ]; do arguments+=("$1"); shift; done
  shift
  make_and_run "$name.one" "$plan" "${arguments[@]}" && make_and_run "$name" "$plan" "${arguments[@]}" "$@" || return 0
  same_losses "$name" "$WORK/$name.numbers" "$WORK/$name.one.numbers" 2e-5
  same_files "$name" "$name.one" "${data[@]}"
  for program in "$name" "$name.one"; do
    "$WORK/$program/ranks" --load "$WORK/$name.saved" "${data[@]}" --steps 4 --metrics "$WORK/$program.on.jsonl" < /dev/null > "$WORK/$program.on.out" 2>&1 ||
      fail "$program: does not go on from the checkpoint"
    losses_of "$WORK/$program.on.jsonl" > "$WORK/$program.on.losses"
  done
  same_losses "$name, goes on" "$WORK/$name.on.losses" "$WORK/$name.one.on.losses" 2e-5
  [ "$failures" -ne 0 ] || rm -rf "${WORK:?}/$name"{,.one}{,.saved}
}

# The first mesh of a plan in each run, the others in CI.
seen=' ' n=0
while read -r plan arguments; do
  name=$plan
  [[ -z ${SHIPPED:-} || " $SHIPPED " == *" $plan "* ]] || continue
  case $plan in
  gpt2 | gpt_neox | falcon | phi3 | bert | vit | resnet) arguments="-D config=$models/$plan/config.json $arguments" ;;
  qwen) arguments="-D config=$models/qwen3/config.json $arguments" ;;
  gemma) arguments="-D config=$models/gemma2/config.json $arguments" ;;
  moe | deepseek) arguments="${arguments/MODELS/$golden}" plan=moe ;;
  esac
  if [[ $seen == *" $name "* ]]; then ci_cases || continue; fi
  seen+="$name "
  # shellcheck disable=SC2086  # the arguments are words
  beside "$WORK/$((++n)).log" check "$name.$n" $plan $arguments
done << 'END'
gpt2 -D seq=8 -D batch=5 / -D tp=2 -D microbatches=3
gpt2 -D seq=8 -D batch=8 / -D dp_shard=3 -D microbatches=2
gpt2 -D seq=8 -D batch=5 / -D tp=2 -D sp=true -D microbatches=2
gpt2 -D seq=8 -D batch=5 / -D pp=2 -D tp=2 -D sp=true -D microbatches=3
gpt2 -D seq=9 -D batch=5 / -D pp=2 -D dp_shard=2 -D microbatches=2
qwen -D seq=8 -D batch=5 / -D tp=2 -D microbatches=2
llama3 -D preset=debug -D n_layers=3 -D seq=8 -D batch=7 / -D tp=2 -D pp=2 -D microbatches=3
llama3 -D preset=debug -D n_layers=3 -D seq=8 -D batch=5 / -D dp_shard=3 -D tp=2
llama3 -D preset=debug -D n_layers=3 -D seq=9 -D batch=5 / -D cp=2 -D dp_shard=2 -D microbatches=2
gemma -D seq=8 -D batch=3 / -D tp=2 -D microbatches=2
phi3 -D seq=8 -D batch=5 / -D tp=2 -D dp_shard=2 -D microbatches=2
gpt_neox -D seq=8 -D batch=3 / -D tp=2 -D microbatches=2
falcon -D seq=8 -D batch=3 / -D tp=2 -D microbatches=2
bert -D batch=4 / -D tp=3 -D microbatches=3
vit -D batch=5 / -D tp=2 -D dp_shard=2
resnet -D image=32 -D batch=5 / -D dp_shard=3
moe -D config=MODELS/moe/mixtral/config.json -D seq=8 -D batch=6 -D aux_loss=0 / -D tp=2 -D pp=2 -D microbatches=4
moe -D config=MODELS/moe/mixtral/config.json -D seq=8 -D batch=6 -D aux_loss=0 / -D dp=2 -D ep=2 -D microbatches=2
deepseek -D config=MODELS/moe/deepseek_v3/config.json -D seq=8 -D batch=8 / -D dp_shard=8
deepseek -D config=MODELS/moe/deepseek_v3/config.json -D seq=8 -D batch=5 / -D dp_shard=5
END
all_are_done
cat "$WORK"/*.log
finish "plans of plans/ are equal to one rank on uneven meshes, and so are their files"
