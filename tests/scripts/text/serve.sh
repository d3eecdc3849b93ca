#!/usr/bin/env bash
# A program that serves (--serve): the same tokens as --prompt and --prompts, streamed or not, for one client and
# two at once; chats; sampling by seed; the token; limits of sizes, of the queue and of the context; what is
# refused; clients that go away in the middle; requests of all kinds by the thousand; and the end by a signal. On
# two ranks, under the sanitizers. SOAK=1: 100,000 requests.
. "$(dirname "$0")/../common.sh"
command -v curl > /dev/null || { echo "serve: SKIPPED: there is no curl"; exit 77; }
local_mpi=yes
runtime_plan=plans/generate.lua
. "$root/tests/scripts/programs.sh"
make_runtimes sanitized
of=$golden/generate/llama
make served sanitized plans/generate.lua -D config="$of/config.json" -D context=80 -D prefill=16 -D slots=2 -D tp=2 ||
  finish
cp "$of"/* "$WORK"
byte_tokenizer > "$WORK/tokenizer.json"
printf '%s' "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" \
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}" > "$WORK/chat_template.jinja"
arguments=(--weights "$WORK")
export OMP_NUM_THREADS=1
export ASAN_OPTIONS=detect_leaks=1
export LSAN_OPTIONS=suppressions=$WORK/leaks:print_suppressions=0
printf 'leak:libgomp\nleak:libopenblas\n' > "$WORK/leaks"

. "$root/tests/scripts/text/server.sh"

# ask PATH BODY [CURL'S ARGUMENTS...]: the answer.
ask() { curl -sS --max-time 60 -H 'Content-Type: application/json' -d "$2" "${@:3}" "$at$1"; }
# text_of: of an answer, its first text.
text_of() { sed -n 's/.*"\(text\|content\)":"\([^"]*\)".*/\2/p'; }
# pieces: of events, all their texts.
pieces() { sed -n 's/^data: .*"\(text\|content\)":"\([^"]*\)".*/\2/p' | tr -d '\n'; }
# refused STATUS MESSAGE PATH BODY [CURL'S ARGUMENTS...]
refused() {
  local status
  status=$(curl -sS --max-time 60 -o "$WORK/refused" -w '%{http_code}' -H 'Content-Type: application/json' -d "$4" \
    "${@:5}" "$at$3") || status="curl's $?"
  [ "$status" = "$1" ] && grep -q '^{"error":{"message":"' "$WORK/refused" && grep -qF -- "$2" "$WORK/refused" ||
    { cat "$WORK/refused"; fail "$3 ${4:0:80}: status $status, not $1 with $2"; }
}

# What --prompt and --prompts answer.
alone() { "$WORK/served/ranks" "${arguments[@]}" --prompts "$WORK/prompt" --tokens 12 "$@" 2> "$WORK/messages" | text_of; }
printf '{"text": "Hello"}\n' > "$WORK/prompt"
hello=$(alone)
drawn=$(alone --temperature 1.2 --top-p 0.9 --top-k 30 --min-p 0.001 --seed 7)
printf '{"text": "Again and again, over more than one chunk"}\n' > "$WORK/prompt"
again=$(alone)
printf '{"text": "<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n"}\n' > "$WORK/prompt"
hi=$(alone)
[ -n "$hello" ] && [ -n "$again" ] && [ -n "$hi" ] && [ "$hello" != "$drawn" ] || fail "answers to compare with"

# ---- answers ------------------------------------------------------------------------------------

echo "secret" > "$WORK/token"
serves --token-file "$WORK/token" --queue 1
bearer=(-H 'Authorization: Bearer secret')
ask() { curl -sS --max-time 60 -H 'Content-Type: application/json' "${bearer[@]}" -d "$2" "${@:3}" "$at$1"; }
complete() { ask /v1/completions "{\"prompt\": \"$1\", \"max_tokens\": 12$2}"; }
[ "$(curl -sS "$at/health")" = '{"status":"ok"}' ] || fail "/health"
curl -sS "${bearer[@]}" "$at/v1/models" | finds '"object":"list","data":\[{"id":"serve"' || fail "/v1/models"
complete Hello '' > "$WORK/got"
[ "$(text_of < "$WORK/got")" = "$hello" ] || { cat "$WORK/got"; fail "a completion is not '$hello'"; }
grep -q '"finish_reason":"length"}\],"usage":{"prompt_tokens":5,"completion_tokens":12,"total_tokens":17}}' "$WORK/got" ||
  { cat "$WORK/got"; fail "the end and usage of a completion"; }
[ "$(ask /v1/completions '{"prompt": [72, 101, 108, 108, 111], "max_tokens": 12}' | text_of)" = "$hello" ] || fail "tokens as a prompt"
[ "$(complete Hello ', "temperature": 1.2, "top_p": 0.9, "top_k": 30, "min_p": 0.001, "seed": 7' | text_of)" = "$drawn" ] ||
  fail "a draw by the seed"
complete Hello ', "stream": true, "stream_options": {"include_usage": true}' > "$WORK/events"
[ "$(pieces < "$WORK/events")" = "$hello" ] && [ "$(grep -c '^data: ' "$WORK/events")" -gt 4 ] &&
  [ "$(tail -n 2 "$WORK/events" | head -n 1)" = 'data: [DONE]' ] && grep -q '"choices":\[\],"usage":{"prompt_tokens":5' "$WORK/events" ||
  { cat "$WORK/events"; fail "a streamed completion"; }
stop=${hello: -3:2}
complete Hello ", \"stop\": [\"~~~\", \"$stop\"]" > "$WORK/got"
[ "$(text_of < "$WORK/got")" = "${hello%%"$stop"*}" ] && grep -q '"finish_reason":"stop"' "$WORK/got" ||
  { cat "$WORK/got"; fail "a stop text '$stop' of '$hello'"; }
[ "$(complete Hello ", \"stream\": true, \"stop\": \"$stop\"" | pieces)" = "${hello%%"$stop"*}" ] || fail "a stop text, streamed"
chat='{"messages": [{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}], "max_completion_tokens": 12'
ask /v1/chat/completions "$chat}" > "$WORK/got"
[ "$(text_of < "$WORK/got")" = "$hi" ] && grep -q '"message":{"role":"assistant","content":"' "$WORK/got" ||
  { cat "$WORK/got"; fail "a chat"; }
ask /v1/chat/completions "$chat, \"stream\": true}" > "$WORK/events"
[ "$(pieces < "$WORK/events")" = "$hi" ] && grep -q '"delta":{"role":"assistant","content":""}' "$WORK/events" &&
  grep -q '"delta":{},"logprobs":null,"finish_reason":"length"' "$WORK/events" || { cat "$WORK/events"; fail "a streamed chat"; }
# Two clients at once.
for turn in 1 2 3; do
  complete Hello '' > "$WORK/one" & one=$!
  complete 'Again and again, over more than one chunk' ', "stream": true' > "$WORK/other" & other=$!
  wait $one && wait $other || fail "two clients at once: status $?"
  [ "$(text_of < "$WORK/one")" = "$hello" ] && [ "$(pieces < "$WORK/other")" = "$again" ] || fail "two clients at once, turn $turn"
done

# ---- what is refused ----------------------------------------------------------------------------

with=("${bearer[@]}")
refused 401 'wants its token' /v1/completions '{"prompt": "a"}'
refused 401 'wants its token' /v1/models '{}' -H 'Authorization: Bearer secrets'
refused 401 'wants its token' /v1/models '{}' -H 'Authorization: Bearer '
refused 404 'there are /v1/completions' /v2 '{}' "${with[@]}"
refused 405 'another method' /v1/models '{}' "${with[@]}"
curl -sS "${with[@]}" -H 'Content-Type: text/plain' -d '{"prompt": "a"}' "$at/v1/completions" | finds 'is to be JSON' ||
  fail "text/plain is taken"
refused 400 'prompt' /v1/completions '{}' "${with[@]}"
refused 400 'JSON object' /v1/completions '[]' "${with[@]}"
refused 400 '{"error"' /v1/completions '{"prompt": "a"' "${with[@]}"
refused 400 "'best_of' can only be the same as 'n'" /v1/completions '{"prompt": "a", "best_of": 2}' "${with[@]}"
refused 400 "it asks for 4 answers; this server takes 3 at once" /v1/completions '{"prompt": ["a", "b"], "n": 2}' "${with[@]}"
refused 400 "'logprobs' is to be a whole number" /v1/completions '{"prompt": "a", "logprobs": true}' "${with[@]}"
refused 400 "'logprobs' is to be a number from 0 to 20" /v1/completions '{"prompt": "a", "logprobs": 21}' "${with[@]}"
refused 400 "wants \\\"logprobs\\\": true" /v1/chat/completions '{"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}' "${with[@]}"
refused 400 "'echo' is not supported" /v1/chat/completions '{"messages": [{"role": "user", "content": "a"}], "echo": true}' "${with[@]}"
refused 400 "wants \\\"stream\\\": true" /v1/completions '{"prompt": "a", "stream_options": {}}' "${with[@]}"
for field in '"min_tokens": 5' '"enable_thinking": false' '"skip_special_tokens": false' '"prompt_logprobs": 0' '"ignore_eos": true' '"bad_words": ["a"]' '"guided_json": {"type": "object"}' '"grammar": "x"' '"logit_bias": {"1": 5}' \
  '"response_format": {"type": "json_object"}' '"continue_final_message": true' '"chat_template": "x"' '"tools": [{}]' '"suffix": "x"' '"nobody_knows": 1'; do
  name=${field#\"} name=${name%%\"*}
  refused 400 "'$name' is not supported" /v1/completions "{\"prompt\": \"a\", $field}" "${with[@]}"
  refused 400 "'$name' is not supported" /v1/chat/completions "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], $field}" "${with[@]}"
done
refused 400 "list of tokens" /v1/completions '{"prompt": "a", "stop_token_ids": ["a"]}' "${with[@]}"
refused 400 "is to be an object" /v1/chat/completions '{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 1}' "${with[@]}"
refused 400 "'temperature' is to be a number from 0" /v1/completions '{"prompt": "a", "temperature": -1}' "${with[@]}"
refused 400 "whole number" /v1/completions '{"prompt": "a", "max_tokens": 1.5}' "${with[@]}"
refused 400 "a text, a list of tokens, or a list of these" /v1/completions '{"prompt": ["a", 1]}' "${with[@]}"
refused 400 "0 tokens" /v1/completions '{"prompt": []}' "${with[@]}"
refused 400 "0 tokens" /v1/completions '{"prompt": ["a", []]}' "${with[@]}"
refused 400 "the model knows" /v1/completions '{"prompt": [256]}' "${with[@]}"
refused 400 "the context is 80" /v1/completions "{\"prompt\": \"$(printf 'x%.0s' {1..80})\"}" "${with[@]}"
refused 400 "a message's role" /v1/chat/completions '{"messages": [{"role": "x", "content": "a"}]}' "${with[@]}"
refused 400 "no messages" /v1/chat/completions '{"messages": []}' "${with[@]}"
{ printf '{"prompt": "'; head -c 4194304 /dev/zero | tr '\0' x; printf '"}'; } > "$WORK/large"
refused 413 'too large' /v1/completions @"$WORK/large" "${with[@]}" -H 'Expect:'
refused 413 'too large' /v1/completions @"$WORK/large" "${with[@]}" -H 'Expect:' -H 'Transfer-Encoding: chunked'
# A client that asks first sends nothing of it.
sent=$(curl -sS -o /dev/null -w '%{http_code} %{size_upload}' "${with[@]}" -H 'Content-Type: application/json' -H 'Expect: 100-continue' \
  --data-binary @"$WORK/large" "$at/v1/completions")
[ "$sent" = '413 0' ] || fail "a body that is too large, asked for: $sent"
status=$(curl -sS -o /dev/null -w '%{http_code}' -H "X: $(head -c 20000 /dev/zero | tr '\0' x)" "$at/health") || true
[[ $status =~ ^(413|431)$ ]] || fail "20,000 bytes of headers: status $status"

# ---- clients that go, and the queue -------------------------------------------------------------

# Long answers take both slots, and one waits: the next one is refused. Then their clients go, and slots are free.
long='{"prompt": "a", "max_tokens": 79, "stream": true}'
going=()
for i in 1 2 3; do
  "$TOOLS/fuzz_http" hold $port "$long" secret & going+=($!)
done
full=''
for ((i = 0; i < 40 && ${#full} == 0; i++)); do
  [ "$(complete Hello '' | grep -c 'too many requests wait')" -eq 0 ] || full=yes
done
kill "${going[@]}" 2> /dev/null || true
wait "${going[@]}" 2> /dev/null || true
complete Hello '' > "$WORK/got"
for ((i = 0; i < 40; i++)); do
  [ "$(text_of < "$WORK/got")" != "$hello" ] || break
  complete Hello '' > "$WORK/got"
done
[ "$(text_of < "$WORK/got")" = "$hello" ] || { cat "$WORK/got"; fail "slots of clients that went are not free"; }

# ---- requests of all kinds ----------------------------------------------------------------------

requests=500
[ -z "${SOAK:-}" ] || requests=100000
"$TOOLS/fuzz_http" requests $port "$requests" secret "$hello" > "$WORK/requests" 2>&1 || { tail -n 20 "$WORK/requests"; fail "requests of all kinds"; }
tail -n 1 "$WORK/requests"

# ---- the end ------------------------------------------------------------------------------------

ask /v1/completions '{"prompt": "Hello", "max_tokens": 70, "stream": true}' > "$WORK/last" 2>&1 & last=$!
stops TERM
wait $last || true
serves
curl -sS "$at/health" > "$WORK/got" || fail "a server without a token"
[ "$(curl -sS -d '{"prompt": "Hello", "max_tokens": 12}' -H 'Content-Type: application/json' "$at/v1/completions" | text_of)" = "$hello" ] ||
  fail "a completion without a token"
! "$WORK/served/ranks" "${arguments[@]}" --serve $port > "$WORK/messages" 2>&1 && grep -q "port $port of 127.0.0.1 cannot be opened" "$WORK/messages" ||
  { cat "$WORK/messages"; fail "a port that another has"; }
stops INT

finish "answers, streams and chats as without a server; limits, refusals, clients that go, $requests requests of all kinds, the end"
