#!/usr/bin/env bash
# plans/llama3.lua has PyTorch's losses and norms of gradients (tests/golden/llama), from PyTorch's weights and
# text, in five steps, and in twenty for one program, in CI two (SOAK=1: for all); on several meshes, tensor and data
# parallel, with the logits sharded and whole. Also: a checkpoint that moves between the meshes; the rotary
# tables; the collectives of a step; a Hugging Face model's config.json, and weights under its names; heads that
# do not divide, a tied output, and the initial weights, against one rank.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
optimized=-O1
steps=${SOAK:+20}
steps=${steps:-5}
# More ranks than cores: a thread each.
export OMP_NUM_THREADS=1

# make NAME ARGUMENTS...: the program in $WORK/NAME; `kernels` says how its kernels are optimized.
make() {
  local to=$WORK/$1
  shift
  "$TPGEN" plans/llama3.lua -o "$to" "$@" && optimized=${kernels:--O0} make_ranks "$to" plain || fail "$(basename "$to"): no program"
}

# A step's collectives of one kind over tp.
count() { "$TOOLS/collectives" "$WORK/$1/plan.json" traffic | awk -v kind="$2" '$1 == kind { n += $3 } END { print n + 0 }'; }

# check_counts NAME LAYERS
check_counts() {
  local kind n
  for kind in all_gather reduce_scatter; do
    n=$(count "$1" $kind)
    [ "$n" -eq $((4 * $2 + 2)) ] || fail "$1: $n $kind"
  done
  n=$(count "$1" all_reduce)
  [ "$n" -le 5 ] || fail "$1: $n all-reduces"
}

# Depth adds neither text nor all-reduces.
check_depth() {
  local layers lines shallow=0
  for layers in 2 5 32; do
    "$TPGEN" plans/llama3.lua -o "$WORK/deep$layers" -D tp=2 -D clip=1 -D n_layers=$layers || fail "$layers layers"
    check_counts deep$layers $layers
    lines=$(wc -l < "$WORK/deep$layers/step.c")
    [ "$shallow" -gt 0 ] || shallow=$lines
    [ "$lines" -le $((shallow + 20)) ] || fail "$layers layers: $lines lines, and 2 layers $shallow"
  done
  [ "$(count deep32 all_reduce)" -eq "$(count deep2 all_reduce)" ] || fail "all-reduces grow with the depth"
}

# check_equal NAME ARGUMENTS, with -- TP...: tp ranks train like one rank, from random weights.
check_equal() {
  local name=$1 arguments=() tp
  shift
  while [ "$1" != -- ]; do arguments+=("$1") && shift; done
  for tp in 1 "${@:2}"; do
    make "$name.$tp" "${arguments[@]}" -D tp="$tp" -D lr=1e-2
    start "$WORK/$name.$tp" "$WORK/$name.$tp" --data "$llama/text.txt" --steps 5 || fail "$name, tp=$tp: no run"
    [ "$tp" = 1 ] || same_losses "$name.$tp" "$WORK/$name.$tp.losses" "$WORK/$name.1.losses"
  done
}

# The initial weights have the same bits on every mesh.
check_beginning() {
  local name
  for name in tp1 tp3 dp2_tp2; do
    start "$WORK/$name" "$WORK/$name.begin" --steps 0 > "$WORK/$name.zero" || fail "$name: no beginning"
    "$TOOLS/compare_safetensors" "$WORK/$name.begin.saved/model.safetensors" \
      "$WORK/tp1.begin.saved/model.safetensors" 0 || fail "$name begins otherwise"
  done
}

# A checkpoint goes from mesh to mesh without a changed bit.
check_moves() {
  local name from=tp1
  for name in fsdp4 hsdp dp2_tp2 tp1; do
    start "$WORK/$name" "$WORK/moved_$name" --load "$WORK/$from.saved" --data "$llama/text.txt" --steps "$steps" &&
      "$TOOLS/compare_safetensors" "$WORK/moved_$name.saved/model.safetensors" \
        "$WORK/tp1.saved/model.safetensors" 0 || fail "from $from to $name: another checkpoint"
    from=moved_$name
  done
}

# The work that a run's metrics report is the model's, on any mesh: 256 tokens times 434,176 weights, without
# the embedding's, and queries times keys times values; forward, and twice that backward.
check_work() {
  local name ranks
  while read -r name ranks; do
    paste <(numbers tflops "$WORK/$name.jsonl") <(numbers seconds "$WORK/$name.jsonl") | awk -v ranks="$ranks" '
      { ratio = $1 * $2 * ranks * 1e12 / (3 * (2 * 256 * 434176 + 2 * 2 * 2 * 4 * 8 * 64 * 64 * 16)) }
      !(ratio > 1 - 1e-6 && ratio < 1 + 1e-6) { bad = 1 }
      END { exit bad || NR != '"$steps"' }' || fail "$name: its tflops are not those of the model"
  done <<< 'tp1 1
tp3 3
fsdp2 2
dp2_tp2_async 4'
}

# One rank's export has Hugging Face's names. With the model's config.json a program for two ranks starts from
# it: the same losses again.
check_config() {
  local hf=$WORK/hf
  start "$WORK/tp1" "$WORK/exported" --weights "$llama/llama.safetensors" --steps 0 --export "$hf" ||
    fail "no export"
  grep -aq '"model.layers.1.self_attn.q_proj.weight":' "$hf/model.safetensors" || fail "names of ours are exported"
  cat > "$hf/config.json" << 'END'
{"model_type": "llama", "hidden_act": "silu", "hidden_size": 128, "intermediate_size": 352,
 "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16,
 "rms_norm_eps": 1e-05, "vocab_size": 512, "tie_word_embeddings": false, "max_position_embeddings": 64,
 "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
END
  kernels=-O1 make config -D config="$hf/config.json" -D tp=2 -D batch=4 "${golden_shape[@]:16}"
  start "$WORK/config" "$WORK/config" --weights "$hf" --data "$llama/text.txt" --steps "$steps" || fail "config: no run"
  cmp "$WORK/config.losses" "$WORK/tp2.losses" || fail "the model of config.json is another"
  ends "has no 'hidden_size'" '{"model_type": "llama", "hidden_size": null}'
  ends "hidden_act is 'gelu'" '{"model_type": "llama", "hidden_act": "gelu"}'
  ends "is not JSON" '{"model_type": '
  sed 's/"default"/"spiral"/' "$hf/config.json" > "$WORK/spiral.json"
  ends "rope_type must be" "$(cat "$WORK/spiral.json")"
}
# A config.json of Llama 3.1, with the newer keys and the older ones, and the preset: one model, in which the
# scaling has an effect; and without scaling the model of the same shape by -D.
check_scaling() {
  local shape='"model_type": "llama", "hidden_size": 64, "intermediate_size": 40, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "rms_norm_eps": 1e-5'
  local llama31='"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192'
  local same=(-D seq=64 -D batch=4 -D lr=0.03) name
  cat > "$WORK/newer.json" <<< "{$shape,
    \"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\", $llama31}}"
  cat > "$WORK/older.json" <<< "{$shape, \"rope_theta\": 500000.0,
    \"rope_scaling\": {\"type\": \"llama3\", $llama31}}"
  echo "{${shape/1e-5/0.01}, \"rope_theta\": 500000.0, \"tie_word_embeddings\": true}" > "$WORK/tied_rope.json"
  for name in newer older tied_rope; do make $name -D config="$WORK/$name.json" "${same[@]}"; done
  shape=(-D dim=64 -D hidden=40 -D n_layers=1 -D n_heads=4 -D n_kv_heads=2 -D vocab=256 "${same[@]}")
  make preset_rope -D preset=8b "${shape[@]}"
  make no_rope "${shape[@]}" -D theta=500000
  make tied_D "${shape[@]}" -D theta=500000 -D eps=0.01 -D tied=true
  for name in newer older preset_rope no_rope tied_rope tied_D; do
    start "$WORK/$name" "$WORK/$name" --data "$llama/text.txt" --steps 5 || fail "$name: no run"
  done
  cmp "$WORK/older.losses" "$WORK/newer.losses" || fail "older names of the scaling: another model"
  cmp "$WORK/preset_rope.losses" "$WORK/newer.losses" || fail "preset=8b and Llama 3.1's config.json: other models"
  ! cmp -s "$WORK/no_rope.losses" "$WORK/newer.losses" || fail "the scaling changes nothing"
  cmp "$WORK/tied_rope.losses" "$WORK/tied_D.losses" || fail "tied, eps and theta: another model"
  ! cmp -s "$WORK/tied_rope.losses" "$WORK/no_rope.losses" || fail "tied and eps change nothing"
}
# The tables of Llama 3.1's rotary embedding are PyTorch's, except for the last bit of an angle.
check_rotary() {
  cat > "$WORK/rotary.lua" << 'END'
local scaling = {rope_type = "llama3", factor = 8, low_freq_factor = 1, high_freq_factor = 4,
  original_max_position_embeddings = 8192}
return infer{model = nn.Identity(), batch = {}, outputs = function()
  local cos, sin = F.rotary_tables(512, 128, 500000, scaling)
  return {cos = cos:slice(0, 0, nil, 73), sin = sin:slice(0, 0, nil, 73)}
end}
END
  "$TPGEN" "$WORK/rotary.lua" -o "$WORK/rotary" && make_ranks "$WORK/rotary" plain &&
    start "$WORK/rotary" "$WORK/rotary" &&
    "$TOOLS/compare_safetensors" "$WORK/rotary.saved/outputs.safetensors" "$llama/rotary.safetensors" 3e-5 ||
    fail "other rotary tables"
}

# PyTorch's losses if each step casts the float32 weights to bfloat16 and the logits back.
pytorch_bf16=(6.296626 5.856145 5.672880 5.488650 5.322222 5.173370 5.004648 4.877210 4.750180 4.507465
  4.392539 4.211382 4.085181 3.936758 4.038773 3.858773 3.685435 3.602366 3.514489 3.382246)

# In bfloat16 the losses are PyTorch's in bfloat16, except for the growth of different roundings; and losses and
# norms are close to those of float32. Checkpoints are float32.
check_bfloat16() {
  local name=bf16_$1 within=(1e-2 1e-2)
  check_golden plain "$name" -D dtype=bfloat16 "${@:2}"
  printf '%s\n' "${pytorch_bf16[@]:0:steps}" > "$WORK/$name.pytorch"
  within=(3e-4 1e-3)
  near "$name, PyTorch" "$WORK/$name.loss" "$WORK/$name.pytorch"
  ! grep -aq '"BF16"' "$WORK/$name.saved/model.safetensors" || fail "$name: it keeps bfloat16"
}

# ends WORDS JSON: that configuration is refused with these words.
ends() {
  echo "$2" > "$WORK/wrong.json"
  ! "$TPGEN" plans/llama3.lua -o "$WORK/wrong" -D config="$WORK/wrong.json" 2> "$WORK/wrong.err" &&
    grep -qF -- "$1" "$WORK/wrong.err" || fail "of $2 it says: $(cat "$WORK/wrong.err")"
}

# The same by oneDNN, as in a user's build; and a check that oneDNN ran. Its products of bfloat16 require
# AVX-512.
check_onednn() {
  local to=$WORK/onednn
  "$TPGEN" plans/llama3.lua -o "$to" "${golden_shape[@]}" -D tp=2 -D dtype=bfloat16 || fail "onednn: no program"
  env -u ONEDNN_MAX_CPU_ISA -u OMP_NUM_THREADS TPGEN_ONEDNN=1 ONEDNN_VERBOSE=1 CMAKE_ARGS=-DCMAKE_C_FLAGS=-O1 "$to/run.sh" --steps "$steps" \
    --metrics "$to.jsonl" --weights "$llama/llama.safetensors" --data "$llama/text.txt" > "$to.out" 2>&1 || {
    tail -n 20 "$to.out"
    fail "onednn: it ended with status $?"
  }
  if grep -q 'Without oneDNN' "$to/build/build.log"; then
    echo "  onednn: SKIPPED: it is not installed"
    return
  fi
  if grep -qw avx512bw /proc/cpuinfo; then
    grep -q 'verbose,exec,cpu,matmul' "$to.out" || fail "onednn: nothing is computed by it"
  else
    echo "  onednn: not tried: this processor has no AVX-512"
    ! grep -q 'verbose,exec,cpu,matmul' "$to.out" || fail "onednn: it computes products without AVX-512"
  fi
  numbers loss "$to.jsonl" > "$to.loss"
  printf '%s\n' "${pytorch_bf16[@]:0:steps}" > "$to.pytorch"
  local within=(3e-4 1e-3)
  near "onednn, PyTorch" "$to.loss" "$to.pytorch"
}

make_runtime plain > "$WORK/runtime.log" 2>&1 || fail "the runtime does not compile"
beside "$WORK/rotary.log" check_rotary
for tp in 1 2 3 4; do
  beside "$WORK/tp$tp.log" check_golden plain tp$tp -D tp=$tp
done
for tp in 3 $(in_ci echo 2 4); do
  beside "$WORK/tp${tp}_whole.log" check_golden plain tp${tp}_whole -D tp=$tp -D loss_parallel=false
done
# Data parallel: replicated, fully sharded (over three ranks the third has nothing of the batch), both, and with
# tensor parallelism.
steps=20 beside "$WORK/ddp.log" check_golden plain ddp -D dp_replicate=2
for dp in 2 3 4; do
  beside "$WORK/fsdp$dp.log" check_golden plain fsdp$dp -D dp_shard=$dp
done
beside "$WORK/hsdp.log" check_golden plain hsdp -D dp_replicate=2 -D dp_shard=2
beside "$WORK/dp2_tp2.log" check_golden plain dp2_tp2 -D dp_shard=2 -D tp=2
# Chunked gathers and reductions over tp.
beside "$WORK/dp2_tp2_async.log" check_golden plain dp2_tp2_async -D dp_shard=2 -D tp=2 -D async_tp=2
in_ci beside "$WORK/tp4_async.log" check_golden plain tp4_async -D tp=4 -D async_tp=4
steps=$(ci_cases && echo 20 || echo $steps) beside "$WORK/bf16_fsdp2.log" check_bfloat16 fsdp2 -D dp_shard=2
beside "$WORK/onednn.log" check_onednn
beside "$WORK/bf16_tp1.log" check_bfloat16 tp1
beside "$WORK/bf16_tp2.log" check_bfloat16 tp2 -D tp=2
small=(-D dim=48 -D n_layers=3 -D hidden=40 -D vocab=258 -D seq=16)
beside "$WORK/six.log" check_equal six "${small[@]}" -D n_heads=6 -D n_kv_heads=6 -- 4
beside "$WORK/few.log" check_equal few "${small[@]}" -D n_heads=4 -D n_kv_heads=2 -D checkpoint=layer -- 4
beside "$WORK/places.log" check_equal places "${small[@]}" -D n_heads=4 -D n_kv_heads=2 -D batch=2 -- 3
beside "$WORK/tied.log" check_equal tied "${small[@]}" -D n_heads=4 -D n_kv_heads=2 -D tied=true -D accumulate=2 -- 2
all_are_done
for tp in 2 3 4; do check_counts tp$tp 2; done
check_depth
check_work
beside "$WORK/beginning.log" check_beginning
beside "$WORK/config.log" check_config
beside "$WORK/scaling.log" check_scaling
beside "$WORK/moves.log" check_moves
all_are_done
cat "$WORK"/*.log
for name in six.4 few.4 places.3 tied.2; do
  grep -q 'for (int l = 0; l < 3; l++)' "$WORK/$name/step.c" || fail "$name: its layers are no loop"
done
finish "PyTorch's losses and norms on every mesh"
