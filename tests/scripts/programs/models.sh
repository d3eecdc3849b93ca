#!/usr/bin/env bash
# The plans for models of Hugging Face transformers have its losses (tests/golden/models), from its config.json
# and weights: 20 steps, on one rank and on meshes (of a plan's further models on one); GPT-2 also on the stand-in
# for CUDA. MODELS: only these.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
export OMP_NUM_THREADS=1
steps=20
within=(${WITHIN:-2e-5 2e-4})
models=$golden/models
for kind in plain cuda; do
  make_runtime $kind > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime of $kind programs"; }
done

# trains MODEL PLAN KIND MESH ARGUMENTS...: MESH is as dp=2,tp=2.
trains() {
  local of=$models/$1 kind=$3 name=$1.$3.$4 arguments=(-D config="$models/$1/config.json" -D batch=4)
  [[ " $* " == *" lr="* ]] || arguments+=(-D lr=1e-2)
  local to=$WORK/$name mesh data
  IFS=, read -ra mesh <<< "$4"
  [ "$kind" != cuda ] || arguments+=(--target cuda)
  data=$of/batch.safetensors
  [ -e "$data" ] || data=$of/tokens.u16
  "$TPGEN" "plans/$2.lua" -o "$to" "${arguments[@]}" "${mesh[@]/#/-D}" "${@:5}" && make_ranks "$to" "$kind" &&
    start "$to" "$to" --weights "$of/model.safetensors" --data "$data" --steps $steps ||
    { fail "$name: no program, or it failed"; return; }
  numbers loss "$to.jsonl" > "$to.loss"
  tr -d '[] ' < "$of/losses.json" | tr , '\n' > "$to.golden"
  echo >> "$to.golden"
  near "$name" "$to.loss" "$to.golden"
}

# on_meshes MODEL PLAN ARGUMENTS...: on those in `meshes`.
all=(tp=1 $(in_ci echo tp=2 dp=2) dp=2,tp=2)
few=(dp=2,tp=2) # of models whose plan another one tries on all
on_meshes() {
  local mesh
  [[ -z ${MODELS:-} || " $MODELS " == *" $1 "* ]] || return 0
  for mesh in "${meshes[@]}"; do beside "$WORK/$1.$mesh.log" trains "$1" "$2" plain $mesh "${@:3}"; done
}

meshes=("${all[@]}")
on_meshes gpt2 gpt2
on_meshes qwen2 qwen -D seq=16
on_meshes qwen3 qwen -D seq=16
on_meshes llama llama3 -D seq=16
on_meshes gemma2 gemma -D seq=16
for model in phi3 gpt_neox falcon; do on_meshes $model $model -D seq=16; done
on_meshes bert bert
on_meshes vit vit
on_meshes resnet resnet -D image=32 -D lr=1e-3
meshes=("${few[@]}")
for model in qwen2_window mistral; do on_meshes $model qwen -D seq=16; done
on_meshes gemma gemma -D seq=16
on_meshes phi3_long phi3 -D seq=16
on_meshes llama_dynamic llama3 -D seq=16
on_meshes falcon_groups falcon -D seq=16
on_meshes bert_classes bert -D classes=3
on_meshes resnet_basic resnet -D image=32 -D lr=1e-3
[[ -n ${MODELS:-} ]] || beside "$WORK/gpt2.cuda.log" trains gpt2 gpt2 cuda dp=2,tp=2
all_are_done
cat "$WORK"/*.log
finish "the losses are those of Hugging Face's models"
