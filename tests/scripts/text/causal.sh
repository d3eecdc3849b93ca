#!/usr/bin/env bash
# Programs that generate from models of whole texts, which say nothing of caches. Archives of torch.export against the greedy
# tokens of transformers; own models (tests/plans/causal) against themselves over whole texts, with prompts in pieces
# and token by token, several slots, ranks that share layers, sanitizers, and on the stand-in for CUDA. A model that looks
# at later tokens is refused, with the operation.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
runtime_plan=plans/generate.lua
. "$root/tests/scripts/programs.sh"
make_runtimes plain sanitized cuda
. "$root/tests/scripts/text/server.sh"
of=$golden/causal plan=tests/plans/causal/plan.lua archives=$WORK/archives
mkdir -p "$archives" && tar -xJf "$of/archives.tar.xz" -C "$archives"

# run NAME OUTPUT ARGUMENTS...: runs all ranks of $WORK/NAME.
run() {
  timeout 120 "$WORK/$1/ranks" "${@:3}" --top 5 --output "$2" < /dev/null > "$2.messages" 2>&1 ||
    { tail -n 20 "$2.messages"; fail "$1 ended with status $?"; return 1; }
}

# of_transformers NAME FAMILY: the program's greedy tokens are those of transformers.
of_transformers() {
  local name=$1 family=$2
  "$TOOLS/compare_answers" prompts "$of/$family.json" > "$WORK/$name.jsonl"
  run "$name" "$WORK/$name.out" --prompts "$WORK/$name.jsonl" --tokens 20 "${@:3}" || return
  echo "$name:"
  "$TOOLS/compare_answers" greedy "$of/$family.json" "$WORK/$name.out" 1e-4 || fail "$name: other tokens"
}

# family NAME KIND DEFINITIONS...: a model of lib/families.lua, by its config.json, from the text that trains.
family() {
  local name=$1 kind=$2 from=$golden/families/$1
  make "$name" "$kind" plans/generate.lua -D config="$from/config.json" -D context=32 "${@:3}" || return
  "$TOOLS/compare_answers" prompts "$from/generate.json" > "$WORK/$name.jsonl"
  run "$name" "$WORK/$name.out" --weights "$from/model.safetensors" --prompts "$WORK/$name.jsonl" --tokens 12 || return
  echo "$name:"
  "$TOOLS/compare_answers" greedy "$from/generate.json" "$WORK/$name.out" 1e-4 || fail "$name: other tokens"
}

# latent NAME DEFINITIONS...: DeepSeek-V3 keeps its latent and the rotary key, 24 numbers a token, not keys and values of 112, and
# absorbs the projections.
latent() {
  local name=$1 from=$golden/families/deepseek_v3
  make "$name" "${@:2}" -D config="$from/config.json" -D caches=small || return
  grep -q 'self_attn.latent.*24' "$WORK/$name/plan.txt" || [[ $name == *_cp* ]] || fail "$name: $(sed -n '/^caches/,/^memory/p' "$WORK/$name/plan.txt")"
  "$TOOLS/compare_answers" prompts "$from/generate.json" > "$WORK/$name.jsonl"
  run "$name" "$WORK/$name.out" --weights "$from/model.safetensors" --prompts "$WORK/$name.jsonl" --tokens 12 || return
  echo "$name:"
  "$TOOLS/compare_answers" greedy "$from/generate.json" "$WORK/$name.out" 1e-4 || fail "$name: other tokens"
}

# memory_decides: of many layers the small caches are taken where keys and values do not fit.
memory_decides() {
  local from=$golden/families/deepseek_v3 caches
  sed 's/"num_hidden_layers": 3/"num_hidden_layers": 12/; s/"max_position_embeddings": 64/"max_position_embeddings": 1024/' "$from/config.json" > "$WORK/deep.json"
  for caches in fast small; do
    "$TPGEN" plans/generate.lua -o "$WORK/deep_$caches" -D config="$WORK/deep.json" -D context=1024 -D prefill=8 -D tp=2 -D memory=$([ $caches = fast ] && echo 1GiB || echo 3MiB) > "$WORK/deep.said" 2>&1 ||
      fail "caches by memory: $(tail -n 1 "$WORK/deep.said")"
    grep -q "^  $caches: a rank needs " "$WORK/deep_$caches/plan.txt" || fail "caches by memory: $(sed -n '/^caches/,/^memory/p' "$WORK/deep_$caches/plan.txt")"
  done
  # 12 layers, 1,024 tokens, 24 numbers of 4 bytes
  grep -q '^  cache *1,179,648 B' "$WORK/deep_small/plan.txt" || fail "caches by memory: $(grep '^  cache ' "$WORK/deep_small/plan.txt")"
}

# scores NAME: the program of olmo2 scores texts as transformers does, and computes the same in pieces of all sizes.
scores() {
  local to=$WORK/$1 from=$golden/families/olmo2
  "$to/ranks" --weights "$from/model.safetensors" --score "$golden/families/score.jsonl" --output "$to.scores" < /dev/null > "$to.said" 2>&1 || fail "$1: --score"
  paste -d '\n' "$golden/families/score.jsonl" "$to.scores" | tr -d ' ' | awk '{
    sub(/.*"log_probabilities":\[null,/, ""); greedy = /"is_greedy":true/; sub(/\].*"log_likelihood":/, ","); sub(/[,}][^,}]*"(is_greedy|tokens)".*/, "")
    n = split($0, x, ",")
    if (NR % 2) { for (i = 1; i <= n; i++) want[i] = x[i]; of = n; was = greedy; next }
    if (n != of || greedy != was) bad = 1
    for (i = 1; i <= n; i++) { d = x[i] - want[i]; if (d < 0) d = -d; if (d > most) most = d }
  } END { printf "scores: at most %.1e apart\n", most; exit bad || NR != 6 || most > 2e-5 }' || fail "$1: other scores"
  "$to/ranks" --weights "$from/model.safetensors" --check-causal "$golden/families/score.jsonl" < /dev/null > "$to.said" 2>&1 || fail "$1: --check-causal: $(tail -n 1 "$to.said")"
  grep -q 'text 3, 24 tokens: in pieces of 7 and token by token: logits at most [0-9.]*e-0[5-9] apart' "$to.said" || fail "$1: $(cat "$to.said")"
  echo '{"ids": [1]}' > "$to.one"
  ! "$to/ranks" --weights "$from/model.safetensors" --score "$to.one" < /dev/null > "$to.said" 2>&1 && grep -q 'a text of 1 tokens has none to look at' "$to.said" || fail "$1: a short text"
}

# archive NAME KIND FAMILY DEFINITIONS...
archive() {
  make "$1" "$2" plans/generate.lua -D model="$archives/$3.pt2" -D context=64 "${@:4}" && of_transformers "$1" "$3"
}

# by_folder NAME FAMILY: the archive's program takes weights from another file, with the model's own names, and the frequencies of
# its rotary embedding, which no such file has, from the archive.
by_folder() {
  python3 tests/tools/archive_weights.py "$archives/$2.pt2" "$WORK/$1.safetensors" model. || fail "$1: no weights"
  make "$1" plain plans/generate.lua -D model="$archives/$2.pt2" -D context=64 -D prefill=8 && of_transformers "$1" "$2" --weights "$WORK/$1.safetensors"
}

# talks NAME: the archive's program with a folder that has a tokenizer, a chat template and the tokens that end an answer, and
# with the archive's weights: a prompt, a chat, a server, and --check-causal.
talks() {
  local folder=$WORK/folder all ended
  program=$1 arguments=(--tokenizer "$folder")
  mkdir "$folder"
  byte_tokenizer > "$folder/tokenizer.json"
  printf '%s' "{% for m in messages %}{{ m['role'].upper() + ' ' + m['content'] + ' ' }}{% endfor %}" > "$folder/chat_template.jinja"
  echo '{"text": "USER HI "}' > "$WORK/talk"
  ids() { "$WORK/$program/ranks" "${arguments[@]}" --prompts "$WORK/talk" --tokens 9 2> "$WORK/messages" | sed 's/.*"ids":\[\([^]]*\)\].*/\1/'; }
  all=$(ids)
  [[ $all == *,*,* ]] || { cat "$WORK/messages"; fail "$1: no answer"; return; }
  printf 'HI\n' | timeout 60 "$WORK/$program/ranks" "${arguments[@]}" --chat --tokens 9 > "$WORK/chat" 2> "$WORK/messages" || fail "$1: --chat"
  "$WORK/$program/ranks" "${arguments[@]}" --prompt "USER HI " --tokens 9 2> "$WORK/messages" | cmp - "$WORK/chat" || fail "$1: --chat: $(cat "$WORK/chat")"
  "$WORK/$program/ranks" "${arguments[@]}" --check-causal "$WORK/talk" > "$WORK/messages" 2>&1 < /dev/null &&
    grep -q 'all texts: logits at most [0-9.]*e-0[5-9] apart' "$WORK/messages" || fail "$1: --check-causal: $(cat "$WORK/messages")"
  if command -v curl > /dev/null; then
    serves
    curl -sS --max-time 60 -H 'Content-Type: application/json' -d '{"messages": [{"role": "user", "content": "HI"}], "max_tokens": 9}' \
      "$at/v1/chat/completions" | python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"])' |
      cmp - "$WORK/chat" || fail "$1: --serve"
    stops TERM
  fi
  ended=${all#*,}
  echo "{\"eos_token_id\": [${ended%%,*}]}" > "$folder/generation_config.json"
  [ "$(ids)" = "${all%%,*}" ] || [ "$(ids)" = "${all%%,*},${ended%%,*}" ] || fail "$1: generation_config.json beside the tokenizer: $(ids), not the first of $all"
}

# recurrent NAME KIND FAMILY DEFINITIONS...: the model in the plan language, with weights of transformers.
recurrent() {
  make "$1" "$2" tests/plans/causal/recurrent.lua -D model="$3" "${@:4}" && of_transformers "$1" "$3" --weights "$of/$3.safetensors"
}

printf '{"ids": %s}\n' '[7]' '[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8]' > "$WORK/prompts.jsonl"
# own NAME KIND MODEL DEFINITIONS...: the model's program, from the weights that the program over whole texts has drawn.
own() {
  local name=$1 kind=$2 model=$3 whole=$WORK/$1.whole
  local draw=() word
  for word in "${@:4}"; do [[ $word != draw=* ]] || draw=(-D "$word"); done
  make "$name.whole" plain $plan -D kind="$model" -D whole=true "${draw[@]}" || return
  make "$name" "$kind" $plan -D kind="$model" "${@:4}" || return
  run "$name" "$WORK/$name.out" --prompts "$WORK/prompts.jsonl" --tokens 24 || return
  "$TOOLS/whole_text" data "$WORK/prompts.jsonl" "$WORK/$name.out" 48 "$whole.safetensors" || fail "$name: no texts"
  "$whole/ranks" --data "$whole.safetensors" --save "$whole.saved" > "$whole.messages" 2>&1 ||
    { tail -n 5 "$whole.messages"; fail "$name: the whole texts"; return; }
  echo "$name:"
  "$TOOLS/whole_text" compare "$WORK/prompts.jsonl" "$WORK/$name.out" "$whole.saved/outputs.safetensors" 2e-5 || fail "$name: other logits"
}

# refused MODEL MESSAGE
refused() {
  ! "$TPGEN" $plan -o "$WORK/refused" -D kind="$1" > "$WORK/$1.said" 2>&1 || fail "$1 is not refused"
  grep -q "$plan:[0-9]*: error: generate: $2" "$WORK/$1.said" || { cat "$WORK/$1.said"; fail "$1: other words"; }
}

if [ -z "${MODELS:-}" ]; then # MODELS="mamba2 rwkv": these own models alone, in all ways; DRAWN=600 FIRST=1: so many drawn ones, from that one on; NUMBERS="3 7": these
beside "$WORK/1.log" archive exaone4 plain exaone4 -D prefill=7 -D slots=3
beside "$WORK/folder.log" by_folder by_folder exaone4
beside "$WORK/parts.log" archive exaone4_cp3 plain exaone4 -D prefill=7 -D slots=3 -D cp=3
in_ci beside "$WORK/parts_2.log" archive lfm2_cp2_tp2 sanitized lfm2 -D prefill=8 -D slots=2 -D cp=2 -D tp=2
in_ci beside "$WORK/parts_3.log" archive exaone4_cp2_cuda cuda exaone4 -D prefill=8 -D slots=2 -D cp=2
beside "$WORK/2.log" archive lfm2_tp2 plain lfm2 -D prefill=8 -D slots=2 -D tp=2
beside "$WORK/gpt_oss.log" archive gpt_oss plain gpt_oss -D prefill=8 -D slots=2
beside "$WORK/3.log" archive opt_cuda cuda opt -D prefill=16 -D slots=2
beside "$WORK/6.log" recurrent mamba2_tp2 plain mamba2 -D prefill=7 -D slots=3 -D tp=2
beside "$WORK/7.log" recurrent qwen3_next plain qwen3_next -D prefill=8 -D slots=2
beside "$WORK/caches.log" own caches plain caches -D prefill=5 -D slots=2 -D tp=2 -D cp=2
beside "$WORK/latent.log" latent latent_tp2 plain plans/generate.lua -D context=32 -D prefill=8 -D slots=3 -D tp=2
in_ci beside "$WORK/latent_2.log" latent latent_one sanitized plans/generate.lua -D context=32 -D prefill=5
in_ci beside "$WORK/latent_3.log" latent latent_cuda cuda plans/generate.lua -D context=32 -D prefill=8 -D slots=2
in_ci beside "$WORK/latent_4.log" latent latent_cp2_tp2 plain plans/generate.lua -D context=32 -D prefill=8 -D slots=2 -D cp=2 -D tp=2
beside "$WORK/memory.log" memory_decides
in_ci beside "$WORK/mpt.log" archive mpt plain mpt -D prefill=8 -D slots=2 -D tp=2
beside "$WORK/masked.log" archive masked plain masked -D prefill=5 -D slots=2
beside "$WORK/bloom.log" archive bloom plain bloom -D prefill=7 -D slots=3 -D tp=2
in_ci beside "$WORK/8.log" recurrent rwkv sanitized rwkv -D prefill=5
in_ci beside "$WORK/9.log" recurrent mamba2_cuda cuda mamba2 -D prefill=8 -D slots=3
in_ci beside "$WORK/4.log" archive gpt_neox_tp3 sanitized gpt_neox -D prefill=8 -D slots=6 -D tp=3
in_ci beside "$WORK/5.log" archive lfm2_cuda cuda lfm2 -D prefill=8 -D slots=3
n=0
for folder in "$golden"/families/*/; do
  name=$(basename "$folder") long=() n=$((n + 1))
  [ $((n % 6)) -eq 0 ] || { ci_cases && [ $((n % 2)) -eq 1 ]; } || all_cases || continue
  [ "$name" != phi4 ] || long=(-D long_rope=true)
  beside "$WORK/family_$n.log" family "$name" plain -D prefill=8 -D slots=2 -D tp=$((n % 3 + 1)) "${long[@]}"
done
fi
n=10
for model in ${MODELS:-mixed positions window convolution shift sum norm lstm gru mamba2 rwkv delta prefix_max extremes linear \
  alibi softcap sinks chunks first_and_last written relative documents packed}; do
  for way in "plain -D prefill=3 -D slots=2" "sanitized -D prefill=1" "plain -D prefill=48 -D slots=2 -D tp=2" \
    "cuda -D prefill=8 -D slots=3" "plain -D prefill=7 -D slots=2 -D cp=3" "cuda -D prefill=8 -D slots=2 -D cp=2 -D tp=2"; do
    [ $model = mixed ] || [ $((n % 7)) -eq 0 ] || all_cases || [ -n "${MODELS:-}" ] || { n=$((n + 1)); continue; }
    read -r kind definitions <<< "$way"
    # shellcheck disable=SC2086
    beside "$WORK/$n.log" own "${model}_$n" "$kind" $model $definitions
    n=$((n + 1))
  done
done
# looks_ahead NUMBER: whether a later token moves earlier logits of the drawn model. Each place of a text is changed in turn.
looks_ahead() {
  local to=$WORK/proof_$1
  make "proof_$1" plain $plan -D kind=random -D draw="$1" -D whole=true -D texts=48 > "$to.said" 2>&1 || { cat "$to.said"; fail "drawn $1: the whole texts"; return 2; }
  "$TOOLS/whole_text" vary 48 48 40 "$to.safetensors"
  "$to/ranks" --data "$to.safetensors" --save "$to.saved" > "$to.said" 2>&1 || { tail -n 5 "$to.said"; fail "drawn $1: the whole texts"; return 2; }
  ! "$TOOLS/whole_text" moved "$to.saved/outputs.safetensors" 1e-4
}

# Drawn models: what is refused looks ahead somewhere, or says why it cannot be continued; all others are as over whole texts.
# A later token proves it: it moves earlier logits or does not.
# drawn NUMBER
drawn() {
  if "$TPGEN" $plan -o "$WORK/drawn_$1" -D kind=random -D draw="$1" > "$WORK/drawn_$1.said" 2>&1; then
    rm -r "$WORK/drawn_$1"
    own "drawn_$1" plain random -D draw="$1" -D slots=2 -D prefill=5
    ! looks_ahead "$1" || fail "drawn $1 looks ahead, and is not refused"
  else
    grep -q "$plan:[0-9]*: error: generate: " "$WORK/drawn_$1.said" || { cat "$WORK/drawn_$1.said"; fail "drawn $1: other words"; }
    # What looks ahead may be moved back again.
    looks_ahead "$1" || echo "drawn $1 looks back only, and is refused: $(cat "$WORK/drawn_$1.said")"
  fi
  rm -rf "$WORK/drawn_$1" "$WORK/drawn_$1.whole" "$WORK/proof_$1"*
}
count=2
[ -z "${MODELS:-}" ] || count=0
! ci_cases || count=6
! all_cases || count=600
count=${DRAWN:-$count}
for number in ${NUMBERS:-$(seq "${FIRST:-1}" $((${FIRST:-1} + count - 1)))}; do beside "$WORK/drawn_$number.log" drawn $number; done
all_are_done
# The scores are of a program of one rank.
if [ -z "${MODELS:-}" ]; then
  make scored plain plans/generate.lua -D config="$golden/families/olmo2/config.json" -D context=32 -D prefill=8 -D slots=2 && scores scored
fi
cat "$WORK"/*.log
[ -n "${MODELS:-}" ] || talks by_folder
refused mean "mean of layers.0 takes all tokens of the text together"
refused ahead "scaled_dot_product_attention of layers.0 sees later tokens"
refused blocks "[a-z_]* of layers.0 sees later tokens"
refused flipped "flip of layers.0 sees later tokens"
refused unmasked "softmax of layers.0 sees later tokens: no mask that depends on positions hides them"
refused padding "scaled_dot_product_attention of layers.0 has a mask that depends on the tokens"
refused chosen "softmax of layers.0 takes all tokens of the text together"
refused reversed "flip of layers.0 needs other tokens"
refused last_state "stack of layers.0.rnn reads what a scan hands on behind the last token of the text"
refused late "conv1d of layers.0.conv needs later tokens"
! "$TPGEN" plans/generate.lua -o "$WORK/refused" -D model="$archives/batch_norm.pt2" -D context=32 > "$WORK/batch_norm.said" 2>&1 &&
  grep -q 'error: generate: batch_norm (.*make.py:[0-9]*) of norm takes all tokens of the text together: it needs later tokens$' "$WORK/batch_norm.said" ||
  { cat "$WORK/batch_norm.said"; fail "a batch norm over tokens is not refused"; }
finish "archives and own models continue texts as they read them whole"
