#!/usr/bin/env bash
# A Llama of random weights on this machine, one prompt at a time: seconds of a prompt of 512 tokens, and of
# the tokens after it; of tpgen's program and of llama.cpp, on the same weights, in turn, some rounds; beside
# the bytes a second that a loop reaches which only reads. Weights are float32, bfloat16, and 8 bits (int8; q8_0).
#   PYTHON   with llama_cpp, gguf and numpy: pip install llama-cpp-python gguf
#   MODEL    a folder that has the model, or will have it   (a folder of its own, which is removed)
#   SIZE     1b or 250m   (1b)
#   ROUNDS   (3)
#   TOKENS   (64)
#   THREADS  (as many as there are processors)
#   ONLY     a regular expression: these types alone   (all)
set -euo pipefail
. "$(dirname "$0")/common.sh"
tokens=${TOKENS:-64} prompt=512
export OMP_NUM_THREADS=${THREADS:-$(nproc)}
has_modules llama_cpp && has_modules gguf || exit 0 # they make the model
model=${MODEL:-$work/model}
[ -e "$model/Q8_0.gguf" ] || "$PYTHON" "$here/decode_llama_cpp.py" make "$model" "${SIZE:-1b}"

cc -O3 -march=native -fopenmp "$here/read_loop.c" -o "$work/read_loop"
printf '{"ids": [%s]}\n' "$(for ((i = 0; i < prompt; i++)); do printf '%s%d' "${sep:-}" $((3 + 7 * i % 1000)); sep=', '; done)" \
  > "$work/prompt.jsonl"
declare -A kind=([float32]=F32 [bfloat16]=BF16 [int8]=Q8_0)
types=()
for type in float32 bfloat16 int8; do [[ ! $type =~ ${ONLY:-.} ]] || types+=("$type"); done
for type in "${types[@]}"; do
  (cd "$root" && "$TPGEN" plans/generate.lua -o "$work/$type" -D config="$model/config.json" \
    -D context=1024 -D prefill=$prompt -D weight_dtype="$type")
  "$work/$type/run.sh" --weights "$model" --prompts "$work/prompt.jsonl" --tokens 2 > "$work/messages" 2>&1 ||
    { cat "$work/messages" >&2; exit 1; }
done

# best FILE: the largest number of column 1, 2 or 3
best() { sort -g -r -k "$2,$2" "$1" | awk -v c="$2" 'NR == 1 { print $c }'; }
for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
  for type in "${types[@]}"; do
    "$work/read_loop" 1024 >> "$work/loop"
    "$work/$type/run.sh" --weights "$model" --prompts "$work/prompt.jsonl" --tokens "$tokens" --output "$work/answer" 2> "$work/messages"
    sed -n 's/^prompts: .* tokens, \([0-9.]*\) tokens a second; .*, \([0-9.]*\) tokens a second, \([0-9.]*\) GB.*/\1 \2 \3/p' "$work/messages" \
      | tee -a "$work/$type.tpgen" | sed "s/^/round $round  $type  tpgen      /"
    "$PYTHON" "$here/decode_llama_cpp.py" run "$model/${kind[$type]}.gguf" "$OMP_NUM_THREADS" $prompt "$tokens" 2> "$work/messages" \
      | tee -a "$work/$type.llama" | sed "s/^/round $round  $type  llama.cpp  /"
  done
done

loop=$(best "$work/loop" 1)
printf '\nThe best of %s rounds. A loop that only reads: %s GB/s.\n' "${ROUNDS:-3}" "$loop"
printf '%-9s %28s %28s %20s\n' weights 'prompt, tokens a second' 'then, tokens a second' 'GB/s read'
for type in "${types[@]}"; do
  awk -v type="$type" -v a="$(best "$work/$type.tpgen" 1)" -v b="$(best "$work/$type.llama" 1)" \
    -v c="$(best "$work/$type.tpgen" 2)" -v d="$(best "$work/$type.llama" 2)" -v e="$(best "$work/$type.tpgen" 3)" -v f="$loop" \
    'BEGIN { printf "%-9s %8.1f; %6.1f (%4.2f times) %8.2f; %6.2f (%4.2f times) %8.2f (%.0f %%)\n", type, a, b, a / b, c, d, c / d, e, 100 * e / f }'
done
