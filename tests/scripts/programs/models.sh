#!/usr/bin/env bash
# The plans for models of Hugging Face transformers have its losses (tests/golden/models), from its config.json
# and weights: 20 steps, on one rank and on meshes (of a plan's further models on one); GPT-2 also on the stand-in
# for CUDA.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
. "$root/tests/scripts/hugging_face.sh"
steps=20
models=$golden/models
for kind in plain cuda; do
  make_runtime $kind > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime of $kind programs"; }
done

all=(tp=1 $(in_ci echo tp=2 dp=2) dp=2,tp=2)
few=(dp=2,tp=2) # of models whose plan another one tries on all
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
