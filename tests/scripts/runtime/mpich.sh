#!/usr/bin/env bash
# Programs that are linked with MPICH have the losses of those that are linked with Open MPI: where run.sh starts the ranks, and
# under MPICH's own launcher; a checkpoint goes from one to the other. A rank that is killed ends the job. Needs Debian's mpich and
# libopenmpi-dev.
. "$(dirname "$0")/../common.sh"
for mpi in mpich openmpi; do
  command -v mpirun.$mpi > /dev/null && command -v mpicc.$mpi > /dev/null || { echo "mpich: SKIPPED: mpirun.$mpi is not installed"; exit 77; }
done
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
by() { # MPI COMMAND...: with a build by this MPI
  TPGEN_BUILD_DIR=$WORK/build.$1 CMAKE_ARGS="-DMPI_C_COMPILER=$(command -v mpicc."$1") -DMPIEXEC_EXECUTABLE=$(command -v mpirun."$1") -DCMAKE_C_FLAGS=-O1" \
    timeout 300 "${@:2}" < /dev/null > "$WORK/said" 2>&1
}
losses() { losses_of "$WORK/$1.jsonl"; }

both() { # NAME RANKS PLAN ARGUMENTS...
  local name=$1 ranks=$2 run=$WORK/$1/run.sh
  "$TPGEN" "$3" -o "$WORK/$name" -D steps=6 "${@:4}" > "$WORK/said" 2>&1 || { fail "$name: $(cat "$WORK/said")"; return; }
  rm -rf "$WORK"/build.*
  by openmpi "$run" --transport mpi --metrics "$WORK/openmpi.jsonl" || { fail "$name by Open MPI: $(tail -n 3 "$WORK/said")"; return; }
  by mpich "$run" --transport mpi --metrics "$WORK/mpich.jsonl" || { fail "$name by MPICH: $(tail -n 3 "$WORK/said")"; return; }
  ldd "$WORK/build.mpich/mpi/rank0" | finds libmpich || fail "$name: it is not linked with MPICH"
  by mpich mpirun.mpich -n "$ranks" "$run" --metrics "$WORK/launched.jsonl" || { fail "$name under mpirun.mpich: $(tail -n 3 "$WORK/said")"; return; }
  by openmpi "$run" --transport mpi --steps 3 --save "$WORK/$name.ck" || fail "$name, saved: $(tail -n 3 "$WORK/said")"
  by mpich mpirun.mpich -n "$ranks" "$run" --load "$WORK/$name.ck" --metrics "$WORK/loaded.jsonl" || fail "$name, loaded: $(tail -n 3 "$WORK/said")"
  losses openmpi > "$WORK/expected"
  for way in mpich launched; do losses $way > "$WORK/own" && same_losses "$name, $way" "$WORK/own" "$WORK/expected" 1e-6; done
  losses loaded > "$WORK/own" && same_losses "$name, loaded" "$WORK/own" <(tail -n 3 "$WORK/expected") 1e-6
  rm "$WORK"/*.jsonl
}
both dense 4 plans/llama3.lua -D tp=2 -D dp_shard=2 -D clip=1
both stages 4 plans/llama3.lua -D pp=2 -D tp=2 -D microbatches=4
both experts 2 plans/moe.lua -D dp=2 -D ep=2
both bfloat16 3 plans/llama3.lua -D dp=3 -D dtype=bfloat16

# MPICH's launcher kills the other ranks at once, and says so.
"$TPGEN" plans/toy.lua -o "$WORK/toy" -D tp=2 -D steps=100000000 > /dev/null || fail toy
by mpich "$WORK/toy/run.sh" --build || fail "toy: $(tail -n 3 "$WORK/said")"
by mpich "$WORK/toy/run.sh" --transport mpi --metrics "$WORK/toy.jsonl" &
job=$!
for ((i = 0; i < 600; i++)); do [ ! -s "$WORK/toy.jsonl" ] || break; sleep 0.1; done
pkill -KILL -f "^$WORK/build.mpich/mpi/rank1 "
began=$SECONDS
! wait $job || fail "a killed rank: status 0"
[ $((SECONDS - began)) -le 5 ] || fail "a killed rank: the job ends after $((SECONDS - began)) s"
grep -q 'EXIT CODE: 9' "$WORK/said" || fail "a killed rank: $(tail -n 3 "$WORK/said")"
finish "programs by MPICH have Open MPI's losses"
