#!/usr/bin/env bash
# Packed documents: plans/llama3.lua with -D documents trains as Hugging Face's model with eager attention and a
# mask of blocks (tests/golden/documents), on one rank and on meshes: heads cut over tp, the batch over dp, and
# queries against gathered keys where heads do not divide; on the CPU, on the stand-in for CUDA and in bfloat16.
# One sequence of several documents has the losses of these documents run alone. What is no plan is refused.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
steps=${SOAK:+20}
steps=${steps:-5}
export OMP_NUM_THREADS=1
facts=$root/tests/golden/documents/losses.json
pytorch() { sed "s/.*\"losses\": \\[\\([^]]*\\)\\].*/\\1/" "$facts" | tr -d ' ' | tr , '\n' | sed -n "1,$1p"; }

# check NAME KIND STEPS WITHIN ARGUMENTS...
check() {
  local name=$1 kind=$2 n=$3 within=$4 to=$WORK/$1 plan=(plans/llama3.lua "${golden_shape[@]}")
  shift 4
  [ "$kind" != cuda ] || set -- --target cuda "$@"
  # The plan of all families has the shape from a file.
  [ "$name" != family ] || plan=(plans/causal_lm.lua -D config="$WORK/config.json" "${golden_shape[@]:12}")
  "$TPGEN" "${plan[@]}" -o "$to" -D documents=10 "$@" && make_ranks "$to" "$kind" || fail "$name: no program"
  local weights=$llama/llama.safetensors
  if [ "$name" = family ]; then # under the names of files
    weights=$WORK/hf
    "$TPGEN" plans/llama3.lua "${golden_shape[@]}" -o "$WORK/names" && make_ranks "$WORK/names" plain &&
      start "$WORK/names" "$WORK/names" --weights "$llama/llama.safetensors" --steps 0 --export "$weights" || fail "$name: no weights"
  fi
  start "$to" "$to" --weights "$weights" --data "$llama/text.txt" --steps "$n" || fail "$name: it ended with status $?"
  same_losses "$name" "$to.losses" <(pytorch "$n") "$within"
}

# The mean over the targets of all documents, from the losses of each run alone.
alone() {
  sed 's/.*"alone": \[\[\(.*\)\]\]}/\1/; s/\], \[/\n/g' "$facts" | tr -d , |
    awk '{ n += $3; sum += $3 * $4 } END { printf "%.9g\n", sum / n }'
}
check_alone() {
  local name=alone_$1 to=$WORK/alone_$1 arguments
  with_defaults golden_shape -D batch=1 -D seq=256 -D documents=10 -D tp="$1"
  "$TPGEN" plans/llama3.lua -o "$to" "${arguments[@]}" &&
    make_ranks "$to" plain || fail "$name: no program"
  start "$to" "$to" --weights "$llama/llama.safetensors" --data "$llama/text.txt" --steps 1 || fail "$name: no run"
  same_losses "$name" "$to.losses" <(alone) 2e-6
}

refused() {
  local words=$1
  cat > "$WORK/refused.lua"
  ! "$TPGEN" "$WORK/refused.lua" -o "$WORK/refused" 2> "$WORK/refused.err" && grep -q "$words" "$WORK/refused.err" ||
    fail "not refused with '$words': $(cat "$WORK/refused.err")"
}

make_runtimes plain cuda
beside "$WORK/one.log" check one plain 20 2e-6
beside "$WORK/tp2.log" check tp2 plain $steps 2e-6 -D tp=2
beside "$WORK/tp3.log" check tp3 plain $steps 2e-6 -D tp=3
echo '{"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
  "intermediate_size": 352, "vocab_size": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000, "max_position_embeddings": 64,
  "tie_word_embeddings": false}' > "$WORK/config.json"
beside "$WORK/family.log" check family plain $steps 2e-6 -D tp=2
beside "$WORK/queries.log" check queries plain $steps 2e-6 -D tp=5
beside "$WORK/dp2_tp2.log" check dp2_tp2 plain $steps 2e-6 -D dp_shard=2 -D tp=2
beside "$WORK/bf16.log" check bf16 plain $steps 1e-3 -D tp=2 -D dtype=bfloat16
beside "$WORK/on_stand_in.log" check on_stand_in cuda 2 2e-6 -D tp=2
in_ci beside "$WORK/cuda_bf16.log" check cuda_bf16 cuda 2 1e-3 -D dtype=bfloat16
beside "$WORK/alone1.log" check_alone 1
beside "$WORK/alone3.log" check_alone 3
all_are_done
cat "$WORK"/*.log
refused "needs tokens shifted by 1" << 'END'
return train{model = nn.Embedding(8, 8), batch = {input = tokens(8){2, 4}, target = tokens(8, {shift = 2, documents = 2}){2, 4}},
  loss = function(y, b) return F.cross_entropy(y:flatten(0, 1), b.target:flatten(0, 1)) end, optimizer = SGD{lr = 1}, steps = 1}
END
refused "say which token ends a document" << 'END'
return infer{model = nn.module("M", function(self) function self:forward(x) return (x:documents()) end end)(),
  batch = {input = tokens(8){2, 4}}}
END
refused "documents are whole numbers of shape" << 'END'
return infer{model = nn.module("M", function(self)
  function self:forward(x) return F.scaled_dot_product_attention(x, x, x, {documents = x:to("int32")}) end end)(),
  batch = {input = randn{1, 2, 4, 8}}}
END
finish "documents do not see each other"
