#!/usr/bin/env bash
# plans/moe.lua in stages of a pipeline and in micro-batches, beside ep, tp and fully sharded data parallel: the losses and
# norms of gradients of Hugging Face's models (tests/golden/moe), and those of one rank. Micro-batches
# may differ in size. The load balancing loss takes its
# means over the samples of a micro-batch of a rank, as Hugging Face's over those of a forward; one rank does so with
# aux_batch. A bias that balances the load takes the places of all micro-batches, or of all batches of a step.
. "$(dirname "$0")/moe_runs.sh"

make_runtimes plain cuda
train_moe none plain mixtral without_aux
train_moe aux4 plain mixtral with_aux -D aux_batch=4
train_moe aux2 plain mixtral with_aux_of_2 -D aux_batch=2
train_moe aux1 plain mixtral with_aux_of_1 -D aux_batch=1
train_moe qwen plain qwen3_moe without_aux
train_moe dropped plain deepseek_v3 capacity -D bias_balance=0 -D capacity=1.0
train_moe balanced plain deepseek_v3 balanced -D bias_balance=0.01
for batch in 6 $(more echo 8); do train_moe of$batch plain mixtral batch_$batch -D batch=$batch; done
for batch in $(more echo 6 8); do
  train_moe dropped$batch plain deepseek_v3 batch_$batch -D batch=$batch -D bias_balance=0 -D capacity=1.0
done
more train_moe of6_aux1 plain mixtral batch_6 -D batch=6 -D aux_loss=0.02 -D aux_batch=1

# compare ONE NAME KIND MODEL SECTION ARGUMENTS...: ONE is of one rank.
compare() {
  train_moe "${@:2}"
  same_as_one "$2" "$1"
  within=(2e-6 2e-6)
  near "$2 norm, one rank" "$WORK/$2.grad_norm" "$WORK/$1.grad_norm"
}
while read -r one name kind model section arguments; do
  case $name in
  uneven_ep2 | uneven_cuda) ;;
  *uneven* | dropped_ep2_cuda | dropped_pp2_ep2) all_cases || continue ;;
  esac
  # shellcheck disable=SC2086
  beside "$WORK/$name.log" compare "$one" "$name" "$kind" "$model" "$section" $arguments
done << 'END'
none pp2 plain mixtral without_aux -D pp=2 -D schedule=gpipe -D microbatches=4
aux2 pp2_aux plain mixtral with_aux_of_2 -D pp=2
none pp2_ep2 plain mixtral without_aux -D pp=2 -D dp=2 -D ep=2
aux1 pp2_ep2_aux plain mixtral with_aux_of_1 -D pp=2 -D dp=2 -D ep=2
qwen pp2_ep2_tp2 plain qwen3_moe without_aux -D pp=2 -D dp=2 -D ep=2 -D tp=2
none pp2_fsdp2 plain mixtral without_aux -D pp=2 -D dp_shard=2 -D microbatches=2
aux1 ep2_parts plain mixtral with_aux_of_1 -D dp=2 -D ep=2 -D microbatches=2
aux1 zero_bubble plain mixtral with_aux_of_1 -D pp=2 -D dp=2 -D ep=2 -D schedule=interleaved_zero_bubble
none parts4 plain mixtral without_aux -D microbatches=4
none accumulated plain mixtral without_aux -D batch=2 -D accumulate=2
none accumulated_pp2 plain mixtral without_aux -D batch=2 -D accumulate=2 -D pp=2 -D microbatches=2
dropped dropped_parts plain deepseek_v3 capacity -D bias_balance=0 -D capacity=1.0 -D dp=2 -D microbatches=2
dropped dropped_ep2_parts plain deepseek_v3 capacity -D bias_balance=0 -D capacity=1.0 -D dp=2 -D ep=2 -D microbatches=2
dropped dropped_ep2_cuda cuda deepseek_v3 capacity -D bias_balance=0 -D capacity=1.0 -D dp=2 -D ep=2 -D microbatches=2
dropped dropped_pp2_ep2 plain deepseek_v3 capacity -D bias_balance=0 -D capacity=1.0 -D pp=2 -D dp=2 -D ep=2
dropped6 dropped_uneven plain deepseek_v3 batch_6 -D batch=6 -D bias_balance=0 -D capacity=1.0 -D dp=2 -D ep=2 -D microbatches=2
dropped8 dropped_uneven_ep3 plain deepseek_v3 batch_8 -D batch=8 -D bias_balance=0 -D capacity=1.0 -D dp=3 -D ep=3 -D microbatches=2
dropped8 dropped_uneven_cuda cuda deepseek_v3 batch_8 -D batch=8 -D bias_balance=0 -D capacity=1.0 -D dp=3 -D ep=3 -D pp=2
dropped dropped_pp2 plain deepseek_v3 capacity -D bias_balance=0 -D capacity=1.0 -D pp=2 -D tp=2
aux1 cuda_pp2_ep2 cuda mixtral with_aux_of_1 -D pp=2 -D dp=2 -D ep=2
none cuda_ep2_parts cuda mixtral without_aux -D dp=2 -D ep=2 -D microbatches=2
balanced balanced_parts plain deepseek_v3 balanced -D bias_balance=0.01 -D dp=2 -D ep=2 -D microbatches=2 -D bound=1.9
balanced balanced_twice plain deepseek_v3 balanced -D bias_balance=0.01 -D batch=2 -D accumulate=2 -D tp=2
balanced balanced_fsdp2 plain deepseek_v3 balanced -D bias_balance=0.01 -D dp_shard=2 -D microbatches=2
balanced balanced_pp2 plain deepseek_v3 balanced -D bias_balance=0.01 -D pp=2 -D dp=2 -D ep=2 -D bound=1.9
of6 uneven_ep2 plain mixtral batch_6 -D batch=6 -D dp=2 -D ep=2 -D microbatches=2 -D bound=1.9
of6 uneven_cuda cuda mixtral batch_6 -D batch=6 -D dp=2 -D ep=2 -D microbatches=2 -D bound=1.95
of8 uneven_ep3 plain mixtral batch_8 -D batch=8 -D dp=3 -D ep=3 -D microbatches=2 -D bound=2.9
of8 uneven_ep3_cuda cuda mixtral batch_8 -D batch=8 -D dp=3 -D ep=3 -D microbatches=2
of6 uneven_pp2 plain mixtral batch_6 -D batch=6 -D dp=2 -D ep=2 -D pp=2 -D bound=1.95
of6 uneven_pp2_cuda cuda mixtral batch_6 -D batch=6 -D dp=2 -D ep=2 -D pp=2
of8 uneven_pp2_ep3 plain mixtral batch_8 -D batch=8 -D dp=3 -D ep=3 -D pp=2
of6 uneven_tp2 plain mixtral batch_6 -D batch=6 -D dp=2 -D ep=2 -D tp=2 -D microbatches=2
of8 uneven_fsdp2 plain mixtral batch_8 -D batch=8 -D dp_shard=4 -D ep=2 -D microbatches=2
of6_aux1 uneven_aux plain mixtral batch_6 -D batch=6 -D dp=2 -D ep=2 -D microbatches=2 -D aux_loss=0.02 -D aux_batch=1
balanced cuda_balanced cuda deepseek_v3 balanced -D bias_balance=0.01 -D pp=2
END
all_are_done
cat "$WORK"/*.log

# refused MESSAGE ARGUMENTS...
refused() {
  ! "$TPGEN" plans/moe.lua -o "$WORK/refused" "${@:2}" 2> "$WORK/refused.log" || fail "${*:2}: taken"
  grep -qF "$1" "$WORK/refused.log" || { cat "$WORK/refused.log"; fail "${*:2}: another message"; }
}
refused 'say aux_batch' -D pp=2 -D batch=3 -D aux_loss=0.01
refused 'cannot be divided into groups of load_batch = 3' -D batch=4 -D aux_loss=0.01 -D aux_batch=3
refused '2147483648 rows by expert may come to a rank' -D ep=2 -D dp=2 -D batch=16777216 -D seq=64
finish "stages and micro-batches of mixtures of experts"
