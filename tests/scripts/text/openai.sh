#!/usr/bin/env bash
# A program that serves, against what OpenAI's client sends and reads (tests/golden/openai): each request of the file has
# the answer of Hugging Face's model, log-probabilities, echoes and lists of prompts among them, plain and streamed, several
# at a time, on two ranks and on the stand-in for CUDA; each member of the client's types of requests is done, refused by
# name, or changes nothing; drawn choices; stop texts.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
runtime_plan=plans/generate.lua
. "$root/tests/scripts/programs.sh"
make_runtimes plain cuda
of=$golden/openai
shape=(-D config="$golden/generate/llama/config.json" -D context=80 -D prefill=16)
make plain2 plain plans/generate.lua "${shape[@]}" -D slots=3 -D tp=2 && make cuda1 cuda plans/generate.lua "${shape[@]}" -D slots=2 || finish
cp "$golden"/generate/llama/{config.json,model.safetensors} "$of/tokenizer.json" "$WORK"
printf '%s' "{% for message in messages %}{{'<s>' + message['role'] + '\n' + message['content'] + '<end>\n'}}{% endfor %}" \
  "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}" > "$WORK/chat_template.jinja"
export OMP_NUM_THREADS=1

arguments=(--weights "$WORK")
. "$root/tests/scripts/text/server.sh"
client() { timeout 300 python3 tests/tools/openai_client.py "$1" $port "${@:2}" || fail "$*"; }

program=plain2 serves
client answers "$of/requests.jsonl" 4
client fields "$of/fields.tsv"
client draws
client stops
python3 -c 'import json; print(json.dumps({"prompt": ["a"] * 34, "n": 2}))' > "$WORK/many"
python3 - "$port" "$WORK/many" <<'END' || fail "too many answers"
import sys, urllib.error, urllib.request
request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/v1/completions", open(sys.argv[2], "rb").read(), {"Content-Type": "application/json"})
try:
    urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    sys.exit(b"it asks for 68 answers; this server takes 67 at once" not in error.read())
END
stops TERM
program=cuda1 serves
client answers "$of/requests.jsonl" 2
stops TERM

finish "answers of OpenAI's client, plain and streamed, and all members of its requests"
