#!/usr/bin/env bash
# Ranks of one machine that share memory beside Open MPI's, in turn: an all-reduce of floats on two ranks
# (transport.c), and a step of the toy at tp=2. Rank 0 is on the first core, rank 1 on the second, ahead of
# other work (chrt) where that is allowed.
#   ROUNDS   (5)
set -euo pipefail
. "$(dirname "$0")/common.sh"
rounds=${ROUNDS:-$(short_or 1 5)} steps=$(short_or 100 20000)
cd "$root"

flags=(-std=c11 -D_GNU_SOURCE -O3 -march=native -fopenmp -Iruntime "-DSERIES=$(short_or 2 200)" tests/bench/transport.c -lm)
gcc -DTPGEN_SHARED "${flags[@]}" $(find runtime/cpu/shared_memory -name '*.c' ! -name beside_mpi.c) -o "$work/shared"
mpicc "${flags[@]}" runtime/cpu/memory.c -o "$work/mpi"
"$TPGEN" plans/toy.lua -o "$work/toy" > /dev/null
export OMP_NUM_THREADS=1 TPGEN_TOKEN=bench$$
first=()
! chrt -f 10 true 2> "$work/no" || first=(chrt -f 10)
exec_on() { exec taskset -c "$1" "${first[@]}" "${@:2}"; } # core, command
shared() {
  WORLD_SIZE=2 RANK=0 TPGEN_RANK0='' exec_on 0 "$work/shared" &
  WORLD_SIZE=2 RANK=1 TPGEN_RANK0=$! taskset -c 1 "${first[@]}" "$work/shared"
  wait
}
# As run.sh starts them.
options=(--quiet --oversubscribe --bind-to none --mca mpi_yield_when_idle 0 --mca pml ob1)
mpi() {
  mpirun "${options[@]}" -n 1 taskset -c 0 "${first[@]}" "$work/mpi" : -n 1 taskset -c 1 "${first[@]}" "$work/mpi"
}
toy() { "${first[@]}" "$work/toy/run.sh" --transport "$1" --steps "$steps" --log-every "$steps" 2> "$work/toy.err" | sed -n 's/.*us_per_step: //p'; }

for transport in shared mpi; do toy $transport > "$work/first"; done
for ((i = 0; i < rounds; i++)); do
  for transport in shared mpi; do
    (${transport}) >> "$work/$transport.times"
    toy $transport >> "$work/$transport.toy"
  done
done
# The least of all rounds for each size.
for transport in shared mpi; do
  sort -k1,1n -k2,2g "$work/$transport.times" | awk '!seen[$1]++' > "$work/$transport.least"
  echo "toy $(sort -g "$work/$transport.toy" | head -n 1)" >> "$work/$transport.least"
done
join "$work/shared.least" "$work/mpi.least" --nocheck-order |
  awk '{ what = $1 == "toy" ? "a step of the toy" : "all-reduce of " $1 " bytes"
         printf "%-28s shared %9.2f us   mpi %9.2f us   %.1f times\n", what, $2, $3, $3 / $2 }'
