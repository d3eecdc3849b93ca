#!/usr/bin/env bash
# The stand-in compiles without a warning under gcc and clang, as C++17 and C++20; and its tests,
# which call all that it has, are accepted by nvcc with the real headers, where there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

read -ra mpi <<< "$(mpicxx -show | tr ' ' '\n' | sed -n 's/^-I/-isystem/p' | tr '\n' ' ')"
read -ra blas <<< "$(pkg-config --cflags openblas | sed 's/-I/-isystem/g')"
failures=0
# compile COMPILER STANDARD FILES FLAGS...
compile() {
  local compiler=$1 standard=$2 files=$3 file
  shift 3
  for file in $files; do
    "$compiler" -std="$standard" -Wall -Wextra -Wpedantic -Wshadow -Werror "$@" \
      -Itests/cuda_on_cpu/include -Iruntime "${mpi[@]}" "${blas[@]}" "$file" || {
      echo "compilers: FAILED: $compiler -std=$standard $file"
      failures=$((failures + 1))
    }
  done
}
# g++ compiles it as C++20, with its tests, wherever a generated program is built with it.
compile g++ c++17 'tests/cuda_on_cpu/*.cpp' -Wconversion -fsyntax-only
compile clang++ c++20 'tests/cuda_on_cpu/*.cpp' -Wconversion -fsyntax-only
compile clang++ c++17 'tests/standin/test_*.cpp' -fsyntax-only

# A macro, a type or a call that only the stand-in knows would show here.
if nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc); then
  for name in kernels bfloat16 graph mma runtime cublaslt nccl; do
    "$nvcc" -std=c++17 -arch=sm_80 --Werror all-warnings "${mpi[@]/-isystem/-I}" -x cu -c -o /dev/null \
      "tests/standin/test_$name.cpp" || {
      echo "compilers: FAILED: nvcc tests/standin/test_$name.cpp"
      failures=$((failures + 1))
    }
  done
else
  echo "compilers: no nvcc: the real headers were not compared"
fi
[ $failures -eq 0 ] || exit 1
echo "compilers: no warning"
