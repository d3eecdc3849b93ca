#!/usr/bin/env bash
# plans/moe.lua has the losses and the norms of gradients of Hugging Face's DeepSeek-V3 and OLMoE (tests/golden/moe) from
# their files: five steps (SOAK=1: twenty). DeepSeek-V3 with a bias that stays, with one that balances the load, and with
# a capacity: then each step drops as many places as PyTorch. Every mesh has the losses of one rank, and writes files that
# Hugging Face reads.
. "$(dirname "$0")/moe_runs.sh"

# of_section SECTION: its settings.
of_section() {
  case $1 in
  balanced) echo -D bias_balance=0.01 ;;
  capacity) echo -D bias_balance=0 -D capacity=1.0 ;;
  without_aux) echo -D bias_balance=0 ;;
  esac
}

make_runtimes plain cuda
train_moe olmoe plain olmoe without_aux
for section in without_aux balanced capacity; do
  # shellcheck disable=SC2046
  train_moe $section plain deepseek_v3 $section $(of_section $section)
done
while read -r name kind section arguments; do
  # shellcheck disable=SC2046,SC2086
  train_moe "$name" "$kind" deepseek_v3 "$section" $(of_section "$section") $arguments
  same_as_one "$name" "$section"
done << 'END'
tp2 plain without_aux -D tp=2
ep2_tp2 plain without_aux -D dp=2 -D ep=2 -D tp=2
ep2 plain balanced -D dp=2 -D ep=2
ep2_fsdp2 plain balanced -D dp=4 -D ep=2
ep4 plain capacity -D dp=4 -D ep=4
ep2_tp2c plain capacity -D dp=2 -D ep=2 -D tp=2
cuda_ep2 cuda balanced -D dp=2 -D ep=2
cuda_ep2c cuda capacity -D dp=2 -D ep=2
END
train_moe olmoe_tp2 plain olmoe without_aux -D dp=2 -D ep=2 -D tp=2
same_as_one olmoe_tp2 olmoe

# exports NAME TO STEPS ARGUMENTS...: the program writes the model's folder TO.hf.
exports() {
  start "$WORK/$1" "$WORK/$2" --data "$llama/text.txt" --steps "$3" --export "$WORK/$2.hf" "${@:4}" || fail "$2: no run"
}
# same_files NAME ONE OTHER WITHIN LIKE_ONE...: they have the same tensors, by name, type, shape and, within so much, value.
same_files() {
  "$TOOLS/compare_safetensors" "$2/model.safetensors" "$3/model.safetensors" "${@:4}" || fail "$1: another file"
}

# What programs write is what Hugging Face wrote: a tensor for each expert, the router with its bias, the shared ones. A
# checkpoint has the experts in one tensor, and is read on any mesh. After two steps files differ as the rounding errors of
# the first one have grown, in which AdamW takes an element's sign.
original=$moe/deepseek_v3
like=()
for i in 1 2 3; do
  "$TOOLS/perturb_weights" "$original/model.safetensors" "$WORK/like$i" $i
  exports balanced like$i.trained 2 --weights "$WORK/like$i" --no-verify
  like+=("$WORK/like$i.trained.hf/model.safetensors")
done
for name in balanced ep2 $(more echo ep2_fsdp2 cuda_ep2); do
  exports $name $name.kept 0 --weights "$original"
  same_files "$name, no step" "$original" "$WORK/$name.kept.hf" 0
  exports $name $name.trained 2 --weights "$original"
  same_files "$name, two steps" "$WORK/balanced.trained.hf" "$WORK/$name.trained.hf" 2e-5 "${like[@]}"
done
tr ',' '\n' < "$WORK/ep2.kept.saved/model.safetensors" | finds -a '^ *"layers.1.mlp.experts.gate_proj":' || fail "no tensor of all experts"
exports balanced from_ep2 0 --load "$WORK/ep2.kept.saved"
same_files "one rank from two" "$original" "$WORK/from_ep2.hf" 0
! "$TOOLS/compare_safetensors" "$original/model.safetensors" "$WORK/ep2.trained.hf/model.safetensors" 1e-3 2> "$WORK/apart" ||
  fail "two steps change nothing"
finish "the losses of DeepSeek-V3 and OLMoE"
