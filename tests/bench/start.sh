#!/usr/bin/env bash
# From start to the end of the first step of the toy on two ranks, beside a program of two ranks that
# only starts MPI and stops it: what a generated program adds to the launcher's own time.
#   ROUNDS   (15)
set -euo pipefail
. "$(dirname "$0")/common.sh"
rounds=${ROUNDS:-$(short_or 1 15)}

cat > "$work/hello.c" <<'C'
#include <mpi.h>

int main(int argc, char **argv)
{
  MPI_Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Finalize();
}
C
mpicc -O2 "$work/hello.c" -o "$work/hello"
(cd "$root" && "$TPGEN" plans/toy.lua -o "$work/toy")
# Started as run.sh starts the toy.
hello() {
  mpirun --quiet --oversubscribe --bind-to none --mca mpi_yield_when_idle 0 --mca pml ob1 \
    -n 1 "$work/hello" : -n 1 "$work/hello"
}
toy() { "$work/toy/run.sh" --transport mpi --steps 1; }

# The milliseconds that a command takes.
milliseconds() {
  local begin=${EPOCHREALTIME/[.,]/} end
  "$@" > /dev/null
  end=${EPOCHREALTIME/[.,]/}
  echo $(((end - begin) / 1000))
}

toy > /dev/null 2>&1
hello
for ((i = 1; i <= rounds; i++)); do
  milliseconds hello >> "$work/hello.ms"
  milliseconds toy >> "$work/toy.ms"
done
awk -v a="$(median "$work/hello.ms")" -v b="$(median "$work/toy.ms")" \
  'BEGIN { printf "milliseconds, median: MPI alone %.0f, the toy with one step %.0f: %.0f more\n", a, b, b - a }'
