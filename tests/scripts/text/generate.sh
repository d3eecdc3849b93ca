#!/usr/bin/env bash
# Programs that generate, against Hugging Face's greedy tokens and largest logits: a Llama and a GPT-2, on one
# rank and several, also where heads do not divide, with and without room for all prompts at once, under the
# sanitizers and on the stand-in for CUDA; Mistral, Qwen 2.5 and Qwen 3, by configurations as transformers 4 and
# 5 spell them. Drawn tokens are the same on every mesh and with every number of
# slots. An end token and a stop text end an answer; texts go in and come out; what is wrong is refused.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
runtime_plan=plans/generate.lua
. "$root/tests/scripts/programs.sh"
make_runtimes plain sanitized cuda
of=$golden/generate
# prompts FOLDER
prompts() { "$TOOLS/compare_answers" prompts "$1/generate.json" > "$WORK/$(basename "$1").jsonl"; }
families=$golden/generate_families
for folder in "$of"/{llama,gpt2} "$families"/*/; do prompts "$folder"; done
stored=$golden/generate_stored
for folder in "$stored"/*/; do # the same prompts, however the weights are stored
  "$TOOLS/compare_answers" prompts "$folder/generate_int8.json" > "$WORK/$(basename "$folder").jsonl"
done

# run NAME OUTPUT ARGUMENTS...: runs $WORK/NAME; its answers in OUTPUT.
run() {
  local to=$WORK/$1 output=$2 ranks=()
  shift 2
  if [ -e "$to/ranks" ]; then
    ranks=("$to/ranks")
  else
    ranks=("${launch[@]}")
    for file in "$to"/rank*.o; do ranks+=(-n 1 "${file%.o}" "$@" --output "$output" :); done
    unset 'ranks[-1]'
    timeout 120 "${ranks[@]}" < /dev/null
    return
  fi
  timeout 120 "${ranks[@]}" "$@" --output "$output" < /dev/null
}

# greedy NAME KIND MODEL DEFINITIONS...; `compared` is the file to compare with, of answers of `tokens` tokens.
compared=generate.json tokens=40
greedy() {
  local name=$1 kind=$2 model=$3 from=$of arguments=()
  [ -d "$of/$model" ] || from=$families
  [[ $model != *_stored ]] || from=$stored
  for value in "${@:4}"; do arguments+=(-D "$value"); done
  make "$name" "$kind" plans/generate.lua -D config="$from/$model/config.json" -D context=80 "${arguments[@]}" || return
  run "$name" "$WORK/$name.out" --weights "$from/$model" --prompts "$WORK/$model.jsonl" --tokens $tokens --top 5 \
    > "$WORK/$name.messages" 2>&1 || { tail -n 20 "$WORK/$name.messages"; fail "$name ended with status $?"; return; }
  echo "$name:"
  "$TOOLS/compare_answers" greedy "$from/$model/$compared" "$WORK/$name.out" 1e-4 || fail "$name: other tokens"
}

logs=()
with() {
  logs+=("$WORK/$2.log")
  beside "$WORK/$2.log" "$@"
}
optimized=-O1 with greedy llama plain llama prefill=8 slots=1
with greedy llama_tp2 plain llama prefill=16 slots=6 tp=2
with greedy llama_tp3 plain llama prefill=7 slots=2 tp=3
more with greedy llama_tp4 plain llama prefill=64 slots=3 tp=4
# Ranks that share the context of the caches: also parts that are unequal, windows, and heads cut beside.
with greedy llama_cp3 plain llama prefill=7 slots=2 cp=3
more with greedy llama_cp2 plain llama prefill=7 slots=2 cp=2
with greedy llama_cp2_tp2 plain llama prefill=64 slots=3 cp=2 tp=2
more with greedy llama_cp2_sanitized sanitized llama prefill=8 slots=1 cp=2
more with greedy llama_cp3_cuda cuda llama prefill=16 slots=2 cp=3
more with greedy gpt2_cp2 plain gpt2 prefill=16 slots=6 cp=2
tokens=20 more with greedy mistral_cp3 plain mistral prefill=8 slots=2 cp=3
optimized=-O1 with greedy gpt2 plain gpt2 prefill=64 slots=1
more with greedy gpt2_tp2 plain gpt2 prefill=8 slots=2 tp=2
with greedy gpt2_tp3 plain gpt2 prefill=8 slots=6 tp=3
with greedy llama_sanitized sanitized llama prefill=8 slots=2 tp=2
with greedy llama_cuda cuda llama prefill=8 slots=2
more with greedy gpt2_cuda cuda gpt2 prefill=16 slots=3 tp=2
tokens=20
for folder in "$families"/*/; do
  family=$(basename "$folder")
  long=()
  [ "$family" != llama_long ] || long=(long_rope=true)
  for tp in $(more echo 1 2) 3; do with greedy "${family}_$tp" plain "$family" prefill=8 slots=$tp tp=$tp "${long[@]}"; done
done
# Tails of prompts that are few for a chunk of 32 tokens.
with greedy mistral_tail plain mistral prefill=32 slots=2
compared=generate_bf16.json
with greedy mistral_bf16 plain mistral prefill=8 slots=2 tp=2 cache_dtype=bfloat16
for type in $(more echo bfloat16) int8; do
  compared=generate_$type.json
  optimized=-O1 with greedy llama_$type plain llama_stored prefill=8 slots=2 weight_dtype=$type
  with greedy llama_${type}_tp2 sanitized llama_stored prefill=4 slots=5 tp=2 weight_dtype=$type
  with greedy gpt2_$type plain gpt2_stored prefill=16 slots=1 tp=2 weight_dtype=$type
  with greedy gpt2_${type}_cuda cuda gpt2_stored prefill=16 slots=2 weight_dtype=$type
done
more with greedy llama_int8_cuda cuda llama_stored prefill=8 slots=2 tp=2 weight_dtype=int8
# Rows of blocks that ranks cannot have equally many of: two over three, and one of them has none.
compared=generate_int8.json
with greedy llama_int8_tp3 plain llama_stored prefill=8 slots=3 tp=3 weight_dtype=int8
with greedy gpt2_int8_tp3 plain gpt2_stored prefill=8 slots=2 tp=3 weight_dtype=int8
more with greedy llama_int8_tp4_cuda cuda llama_stored prefill=8 slots=2 tp=4 weight_dtype=int8
all_are_done
cat "${logs[@]}"
grep -qx 'precision    15 of 20 parameters are stored as i8 and used as f32' "$WORK/llama_int8/plan.txt" ||
  fail "llama_int8: plan.txt does not say how weights are stored"

# As transformers 4 spells it: the same model.
for folder in "$families"/*/; do
  for spelling in config config4; do
    cp "$folder/$spelling.json" "$WORK/config.json"
    "$TPGEN" plans/generate.lua -D config="$WORK/config.json" -D context=6 --dump=lua > "$WORK/$spelling" || fail "$folder$spelling.json"
  done
  diff "$WORK/config" "$WORK/config4" > "$WORK/messages" && [ -s "$WORK/config" ] ||
    { head "$WORK/messages"; fail "$folder: another model by config4.json"; }
done

# windows PLAN CONFIG: the programs of a window of 4096, of null and of none at all in a copy of the file.
windows() {
  local window long=()
  if [ "$1" = generate ]; then long=(-D context=5000); else long=(-D seq=5000 -D batch=1); fi
  for window in 4096 null ''; do
    sed "s/\"sliding_window\": [0-9a-z]*/\"sliding_window\": ${window:-0}/; ${window:+b}; /\"sliding_window\"/d" "$2" > "$WORK/config.json"
    "$TPGEN" "plans/$1.lua" -D config="$WORK/config.json" "${long[@]}" --dump=lua > "$WORK/window$window" || fail "$1 $2: a window of '$window'"
  done
}

# A file without a window has that of Hugging Face's class, 4096, and null is none; Qwen's windows may be off.
for of_model in "generate $families/mistral" "generate $golden/models/qwen2_window" "qwen $golden/models/mistral" \
  "qwen $golden/models/qwen2_window" "gemma $golden/models/gemma2"; do
  windows ${of_model% *} "${of_model#* }/config.json"
  cmp "$WORK/window" "$WORK/window4096" && ! cmp -s "$WORK/window" "$WORK/windownull" ||
    fail "$of_model: its window where the file has none"
done
for plan in generate qwen; do
  windows $plan "$golden/models/qwen2/config.json"
  cmp "$WORK/window" "$WORK/windownull" && cmp "$WORK/window4096" "$WORK/windownull" || fail "$plan: a window that is off"
done

# ---- draws --------------------------------------------------------------------------------------

# drawn NAME: drawn tokens are those of one rank, with several filters and none.
drawn() {
  local how
  for how in "--temperature 1.5" "--temperature 0.8 --top-k 20" "--temperature 1.2 --top-p 0.9 --min-p 0.01" \
    "--temperature 1 --top-p 0.999 --repetition-penalty 1.3"; do
    # shellcheck disable=SC2086
    run "$1" "$WORK/$1.drawn" --weights "$of/llama" --prompts "$WORK/llama.jsonl" --tokens 20 --seed 5 $how &&
      run llama "$WORK/$1.alone" --weights "$of/llama" --prompts "$WORK/llama.jsonl" --tokens 20 --seed 5 $how &&
      "$TOOLS/compare_answers" same "$WORK/$1.drawn" "$WORK/$1.alone" || fail "$1: others are drawn with $how"
  done
}
for name in llama_tp2 llama_tp3; do drawn $name 2> "$WORK/$name.messages" || cat "$WORK/$name.messages"; done
run llama "$WORK/other" --weights "$of/llama" --prompts "$WORK/llama.jsonl" --tokens 20 --temperature 1.5 --seed 6 \
  2> "$WORK/messages" || fail "another seed"
! "$TOOLS/compare_answers" same "$WORK/other" "$WORK/llama_tp2.alone" 2> "$WORK/messages" || fail "the seed changes nothing"

# ---- ends ---------------------------------------------------------------------------------------

mkdir "$WORK/ends"
cp "$of/llama/"*.safetensors "$WORK/ends"
sed 's/"eos_token_id": null/"eos_token_id": 8/' "$of/llama/config.json" > "$WORK/ends/config.json"
sed -n 5p "$WORK/llama.jsonl" > "$WORK/fifth.jsonl"
run llama "$WORK/ended" --weights "$WORK/ends" --prompts "$WORK/fifth.jsonl" --tokens 40 2> "$WORK/messages" &&
  "$TOOLS/compare_answers" ends "$of/llama/generate.json" "$WORK/ended" || fail "the end token of config.json"
echo '{"eos_token_id": [3, 8]}' > "$WORK/ends/generation_config.json"
run llama_tp2 "$WORK/ended" --weights "$WORK/ends" --prompts "$WORK/fifth.jsonl" --tokens 40 2> "$WORK/messages" &&
  "$TOOLS/compare_answers" ends "$of/llama/generate.json" "$WORK/ended" || fail "the end tokens of generation_config.json"
# With do_sample and no top_k transformers draws among 50: 3,000 draws at a temperature that makes all alike.
mkdir "$WORK/drawing"
cp "$of/llama/"*.safetensors "$WORK/drawing"
for ((i = 0; i < 60; i++)); do sed -n $((i % 6 + 1))p "$WORK/llama.jsonl"; done > "$WORK/sixty.jsonl"
# drawn_of CONFIG EXPRESSION: n draws by this generation_config.json, or without one, of which `outside` are none of the 50 best.
drawn_of() {
  rm -f "$WORK/drawing/generation_config.json"
  [ -z "$1" ] || echo "$1" > "$WORK/drawing/generation_config.json"
  run llama_tp2 "$WORK/sixty" --weights "$WORK/drawing" --prompts "$WORK/sixty.jsonl" --top 50 2> "$WORK/messages" || { cat "$WORK/messages"; return 1; }
  python3 - "$WORK/sixty" "$2" << 'END'
import json, sys
draws = [(i, dict(top)) for line in map(json.loads, open(sys.argv[1])) for i, top in zip(line["ids"], line["top50"])]
n, outside, different = len(draws), sum(i not in top for i, top in draws), len({i for i, _ in draws})
print(n, "draws,", outside, "outside of the best 50,", different, "tokens")
sys.exit(not eval(sys.argv[2]))
END
}
drawn_of '{"do_sample": true, "temperature": 50.0, "max_new_tokens": 50}' 'n == 3000 and outside == 0 and different > 200' ||
  fail "draws by generation_config.json without top_k"
drawn_of '{"do_sample": true, "temperature": 50, "top_k": null, "max_new_tokens": 3}' 'n == 180 and outside == 0' || fail "top_k of null"
drawn_of '{"do_sample": true, "temperature": 50, "top_k": 0, "max_new_tokens": 3}' 'n == 180 and outside > 50' || fail "top_k of 0"
drawn_of '{"do_sample": false, "temperature": 50, "typical_p": 0.5, "max_new_tokens": 3}' 'n == 180 and outside == 0 and different < 30' ||
  fail "no do_sample"
# Without that file transformers reads all of it from config.json.
sed '1s/$/\n  "do_sample": true, "temperature": 50.0, "max_new_tokens": 50,/' "$of/llama/config.json" > "$WORK/drawing/config.json"
drawn_of '' 'n == 3000 and outside == 0 and different > 200' || fail "draws by config.json"
drawn_of '{"max_new_tokens": 3}' 'n == 180 and different < 30' || fail "draws by config.json beside a generation_config.json"
rm "$WORK/drawing/config.json"
# What transformers would choose otherwise is refused.
for member in '"no_repeat_ngram_size": 3' '"num_beams": 4' '"typical_p": 0.5' '"top_h": 0.4' '"suppress_tokens": [5]' '"min_new_tokens": 2' \
  '"guidance_scale": 1.5' '"temperature": "warm"' '"top_k": -1' '"top_p": 1.5' '"max_new_tokens": 0' '"top_k": 2.5' \
  '"do_sample": "false"' '"do_sample": 1' '"temperature": 0' '"num_return_sequences": 2'; do
  name=${member#\"} name=${name%%\"*}
  echo "{\"do_sample\": true, \"length_penalty\": 2.0, \"renormalize_logits\": true, $member}" > "$WORK/drawing/generation_config.json"
  ! run llama_tp2 "$WORK/sixty" --weights "$WORK/drawing" --prompts "$WORK/fifth.jsonl" 2> "$WORK/messages" &&
    grep -q "generation_config.json: $name is " "$WORK/messages" || { cat "$WORK/messages"; fail "$member is not refused"; }
done
# The context ends an answer: 80 tokens, of which the prompt has 30.
sed -n 6p "$WORK/llama.jsonl" > "$WORK/sixth.jsonl"
run llama "$WORK/full" --weights "$of/llama" --prompts "$WORK/sixth.jsonl" 2> "$WORK/messages" &&
  [ "$(sed 's/.*"ids":\[\([^]]*\)\].*/\1/' "$WORK/full" | tr , '\n' | wc -l)" -eq 50 ] &&
  grep -q '"ended":"context"' "$WORK/full" || fail "the context's end"

# ---- texts --------------------------------------------------------------------------------------

byte_tokenizer > "$WORK/tokenizer.json"
said=("${launch[@]:0:0}" "$WORK/llama_tp2/ranks" --weights "$of/llama" --tokenizer "$WORK/tokenizer.json")
printf '%s\n' 'Ērst' '{"text": "\u0112rst"}' '{"ids": [146, 114, 115, 116]}' > "$WORK/texts"
"${said[@]}" --prompts "$WORK/texts" --tokens 12 --output "$WORK/texts.out" 2> "$WORK/messages" &&
  [ "$(sort -u "$WORK/texts.out" | wc -l)" -eq 1 ] && [ "$(wc -l < "$WORK/texts.out")" -eq 3 ] ||
  fail "a text as a line, in JSON and as ids has other answers"
text=$(sed -n '1s/.*"text":"\(.*\)","ended.*/\1/p' "$WORK/texts.out")
streamed=$("${said[@]}" --prompt Ērst --tokens 12 2> "$WORK/messages")
[ -n "$text" ] && [ "$streamed" = "$(printf '%b' "$text")" ] || fail "streamed '$streamed', written '$text'"
# The last two letters as a stop text.
stopped=$("${said[@]}" --prompt Ērst --tokens 12 --stop "${streamed: -2}" 2> "$WORK/messages")
[ "$stopped" = "${streamed%??}" ] || fail "'$streamed' stopped at '${streamed: -2}' is '$stopped'"

# ---- a conversation -----------------------------------------------------------------------------

# said_to TEXT ARGUMENTS...: what is answered to these lines, one a line.
said_to() { printf '%b' "$1" | timeout 60 "${said[@]}" --chat --tokens 8 "${@:2}" 2> "$WORK/messages"; }
# answers TEXT: the answer to this prompt alone.
answers() {
  "${said[@]}" --prompt "$1" --tokens 8 2> "$WORK/told_alone"
}
first=$(answers $'Hi\n')
second=$(answers $'Hi\n'"$first"$'\nYou\n')
[ -n "$second" ] && [ "$(said_to 'Hi\nYou\n/exit\nno\n' --raw)" = "$first"$'\n'"$second" ] || fail "two turns of a chat"
[ "$(said_to 'Hi\r\n/clear\nHi' --raw)" = "$first"$'\n'"$first" ] || fail "a chat that begins anew"
[ "$(said_to 'u\n' --raw --system Hi)" = "$(answers $'Hi\nu\n')" ] || fail "a chat's system text"
said_to 'Hi\n'"$(printf 'x%.0s' {1..90})"'\nYou\n' --raw > "$WORK/talk" &&
  grep -q "and the context is 80: say less" "$WORK/messages" && [ "$(cat "$WORK/talk")" = "$first"$'\n'"$second" ] ||
  fail "a line that is too long for the context"
said_to "$(printf 'x%.0s' {1..75})"'\n' --raw > "$WORK/talk" && grep -q "the context of 80 tokens is full" "$WORK/messages" ||
  fail "the context's end is not reported"
printf '%s' "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" \
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}" > "$WORK/chat_template.jinja"
echo '{"model_max_length": 1000000000000000019884624838656}' > "$WORK/tokenizer_config.json"
[ "$(said_to 'Hi\n')" = "$(answers $'<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n')" ] || fail "a chat by a template"
printf '{"chat_template": "{%% include 1 %%}"}' > "$WORK/tokenizer_config.json"
rm "$WORK/chat_template.jinja"
! said_to 'Hi\n' && grep -q "the chat template, line 1: the statement 'include' is not known here" "$WORK/messages" || fail "a template that is not known"
rm "$WORK/tokenizer_config.json"
! said_to 'Hi\n' && grep -q "there is no chat template.*--raw" "$WORK/messages" || fail "no template"

# ---- hostile files ------------------------------------------------------------------------------

mutants=300 some=10
[ -z "${SOAK:-}" ] || mutants=34000 some=1000
for file in "$golden"/tokenizer/*/tokenizer.json "$golden"/tokenizer_kinds/{unigram_t5,unigram_bytes,bert_uncased,letters_ctc,prefixed_bytes}.json; do
  "$TOOLS/fuzz_text" "$file" "$WORK/mutant.json" 0 $mutants > "$WORK/messages" 2>&1 || { cat "$WORK/messages"; fail "mutants of $file"; }
done
# tame COMMAND...: it ends by itself, well or with one message of a rank.
tame() {
  local status=0
  timeout 60 "$@" < /dev/null > "$WORK/tame" 2> "$WORK/messages" || status=$?
  [ $status -eq 0 ] || { [ $status -eq 1 ] && [ "$(sed 's/^rank [0-9]*: //' "$WORK/messages" | sort -u | grep -c .)" -eq 1 ] && grep -q 'error: ' "$WORK/messages"; } ||
    { tail -n 20 "$WORK/messages"; fail "status $status with ${*: -1}: mutant $i"; }
}
mkdir "$WORK/hostile"
cp "$of/llama/"* "$WORK/tokenizer.json" "$WORK/hostile"
echo '{"eos_token_id": [3, 8], "do_sample": true, "temperature": 0.7, "top_k": 3, "top_p": 0.5}' > "$WORK/generation.json"
echo '{"bos_token": {"content": "<s>"}, "eos_token": "x", "chat_template": "<|im_start|>system\nHello<|im_end|>"}' > "$WORK/template.json"
for ((i = 0; i < some; i++)); do
  "$TOOLS/fuzz_text" mutant "$of/llama/config.json" "$WORK/mutant.json" $i
  tame "$TPGEN" plans/generate.lua -D config="$WORK/mutant.json" -D context=16 -D prefill=4 --dump=lua
  "$TOOLS/fuzz_text" mutant "$WORK/generation.json" "$WORK/hostile/generation_config.json" $i
  "$TOOLS/fuzz_text" mutant "$WORK/template.json" "$WORK/hostile/tokenizer_config.json" $i
  cp "$WORK/mutant.json" "$WORK/hostile/config.json"
  tame "$WORK/llama_sanitized/ranks" --weights "$WORK/hostile" --chat
  "$TOOLS/fuzz_text" bytes $((i == 0 ? 1048576 : 100)) "$WORK/bytes" $i
  tame "$WORK/llama_sanitized/ranks" --tokenizer "$WORK/tokenizer.json" --encode "$WORK/bytes"
  tame "$WORK/llama_sanitized/ranks" --weights "$of/llama" --tokenizer "$WORK/tokenizer.json" --tokens 4 --prompts "$WORK/bytes"
done

# ---- what is refused ----------------------------------------------------------------------------

# refuses MESSAGE ARGUMENTS...
refuses() {
  local message=$1
  shift
  ! timeout 60 "$WORK/llama_tp2/ranks" --weights "$of/llama" "$@" > "$WORK/refused" 2>&1 &&
    [ "$(grep -c . "$WORK/refused")" -eq 1 ] && grep -qF -- "$message" "$WORK/refused" ||
    { cat "$WORK/refused"; fail "$* is not refused with: $message"; }
}
printf '{"ids": [%s1]}\n' "$(printf '1, %.0s' {1..79})" > "$WORK/long"
printf '{"ids": [1, 256]}\n' > "$WORK/unknown"
printf '{"ids": []}\n' > "$WORK/empty"
printf '{"idz": [1]}\n' > "$WORK/other_key"
printf '{"ids": [1\n' > "$WORK/cut"
printf 'Hello\n' > "$WORK/hello"
refuses "there is nothing to continue"
refuses "long:1: the prompt has 80 tokens" --prompts "$WORK/long"
refuses "element 1 of \"ids\" is not a token: they are 0 to 255" --prompts "$WORK/unknown"
refuses "a prompt has no tokens" --prompts "$WORK/empty"
refuses '{"text": "..."} or {"ids": [...]}' --prompts "$WORK/other_key"
refuses "cut:1: not JSON" --prompts "$WORK/cut"
refuses "a text needs a tokenizer" --prompts "$WORK/hello"
refuses "--prompt, --prompts, --chat, --serve, --score or --check-causal, not several" --prompts "$WORK/hello" --prompt Hello
refuses "generates takes --weights and prompts" --prompt Hello --data "$WORK/hello"
"$TPGEN" plans/generate.lua -D config="$of/gpt2/config.json" -D context=97 -o "$WORK/none" > "$WORK/refused" 2>&1 ||
  grep -q "context = 97 is too long" "$WORK/refused" && [ ! -d "$WORK/none" ] || fail "more positions than a model has"

# A program has one rotary embedding.
refused_plan() {
  ! "$TPGEN" plans/generate.lua -D config="$families/$1/config.json" --dump=lua "${@:3}" > "$WORK/refused" 2>&1 &&
    grep -qF -- "$2" "$WORK/refused" || { head -n 3 "$WORK/refused"; fail "$1 ${*:3}: not refused with: $2"; }
}
refused_plan llama_dynamic "program has one: say context = 128, or less" -D context=129
refused_plan llama_long "say context = 6, or less, or long_rope = true" -D context=80
refused_plan llama_short "long_rope is for contexts of more than 80 tokens" -D context=80 -D long_rope=true
refused_plan llama_bias "long_rope is for models whose rope_type is 'longrope'" -D context=80 -D long_rope=true

finish "thirty programs have Hugging Face's tokens; draws, ends, texts, chats, hostile files and refusals"
