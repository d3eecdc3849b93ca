#!/usr/bin/env bash
# The golden Llama in float32 and bfloat16, as in a user's build, on every processor that this one can emulate:
# gcc's levels of x86-64, OpenBLAS's kernels and oneDNN's instructions are each set to those of an older one.
# Each trains to the golden losses. Levels beyond this processor are reported, and skipped.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"

has() {
  local flag
  for flag; do grep -qw "$flag" /proc/cpuinfo || return 1; done
}

# trains DTYPE FLAGS VARIABLES: with these flags of gcc and this environment. A program is built once for
# each of gcc's flags.
trains() {
  local dtype=$1 flags=$2 name
  shift 2
  name="$dtype $flags $*"
  local to=$WORK/$dtype${flags#-march=} result=$WORK/result status=0
  [ -e "$to" ] || "$TPGEN" plans/llama3.lua -o "$to" "${golden_shape[@]}" -D tp=2 -D dtype="$dtype" ||
    fail "$name: no program"
  rm -f "$result.jsonl"
  env CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=$flags" OMP_NUM_THREADS=1 "$@" \
    "$to/run.sh" --steps 20 --metrics "$result.jsonl" --weights "$llama/llama.safetensors" --data "$llama/text.txt" > "$result.out" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    tail -n 20 "$result.out"
    fail "$name: it ended with status $status"
    return
  fi
  numbers loss "$result.jsonl" > "$result.loss"
  local within=(2e-5 2e-4)
  [ "$dtype" = float32 ] || within=(1e-2 1e-2)
  near "$name" "$result.loss" "$WORK/golden.loss"
}

both() {
  trains float32 "$@"
  trains bfloat16 "$@"
}

golden_numbers losses > "$WORK/golden.loss"
both -march=x86-64 OPENBLAS_CORETYPE=Prescott ONEDNN_MAX_CPU_ISA=SSE41
both -march=x86-64-v2 OPENBLAS_CORETYPE=Nehalem
if has avx2 fma; then
  both -march=x86-64-v3 OPENBLAS_CORETYPE=Haswell ONEDNN_MAX_CPU_ISA=AVX2
  trains bfloat16 -march=x86-64-v3 TPGEN_ONEDNN=1
  trains bfloat16 -march=x86-64-v3 TPGEN_ONEDNN=0
else
  echo "  not tried: AVX2"
fi
if has avx512f avx512bw avx512vl; then
  both -march=x86-64-v4 OPENBLAS_CORETYPE=SkylakeX ONEDNN_MAX_CPU_ISA=AVX512_CORE
  trains bfloat16 -march=x86-64-v4 TPGEN_ONEDNN=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE
else
  echo "  not tried: AVX-512"
fi
if has avx512_bf16; then
  trains bfloat16 -march=cooperlake ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
  trains bfloat16 -march=cooperlake TPGEN_ONEDNN=0
else
  echo "  not tried: AVX-512's instructions for bfloat16"
fi
has amx_bf16 || echo "  not tried: AMX"
both -march=native
trains bfloat16 -march=native TPGEN_ONEDNN=1
trains bfloat16 -march=native TPGEN_ONEDNN=0
finish "the golden losses on every processor that this one can be"
