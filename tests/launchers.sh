#!/usr/bin/env bash
# Which rank run.sh becomes under each launcher, by the variables that it sets, and with how many threads;
# where nothing has started it, that it starts all ranks. The programs are built already: what stands in
# their place says what it is.
. "$(dirname "$0")/common.sh"

generate toy -D tp=2
build=$WORK/toy/build
mkdir "$build"
for rank in 0 1; do
  printf '#!/bin/sh\necho "rank %s of $OMP_NUM_THREADS: $*"\n' $rank > "$build/rank$rank"
done
printf '#!/bin/sh\necho "starts all: $*"\n' > "$build/mpirun"
chmod +x "$build"/*
printf '%s\n' "from $WORK/toy" "args " "launcher $build/mpirun" "kind other" > "$build/.built"

# A launcher may have started this script.
for name in $(compgen -e | grep -E '^(RANK|WORLD_SIZE|LOCAL_|OMPI_|PMI|MPI_|SLURM_|OMP_|CMAKE_ARGS)'); do
  unset "$name"
done

# is STATUS WORDS VARIABLES...: with these it says that, and nothing else, in one line or none.
checked=0
is() {
  local status=0 said wanted=$1 words=$2
  shift 2
  said=$(env "$@" "$WORK/toy/run.sh" --steps 3 2>&1) || status=$?
  [ "$said" = "$words" ] && [ $status = "$wanted" ] || fail "$*: status $status: $said"
  checked=$((checked + 1))
}
alone=$(nproc) half=$(($(nproc) > 1 ? $(nproc) / 2 : 1))

torchrun=(WORLD_SIZE=2 LOCAL_WORLD_SIZE=1) open_mpi=(OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2)
mpich=(PMI_SIZE=2 MPI_LOCALNRANKS=2) slurm=(SLURM_NTASKS=2 SLURM_STEP_TASKS_PER_NODE='1(x2)')
for rank in 0 1; do
  is 0 "rank $rank of $alone: --steps 3" RANK=$rank "${torchrun[@]}"
  is 0 "rank $rank of $half: --steps 3" OMPI_COMM_WORLD_RANK=$rank "${open_mpi[@]}"
  is 0 "rank $rank of $half: --steps 3" PMI_RANK=$rank "${mpich[@]}"
  is 0 "rank $rank of $alone: --steps 3" PMIX_RANK=$rank "${slurm[@]}"
  is 0 "rank $rank of $alone: --steps 3" SLURM_PROCID=$rank SLURM_STEP_ID=0 "${slurm[@]}"
  # torchrun, or mpirun, in what Slurm has started.
  is 0 "rank $rank of $alone: --steps 3" RANK=$rank "${torchrun[@]}" SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_NTASKS=4
  is 0 "rank $rank of $half: --steps 3" OMPI_COMM_WORLD_RANK=$rank "${open_mpi[@]}" SLURM_PROCID=1 SLURM_NTASKS=4
done
is 0 "rank 1 of 7: --steps 3" SLURM_PROCID=1 SLURM_STEP_ID=0 "${slurm[@]}" SLURM_CPUS_PER_TASK=7
is 0 "rank 1 of 5: --steps 3" RANK=1 "${torchrun[@]}" OMP_NUM_THREADS=5

# A batch script of Slurm's is no rank; neither is what nothing has started.
all="starts all: -n 1 $build/rank0 --steps 3 : -n 1 $build/rank1 --steps 3"
is 0 "$all" SLURM_PROCID=0 SLURM_NTASKS=2
is 0 "$all" NONE=

# Other ranks than the program's: one of them says so.
is 1 "run.sh: this is a program of 2 ranks, but WORLD_SIZE is '3'" RANK=0 WORLD_SIZE=3
is 1 "" RANK=1 WORLD_SIZE=3
is 1 "run.sh: this is a program of 2 ranks, but OMPI_COMM_WORLD_SIZE is ''" OMPI_COMM_WORLD_RANK=0
finish "run.sh is the right rank in $checked environments"
