#!/usr/bin/env bash
# A field of config.json that is of another type, missing, or null: each plan that reads it makes a program or says
# what is wrong in words of its own, never in Lua's. One value for each field, in turn; with CASES=all all values.
. "$(dirname "$0")/../common.sh"

values=('"x"' '[]' 0 '{}' -1 true 1.5 '[1]' null 1e300 '""' '["x"]' 1000000000000 '{"rope_type": 5}' false '{"rope_type": "yarn", "factor": "x"}')
lua='attempt to\|bad argument\|no integer representation\|table: 0x\|invalid \(value\|option\)\|is declared here\|mistake in tpgen'

# plans_of MODEL_TYPE
plans_of() {
  case $1 in
  gemma*) echo gemma ;;
  llama) echo llama3 generate ;;
  mistral | qwen2 | qwen3) echo qwen generate ;;
  gpt2) echo gpt2 generate ;;
  mixtral | olmoe | qwen3_moe | deepseek_v3) echo moe ;;
  *) echo "$1" ;;
  esac
}

# try PLAN CONFIG WHAT: a program, or an error without Lua's words.
tried=0
try() {
  local status=0
  "$TPGEN" "plans/$1.lua" -D "config=$2" --dump=lua > /dev/null 2> "$WORK/message" || status=$?
  [ "$status" -le 1 ] || fail "$1, $3: status $status"
  if finds "$lua" "$WORK/message"; then fail "$1, $3: $(head -n 1 "$WORK/message")"; fi
  tried=$((tried + 1))
}

# with FROM KEY VALUE: the config with another value of the key, however many lines that has.
with() {
  awk -v key="$2" -v value="$3" '
    skips { if ($0 ~ ends) { skips = 0; sub(ends, ""); print start value $0 } ; next }
    $0 ~ "^  \"" key "\": " {
      start = "  \"" key "\": "
      if ($0 ~ /[[{]$/) { skips = 1; ends = "^  []}]"; next }
      print start value (/,$/ ? "," : ""); next
    }
    { print }' "$1"
}

n=0
folders=(models generate moe $(in_ci echo families))
for config in $(printf "$golden/%s/*/config.json " "${folders[@]}"); do
  type=$(sed -n 's/^  "model_type": "\(.*\)",*$/\1/p' "$config")
  # What the files lack, and plans read.
  sed '1s/$/\n  "sliding_window": null,\n  "layer_types": null,\n  "rope_scaling": null,/' "$config" |
    awk '!/^  "/ || !seen[$1]++' > "$WORK/whole.json"
  [[ $config == */families/* ]] && plans=causal_lm || plans=$(plans_of "$type")
  n=$((n + 1))
  ! [[ $config == */families/* && $((n % 2)) -eq 0 ]] || all_cases || continue
  for plan in $plans; do
    "$TPGEN" "plans/$plan.lua" -D "config=$config" --dump=lua > /dev/null 2> "$WORK/message" || { cat "$WORK/message"; fail "$config: no program"; }
    for key in $(sed -n 's/^  "\([a-z_0-9]*\)": .*/\1/p' "$WORK/whole.json"); do
      some=("${values[tried % ${#values[@]}]}")
      ! all_cases || some=("${values[@]}")
      for value in "${some[@]}"; do
        with "$WORK/whole.json" "$key" "$value" > "$WORK/config.json"
        try "$plan" "$WORK/config.json" "$key = $value"
      done
    done
  done
done

# says KEY VALUE PLAN MODEL TEXT
says() {
  with "$golden/models/$4/config.json" "$1" "$2" > "$WORK/config.json"
  ! "$TPGEN" "plans/$3.lua" -D "config=$WORK/config.json" --dump=lua > /dev/null 2> "$WORK/message" || fail "$1 = $2: taken"
  finds -F "config.json: $1 $5" "$WORK/message" || { cat "$WORK/message"; fail "$1 = $2: another message"; }
}
says num_attention_heads '"x"' generate llama "must be a whole number, 1 or more, not 'x'"
says rms_norm_eps '"x"' qwen qwen3 "must be a number above 0, not 'x'"
says layer_types 2 qwen qwen2_window "must be a list of texts, not 2"
says depths 64 resnet resnet "must be a list of whole numbers, each 1 or more, not 64"
says tie_word_embeddings '[]' llama3 llama "must be true or false, not an empty list or object"
says model_type '{"a": 1}' generate llama "must be a text, not an object"

# windows CONFIG N...: the windows of attention by layer; 0: none.
windows() {
  local found
  found=$("$TPGEN" plans/qwen.lua -D "config=$1" --dump=lua | sed -nE '/ = attention\(/s/.* numbers 1(,([0-9]+))? .*/\2 -/p' | sed 's/^ -/0/; s/ -//' | xargs)
  [ "$found" = "${*:2}" ] || fail "the windows of $1 are '$found', not '${*:2}'"
}
mistral='"model_type": "mistral", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 96,
  "vocab_size": 64, "max_position_embeddings": 32, "hidden_act": "silu"'
printf '{%s, "sliding_window": 4}\n' "$mistral" > "$WORK/all.json"
printf '{%s, "sliding_window": null}\n' "$mistral" > "$WORK/none.json"
printf '{%s, "sliding_window": 4, "layer_types": ["full_attention", "sliding_attention"]}\n' "$mistral" > "$WORK/some.json"
sed 's/"mistral"/"ministral"/' "$WORK/some.json" > "$WORK/ministral.json"
windows "$WORK/all.json" 4 4
windows "$WORK/none.json" 0 0
windows "$WORK/some.json" 0 4 # transformers takes it as a ministral
windows "$WORK/ministral.json" 0 4
# DeepSeek whose first dense layers are all of them has no bias of experts.
sed 's/"first_k_dense_replace": *[0-9]*/"first_k_dense_replace": 3/' "$golden/families/deepseek_v3/config.json" > "$WORK/dense.json"
"$TPGEN" plans/generate.lua -D config="$WORK/dense.json" -D context=32 --dump=lua > /dev/null 2> "$WORK/message" || { cat "$WORK/message"; fail "DeepSeek without experts"; }
! "$TPGEN" plans/moe.lua -D config="$WORK/dense.json" --dump=lua > /dev/null 2> "$WORK/message" && finds 'the first 3 layers have no experts' "$WORK/message" || { cat "$WORK/message"; fail "DeepSeek without experts in moe.lua"; }

finish "$tried configurations"
