#!/usr/bin/env bash
# Everything, the tests too, compiles with clang without a warning. clang finds its warnings without an
# optimizer.
. "$(dirname "$0")/../common.sh"

build=$(dirname "$WORK")/clang-build
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER # nothing is compiled twice
cmake --preset clang -B "$build" -DCMAKE_C_FLAGS_RELWITHDEBINFO=-O0 -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 > "$WORK/log" 2>&1 &&
  cmake --build "$build" --parallel 2 >> "$WORK/log" 2>&1 || {
  tail -n 60 "$WORK/log"
  fail "the build failed: see above"
}
finish "builds without a warning"
