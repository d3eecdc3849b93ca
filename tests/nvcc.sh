#!/usr/bin/env bash
# The toy's CUDA programs compile and link with nvcc, without a warning, into a binary for each rank; the
# kernels and steps of all cases of tests/operators, of many moves (tests/moves), and of training, compile.
# Needs the toolkit, no GPU; skipped loudly where there is none.
. "$(dirname "$0")/common.sh"

nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || {
  echo "nvcc: SKIPPED: no nvcc in PATH or /usr/local/cuda/bin. The .cu text was only compiled for the stand-in."
  exit 77
}
for tp in 2 3; do
  generate tp$tp --target cuda -D tp=$tp
  cmake -S "$WORK/tp$tp" -B "$WORK/tp$tp/build" -DCMAKE_CUDA_COMPILER="$nvcc" \
    -DCMAKE_CUDA_ARCHITECTURES=90 \
    -DCMAKE_CUDA_FLAGS="-Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror" > "$WORK/log" 2>&1 &&
    cmake --build "$WORK/tp$tp/build" --parallel 2 >> "$WORK/log" 2>&1 || {
    tail -n 40 "$WORK/log"
    fail "tp=$tp does not build with nvcc"
    continue
  }
  for ((rank = 0; rank < tp; rank++)); do
    find "$WORK/tp$tp/build" -type f -executable -name "*rank$rank" | grep -q . ||
      fail "tp=$tp: no binary for rank $rank"
  done
done

flags=(-std=c++20 -arch=sm_90 -Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror
  -Xcicc=-O1 -Xptxas=-O0 -D_GNU_SOURCE -DTPGEN_CUDA -I. -Iruntime ${NCCL_HOME:+"-I$NCCL_HOME/include"})
# compiles NAME PLAN DEFINITIONS...
compiles() (
  to=$WORK/$1 plan=$2 arguments=() files=(kernels step)
  [[ $1 != moves* ]] || files+=(rank0)
  shift 2
  for value; do arguments+=(-D "$value"); done
  "$TPGEN" "$plan" -o "$to" --target cuda "${arguments[@]}" && cd "$to" || exit 1
  for file in "${files[@]}"; do "$nvcc" "${flags[@]}" -c $file.cu -o $file.o || exit 1; done
)
compile_or_fail() { compiles "$@" || fail "$* does not compile with nvcc"; }
compile_beside() { beside "$WORK/$1.log" compile_or_fail "$@"; }
families=$(operator_plans)
for family in $families; do
  compile_beside "$family" "$WORK/$family.lua" tp=2 place=mixed
done
compile_beside moves1 tests/moves/pairs.lua mesh=3 shape=7x5
compile_beside moves2 tests/moves/pairs.lua mesh=2x3 shape=7x5 every=13
compile_beside moves3 tests/moves/pairs.lua mesh=2x2 shape=4x6 every=17 through=bfloat16
compile_beside moves4 tests/moves/pairs.lua mesh=2x2x2 shape=7x5 every=499 planner=greedy
compile_beside bfloat16 tests/equal/bfloat16.lua dp=2 tp=2
compile_beside training tests/equal/training.lua dp=2 tp=2
all_are_done
cat "$WORK"/*.log
finish "two meshes, and $(wc -w <<< "$families") families of operators, and moves on four, compile with $nvcc"
