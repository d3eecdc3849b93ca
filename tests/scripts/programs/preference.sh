#!/usr/bin/env bash
# Training on pairs of answers: plans/dpo.lua and plans/reward.lua by lines of chosen and rejected answers, against
# tests/golden/preference, by PyTorch and PEFT; on one rank and on meshes; the reference from a file and without adapters.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
make_runtimes plain cuda
from=$golden/preference
mkdir "$WORK/tokenizer"
cp "$golden"/conversations/{tokenizer.json,hermes/tokenizer_config.json} "$WORK/tokenizer"
cp "$from/pairs.jsonl" "$WORK"
model=(-D "config=$from/config.json" -D batch=4 -D seq=96)
trained=(-D drop_last=true -D steps=8 -D lr=0.003)

# learns NAME KIND GOLDEN PLAN ARGUMENTS...: it has PyTorch's losses.
learns() {
  make "$1" "$2" "plans/$4.lua" "${model[@]}" "${trained[@]}" "${@:5}" &&
    start "$WORK/$1" "$WORK/$1" --data "$samples" "${said[@]}" || { fail "$1"; return; }
  awk -v way="$3" '$1 == way { for (i = 2; i <= NF; i++) print $i }' "$from/losses.tsv" > "$WORK/$1.golden"
  same_losses "$1" "$WORK/$1.losses" "$WORK/$1.golden" 2e-6
}

# The program that makes samples of lines, by its own build.
"$TPGEN" plans/dpo.lua "${model[@]}" -D reference=write -D dp=2 -o "$WORK/reference" &&
  OMP_NUM_THREADS=1 "$WORK/reference/run.sh" --tokenizer "$WORK/tokenizer" --data "$WORK/pairs.jsonl" --save "$WORK/said" \
    > "$WORK/reference.out" 2>&1 < /dev/null || fail reference
grep -q '^12 samples in 3 batches' "$WORK/reference.out" || fail "reference: $(tail -n 2 "$WORK/reference.out")"
samples=$(echo "$WORK"/reference/build/samples/*.safetensors)
said=(--data "$WORK/said/outputs.safetensors")
learns sigmoid plain sigmoid dpo -D dp_shard=2 -D tp=2
learns hinge cuda hinge dpo -D preference=hinge
learns ipo plain ipo dpo -D preference=ipo -D dp=2 -D microbatches=2
in_ci learns robust plain robust dpo -D smoothing=0.1 -D sft=0.5 -D tp=2
said=()
learns adapters plain adapters dpo -D lora=4 -D tp=2
in_ci learns adapters_cuda cuda adapters dpo -D lora=4 -D dp=2
grep -q '"margin":' "$WORK/adapters.jsonl" || fail "adapters: no metrics"
learns reward plain reward reward -D dp=2 -D tp=2
in_ci learns reward_cuda cuda reward reward -D dp_shard=2

# refuses WORDS LINE
refuses() {
  echo "$2" > "$WORK/bad.jsonl"
  ! "$WORK/reference/run.sh" --tokenizer "$WORK/tokenizer" --data "$WORK/bad.jsonl" > "$WORK/bad.out" 2>&1 < /dev/null || fail "$2: status 0"
  grep -qF -- "$1" "$WORK/bad.out" || fail "$2: not '$1': $(tail -n 2 "$WORK/bad.out")"
}
refuses 'bad.jsonl:1: it has no "chosen" with "rejected"' '{"prompt": "a", "completion": "b"}'
refuses 'bad.jsonl:1: it has no "chosen" with "rejected"' '{"chosen": "a", "rejected": ["b"]}'
finish "preferences are learned as PyTorch does"
