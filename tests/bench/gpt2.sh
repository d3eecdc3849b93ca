#!/usr/bin/env bash
# A step of GPT-2 (dim 512, 8 layers, one sequence of 1,024 tokens, float32, AdamW) on this machine: tpgen's
# beside llm.c's train_gpt2.c with OpenMP, compiled as its Makefile does. Both begin with the same weights, in
# llm.c's file, take the same tokens, and run in turn. The least seconds of a step, the processor's seconds of a
# step (those of a longer run less those of a run of one step), and the losses, which must agree.
#   LLMC     a checkout of llm.c: github.com/karpathy/llm.c
#   ROUNDS   (2)
#   STEPS    of a run       (4)
set -euo pipefail
. "$(dirname "$0")/common.sh"
rounds=${ROUNDS:-$(short_or 1 2)} steps=${STEPS:-$(short_or 2 4)}
has_peer "llm.c (LLMC=DIR names a checkout)" test -f "${LLMC:-}/train_gpt2.c" || exit 0
OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
export OMP_NUM_THREADS

# Its sizes, steps and order of batches are constants: 1 x 1,024 tokens, $STEPS steps, in the file's order. It
# validates one batch, before its first step, outside of the time of a step.
cp -r "$LLMC" "$work/llmc"
cd "$work/llmc"
sed -i -e 's/int B = 4;/int B = 1;/' -e 's/int T = 64;/int T = 1024;/' -e 's/step <= 40/step < atoi(getenv("STEPS"))/' \
  -e 's/train_tokens, B, T, 0, 1, 1)/train_tokens, B, T, 0, 1, 0)/' -e 's/val_num_batches = 5/val_num_batches = 1/' train_gpt2.c
for changed in 'int B = 1;' 'int T = 1024;' 'getenv("STEPS")' 'train_tokens, B, T, 0, 1, 0)' 'val_num_batches = 1'; do
  grep -qF "$changed" train_gpt2.c || { echo "gpt2.sh: train_gpt2.c has no place for '$changed'" >&2; exit 1; }
done
make train_gpt2 > "$work/make.log" 2>&1 || { cat "$work/make.log" >&2; exit 1; }
mkdir -p dev/data/tinyshakespeare
tokens=$work/llmc/dev/data/tinyshakespeare/tiny_shakespeare_train.bin
python3 "$here/llmc.py" write gpt2_124M.bin "$tokens"
ln -s "$tokens" dev/data/tinyshakespeare/tiny_shakespeare_val.bin

python3 "$here/llmc.py" convert gpt2_124M.bin "$work/model.safetensors" "$work/config.json"
(cd "$root" && "$TPGEN" plans/gpt2.lua -o "$work/gpt2" -D config="$work/config.json" -D seq=1024 -D batch=1 -D lr=1e-4 \
  -D beta1=0.9 -D beta2=0.999 -D weight_decay=0)

llmc() { STEPS=$1 ./train_gpt2 > "$work/llmc.out" 2>&1; }
tpgen() {
  rm -f "$work/metrics"
  "$work/gpt2/run.sh" --steps "$1" --weights "$work/model.safetensors" --data "$tokens" --metrics "$work/metrics" \
    > "$work/tpgen.out" 2>&1
}
# cpu WHO STEPS: the processor's seconds of such a run.
cpu() {
  local TIMEFORMAT='%U %S'
  { time "$1" "$2"; } 2>&1 | awk '{ print $1 + $2 }'
}
tpgen 1 || { cat "$work/tpgen.out" >&2; exit 1; }
llmc 1 || { cat "$work/llmc.out" >&2; exit 1; }
for ((round = 1; round <= rounds; round++)); do
  for who in llmc tpgen; do
    short=$(cpu $who 1) long=$(cpu $who "$steps")
    awk "BEGIN { print ($long - $short) / ($steps - 1) }" >> "$work/$who.cpu"
    if [ $who = llmc ]; then
      sed -n 's/^step .*(took \([0-9.]*\) ms)$/\1/p' "$work/llmc.out" | awk '{ print $1 / 1000 }' > "$work/now"
      sed -n 's/^step [0-9]*: train loss \([0-9.]*\) .*/\1/p' "$work/llmc.out" > "$work/llmc.losses"
    else
      sed -n 's/.*"seconds": *\([0-9.e-]*\).*/\1/p' "$work/metrics" > "$work/now"
      sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$work/metrics" > "$work/tpgen.losses"
    fi
    tail -n +2 "$work/now" >> "$work/$who.seconds"
    echo "round $round  $who  $(tail -n +2 "$work/now" | sort -g | head -n 1) s a step, $(tail -n 1 "$work/$who.cpu") s of the processor"
  done
done
paste "$work/llmc.losses" "$work/tpgen.losses" | awk -v steps="$steps" '
  { d = $1 - $2; d = d < 0 ? -d : d; most = d > most ? d : most; print "step " NR ": loss " $1 " and " $2 }
  END { printf "losses at most %.1e apart\n", most; exit NR != steps || most > 1e-4 }'
least() { sort -g "$work/$1" | head -n 1; }
for what in seconds cpu; do
  awk -v a="$(least llmc.$what)" -v b="$(least tpgen.$what)" -v what=$what \
    'BEGIN { printf "%s of a step, the least: llm.c %.3g, tpgen %.3g: %.1f times\n", what == "cpu" ? "processor seconds" : "seconds", a, b, a / b }'
done
tell_memory "$work/gpt2" "$work/metrics"
