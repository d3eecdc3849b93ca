#!/usr/bin/env bash
# Products with stored weights on one thread, in processor seconds, so that a busy machine matters less: of one
# row, from memory and from the cache (what the arithmetic alone takes), beside a loop that only reads; and of
# 512 rows, with the processor's matrix unit and without.
set -euo pipefail
. "$(dirname "$0")/common.sh"
export OMP_NUM_THREADS=1
flags=(-O3 -march=native -mprefer-vector-width=512 -ffp-contract=fast -fno-math-errno -fno-trapping-math
  -std=c11 -D_GNU_SOURCE -fopenmp -I "$root/runtime")
cc "${flags[@]}" "$here/weights.c" -o "$work/with" -lm
cc "${flags[@]}" -mno-amx-tile "$here/weights.c" -o "$work/without" -lm
cc "${flags[@]}" "$here/read_loop.c" -o "$work/read_loop"
for ((round = 1; round <= ${ROUNDS:-$(short_or 1 3)}; round++)); do
  echo "a loop that only reads: $("$work/read_loop" "$(short_or 16 256)") GB/s"
  for type in bfloat16 int8; do
    "$work/with" 1 "$(short_or 512 65536)" 2048 $type
    "$work/with" 1 256 2048 $type
    echo "with:    $("$work/with" "$(short_or 32 512)" 2048 2048 $type)"
    echo "without: $("$work/without" "$(short_or 32 512)" 2048 2048 $type)"
  done
done
