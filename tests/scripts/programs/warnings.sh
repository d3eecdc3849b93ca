#!/usr/bin/env bash
# Generated C and the runtime, without a warning by gcc, its analyzer and clang; and a run of the toy
# under the sanitizers.
. "$(dirname "$0")/../common.sh"

strict=(-std=c11 -D_GNU_SOURCE -fopenmp -O2 -c -o /dev/null -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
# MPI's and BLAS's own headers are not what is tested.
read -ra libraries <<< "$(mpicc -show | tr ' ' '\n' | sed -n 's/^-I/-isystem/p' | tr '\n' ' ')"
read -ra blas <<< "$(pkg-config --cflags openblas | sed 's/-I/-isystem/g')"
# transport_of FILE: what its transport needs.
transport_of() {
  case $1 in
  */without_mpi.c) echo -DTPGEN_SHARED ;;
  */beside_mpi.c | */shared_memory/mpi.c) echo -DTPGEN_MIXED ;;
  esac
}
for tp in 2 3; do
  generate tp$tp -D tp=$tp
  here=(-I"$WORK/tp$tp" -I"$WORK/tp$tp/runtime" "${libraries[@]}" "${blas[@]}")
  files=("$WORK/tp$tp"/*.c)
  [ $tp = 3 ] || mapfile -t -O ${#files[@]} files < <(find "$WORK/tp$tp/runtime" -name '*.c' | LC_ALL=C sort) # they are the same for both
  for file in "${files[@]}"; do
    # shellcheck disable=SC2046
    gcc "${strict[@]}" -Wbidi-chars=any $(transport_of "$file") "${here[@]}" "$file" || fail "gcc: $file"
    # shellcheck disable=SC2046
    clang "${strict[@]}" $(transport_of "$file") "${here[@]}" "$file" || fail "clang: $file"
  done
done
# What multiplies bfloat16 is in programs that do so.
echo '#include <dnnl.h>' | gcc -E - > /dev/null 2>&1 && for compiler in "gcc -fanalyzer" clang; do
  # shellcheck disable=SC2086
  $compiler "${strict[@]}" -DTPGEN_ONEDNN "${here[@]}" runtime/cpu/onednn.c || fail "$compiler: cpu/onednn.c"
done
# The analyzer takes longest over main.c; one mesh will do.
for file in "$WORK"/tp2/*.c; do
  gcc "${strict[@]}" -fanalyzer "${here[@]}" "$file" || fail "gcc -fanalyzer: $file"
done

export CMAKE_ARGS=-DCMAKE_C_FLAGS=-fsanitize=address,undefined
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1
for tp in 2 3; do train_golden tp$tp; done
finish "no compiler and no sanitizer had anything to say"
