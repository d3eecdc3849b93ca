#!/usr/bin/env bash
# The toy's CUDA program, its very text, on the stand-in for CUDA: PyTorch's ten losses.
. "$(dirname "$0")/common.sh"

export CMAKE_ARGS="-DTPGEN_CUDA_ON_CPU=$root/tests/cuda_on_cpu -DCMAKE_CXX_FLAGS=-O1"
train_golden_on() {
  local name=$1
  shift
  generate "$name" --target cuda "$@"
  train_golden "$name"
}
for tp in 1 2 3; do train_golden_on tp$tp -D tp=$tp; done
train_golden_on dp2_tp2 -D dp=2 -D tp=2

# Its collectives are the CPU target's.
for tp in 1 2 3; do
  "$TPGEN" plans/toy.lua -o "$WORK/cpu" -D tp=$tp || fail "tp=$tp: tpgen ended with status $?"
  diff <("$TOOLS/collectives" "$WORK/cpu/plan.json") <("$TOOLS/collectives" "$WORK/tp$tp/plan.json") ||
    fail "tp=$tp: the two targets issue other collectives"
done
finish "PyTorch's losses on 4 meshes"
