#!/usr/bin/env bash
# Training on pairs of answers and on rated ones: plans/dpo.lua, plans/reward.lua and plans/kto.lua by lines of answers, against
# tests/golden/preference, by PyTorch, PEFT and TRL; on one rank and on meshes; the reference from a file and without adapters.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
make_runtimes plain cuda
from=$golden/preference
mkdir "$WORK/tokenizer"
cp "$golden"/conversations/{tokenizer.json,hermes/tokenizer_config.json} "$WORK/tokenizer"
model=(-D "config=$from/config.json" -D batch=4 -D seq=96)
trained=(-D drop_last=true -D steps=8 -D lr=0.003)

losses=losses
# learns NAME KIND GOLDEN PLAN ARGUMENTS...: it has PyTorch's losses.
learns() {
  make "$1" "$2" "plans/$4.lua" "${model[@]}" "${trained[@]}" "${@:5}" &&
    start "$WORK/$1" "$WORK/$1" --data "$samples" "${said[@]}" || { fail "$1"; return; }
  golden_line "$from/$losses.tsv" "$3" > "$WORK/$1.golden"
  same_losses "$1" "$WORK/$1.losses" "$WORK/$1.golden" 2e-6
}

# says PLAN LINES NAME: the program that makes samples of lines, by its own build; and what the reference says of them.
says() {
  local to=$WORK/$3
  cp "$from/$2" "$WORK"
  "$TPGEN" "plans/$1.lua" "${model[@]}" -D reference=write -D dp=2 -o "$to" &&
    OMP_NUM_THREADS=1 "$to/run.sh" --tokenizer "$WORK/tokenizer" --data "$WORK/$2" --save "$to.said" > "$to.out" 2>&1 < /dev/null || fail "$3"
  samples=$(echo "$to"/build/samples/*.safetensors)
  said=(--data "$to.said/outputs.safetensors")
}
says dpo pairs.jsonl reference
grep -q '^12 samples in 3 batches' "$WORK/reference.out" || fail "reference: $(tail -n 2 "$WORK/reference.out")"
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

# Two texts without a prompt have the one that they begin with.
samples_of() { # NAME LINE: makes the samples NAME of it
  echo "$2" > "$WORK/one.jsonl"
  rm -rf "$WORK/reference/build/samples"
  "$WORK/reference/run.sh" --tokenizer "$WORK/tokenizer" --data "$WORK/one.jsonl" --save "$WORK/one.said" > "$WORK/one.out" 2>&1 < /dev/null ||
    fail "$2: $(tail -n 2 "$WORK/one.out")"
  mv "$WORK"/reference/build/samples/*.safetensors "$WORK/$1"
}
samples_of without_prompt '{"chosen": "The sea is öde.", "rejected": "The sea is über."}'
samples_of with_prompt '{"prompt": "The sea is", "chosen": " öde.", "rejected": " über."}'
cmp "$WORK/without_prompt" "$WORK/with_prompt" || fail "texts without a prompt"

says kto rated.jsonl of_rated
losses=kto
learns kto plain kto kto -D dp_shard=2 -D tp=2
learns weighted cuda weighted kto -D good=0.7 -D bad=1.5 -D dp=3
learns apo_zero plain apo_zero kto -D preference=apo_zero -D dp=2 -D microbatches=2
said=()
grep -q '"rewards_chosen":' "$WORK/kto.jsonl" || fail "kto: no metrics"

# refuses PROGRAM WORDS LINE [OPTIONS]
refuses() {
  echo "$3" > "$WORK/bad.jsonl"
  ! "$WORK/$1/run.sh" --tokenizer "$WORK/tokenizer" --data "$WORK/bad.jsonl" "${@:4}" > "$WORK/bad.out" 2>&1 < /dev/null || fail "$3: status 0"
  grep -qF -- "$2" "$WORK/bad.out" || fail "$3: not '$2': $(tail -n 2 "$WORK/bad.out")"
}
refuses reference 'bad.jsonl:1: it has no "chosen" with "rejected"' '{"prompt": "a", "completion": "b"}'
refuses reference 'bad.jsonl:1: it has no "chosen" with "rejected"' '{"chosen": "a", "rejected": ["b"]}'
refuses reference 'bad.jsonl:1: its "prompt" is a list of messages, and its answers are texts' \
  '{"prompt": [{"role": "user", "content": "a"}], "chosen": "b", "rejected": "c"}'
refuses reference 'bad.jsonl:1: its answers begin with unlike messages' \
  '{"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}], "rejected": [{"role": "assistant", "content": "c"}]}'
refuses of_rated 'bad.jsonl:1: it has no "prompt" with "completion" and "label"' '{"prompt": "a", "completion": "b"}'
refuses of_rated 'bad.jsonl:1: it has no "prompt" with "completion" and "label"' '{"prompt": "a", "completion": "b", "label": 2}'
refuses of_rated 'bad.jsonl:1: it has no "prompt" with "completion" and "label"' '{"text": "a", "label": true}'
refuses of_rated 'bad.jsonl:1: --learn all: a rated answer is learned' '{"prompt": "a", "completion": "b", "label": true}' --learn all
finish "preferences are learned as PyTorch does"
