#!/usr/bin/env bash
# The toy's CUDA programs compile and link with nvcc, without a warning, into a binary for each rank.
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
finish "two meshes compile and link with $nvcc"
