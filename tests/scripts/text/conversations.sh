#!/usr/bin/env bash
# Conversations as data of a training: run.sh makes samples of them by the model's tokenizer and chat template. Tokens and labels are those
# of tests/golden/conversations, by transformers; two processes make them once; what cannot be is refused.
. "$(dirname "$0")/../common.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
from=$golden/conversations
"$TPGEN" plans/llama3.lua -D drop_last=true -D vocab=4000 -D tp=2 -D seq=160 -D batch=2 -o "$WORK/masked" &&
  "$WORK/masked/run.sh" --build > "$WORK/build.log" 2>&1 || { cat "$WORK/build.log"; fail "the build"; finish; }
cd "$WORK"
folder=$WORK/masked/build/samples

# model NAME: a folder with its template.
model() {
  rm -rf "$folder" "$WORK/$1"
  mkdir "$WORK/$1"
  cp "$from/tokenizer.json" "$from/$1/tokenizer_config.json" "$WORK/$1"
}
# trains STATUS ARGUMENTS...
trains() {
  local status=0
  timeout 100 masked/run.sh --steps 2 "${@:2}" > said 2>&1 < /dev/null || status=$?
  [ $status -eq "$1" ] || fail "${*:2}: status $status: $(tail -n 3 said)"
}
says() { grep -qF -- "$1" said || fail "it says nothing of '$1': $(tail -n 3 said)"; }
# compare EXPECTED SEQUENCE: the samples are these, cut to so many tokens.
compare() {
  python3 - "$1" "$2" "$folder"/*.safetensors << 'END' || fail "$1: other samples"
import array, json, struct, sys
bytes = open(sys.argv[3], "rb").read()
n = struct.unpack("<Q", bytes[:8])[0]
header, sequence, at = json.loads(bytes[8:8 + n]), int(sys.argv[2]), 0
def rows(name):
    begin, end = header[name]["data_offsets"]
    flat = array.array("i", bytes[8 + n + begin:8 + n + end])
    return [list(flat[i:i + sequence]) for i in range(0, len(flat), sequence)]
inputs, targets = rows("input"), rows("target")
for line in open(sys.argv[1]):
    row = json.loads(line)
    if row is None: continue
    ids, learned = row["ids"][:sequence], row["learned"][:sequence]
    target = [i if l else -100 for i, l in zip(ids[1:], learned[1:])]
    if all(i == -100 for i in target): continue
    pad = sequence - len(ids)
    assert inputs[at][:len(ids)] == ids and len(set(inputs[at][len(ids):])) <= 1, (at, ids, inputs[at])
    assert targets[at] == target + [-100] * (pad + 1), (at, target, targets[at])
    at += 1
assert at == len(inputs) == len(targets) and at > 0, (at, len(inputs))
END
}

for name in hermes generation llama31 gemma3 deepseek_r1 mistral_v3; do
  model $name
  cp "$from/conversations.jsonl" chat.jsonl
  # The template leaves out the system's words where nobody is asked for an answer: those ahead of an answer are others.
  [ $name != mistral_v3 ] || { trains 1 --data chat.jsonl --tokenizer $name; says "chat.jsonl:3: ahead of message 2, an answer"; sed -i 3d chat.jsonl; }
  trains 0 --data chat.jsonl --tokenizer $name
  says "of them learned; 1 without a label are left out"
  compare "$from/$name/expected.jsonl" 160
done
# Kept, and made again where the file is another one; once by several processes.
trains 0 --data chat.jsonl --tokenizer mistral_v3
! grep 'of them learned' said || fail "samples are made twice"
head -n 2 chat.jsonl > two.jsonl
trains 0 --data=two.jsonl --tokenizer=mistral_v3 --validate two.jsonl
says "2 samples"
says "validation_loss"
rm -rf "$folder"
for i in 1 2 3; do masked/run.sh --steps 1 --data chat.jsonl --tokenizer mistral_v3 > "$i.said" 2>&1 & done
wait
[ "$(cat ./?.said | grep -c 'of them learned')" = 1 ] || fail "three processes: $(cat ./?.said)"
# Prompts with completions, texts; all of a conversation.
model hermes
cat > kinds.jsonl << 'END'
{"prompt": "The sky is", "completion": " blue."}
{"prompt": [{"role": "user", "content": "Name a colour"}], "completion": [{"role": "assistant", "content": "Blue"}]}
{"text": "Once upon a time."}
END
trains 0 --data kinds.jsonl --tokenizer hermes
says "3 samples, "
learned=$(sed -n 's/.* tokens, \([0-9]*\) of them learned.*/\1/p' said)
rm -rf "$folder"
trains 0 --data kinds.jsonl --tokenizer hermes --learn all
all=$(sed -n 's/.* tokens, \([0-9]*\) of them learned.*/\1/p' said)
[ "${learned:-0}" -gt 0 ] && [ "$all" -gt "$learned" ] || fail "--learn: $learned and $all"
# What cannot be.
refuses() { # LINE WORDS
  echo "$1" > wrong.jsonl
  trains 1 --data wrong.jsonl --tokenizer hermes
  says "wrong.jsonl:1: $2"
}
refuses '{"messages": []}' "a conversation has no messages"
refuses '{"message": "x"}' 'it has no "messages", no "prompt" with "completion", and no "text"'
refuses '["x"]' "it is no JSON object"
refuses '{"text": "x"' "not JSON"
refuses '{"messages": [{"role": "user", "content": 5}, 3]}' ""
trains 1 --data chat.jsonl
says "texts need a tokenizer: --weights, or --tokenizer"
trains 1 --data missing.jsonl --tokenizer hermes
says "missing.jsonl: it cannot be read"
trains 2 --data chat.jsonl --learn some
"$TPGEN" "$root/plans/llama3.lua" -o masked -D vocab=4000 -D tp=2 -D documents=0 > /dev/null
trains 1 --data chat.jsonl --tokenizer hermes
says "a token ends its documents (-D packed=true in the place of -D documents"
trains 0 --data chat.jsonl --tokens bytes
# Packed samples have the losses of one conversation a sample: none sees another one.
for i in 1 2 3 4 5 6 7 8 9; do
  echo '{"prompt": "Count to '$i':", "completion": "'$(seq -s ', ' 1 $i)'"}'
done > short.jsonl
learns() { # NAME PLAN SAMPLES ARGUMENTS...
  "$TPGEN" "$root/plans/$2.lua" -o "$1" "${sizes[@]}" -D seq=64 -D steps=2 -D lr=0.01 "${@:4}" > said 2>&1 &&
    timeout 100 "$1/run.sh" --data short.jsonl --tokenizer hermes --metrics "$1.jsonl" > said 2>&1 < /dev/null || fail "$1: $(tail -n 3 said)"
  says "$3"
  losses_of "$1.jsonl" > "$1.losses"
}
packs() { # PLAN ARGUMENTS...
  learns "padded.$1" "$1" "9 samples" -D batch=9 "${@:2}"
  learns "together.$1" "$1" "9 texts" -D packed=true -D batch=4 -D tp=2 "${@:2}"
  says "packed into 4 samples"
  same_losses "packed, $1" "together.$1.losses" "padded.$1.losses" 5e-7
}
sizes=(-D vocab=4000 -D dim=16 -D n_heads=2)
packs llama3 -D n_kv_heads=2
in_ci packs gpt2 -D sp=true -D tied=false
in_ci packs moe -D n_kv_heads=2
sed 's/"vocab_size": 96/"vocab_size": 4000/' "$golden/families/deepseek_v3/config.json" > deepseek.json
sizes=(-D config=deepseek.json)
in_ci packs causal_lm
finish "conversations, prompts with completions and texts are samples, as transformers makes them"
