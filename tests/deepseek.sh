#!/usr/bin/env bash
# plans/moe.lua has the losses and the norms of gradients of Hugging Face's DeepSeek-V3 and OLMoE (tests/golden/moe) from
# their files: five steps (SOAK=1: twenty). DeepSeek-V3 with a bias that stays, with one that balances the load, and with
# a capacity: then each step drops as many places as PyTorch. Every mesh has the losses of one rank.
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
finish "the losses of DeepSeek-V3 and OLMoE"
