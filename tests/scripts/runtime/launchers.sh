#!/usr/bin/env bash
# Which rank run.sh becomes under each launcher, by its environment variables, and with how many threads;
# without a launcher, that it starts all ranks, and ends those that outlive them. Nothing is built: scripts in
# the place of the programs print what they are.
. "$(dirname "$0")/../common.sh"

generate toy -D tp=2
build=$WORK/toy/build/mpi transport=(--transport mpi)
mkdir -p "$build"
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

# is STATUS WORDS VARIABLES...: with these variables it prints these words alone, in at most one line.
checked=0
is() {
  local status=0 said expected=$1 words=$2
  shift 2
  said=$(env "$@" "$WORK/toy/run.sh" "${transport[@]}" --steps 3 2>&1) || status=$?
  [ "$said" = "$words" ] && [ $status = "$expected" ] || fail "$*: status $status: $said"
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
  # torchrun, or mpirun, inside a Slurm job.
  is 0 "rank $rank of $alone: --steps 3" RANK=$rank "${torchrun[@]}" SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_NTASKS=4
  is 0 "rank $rank of $half: --steps 3" OMPI_COMM_WORLD_RANK=$rank "${open_mpi[@]}" SLURM_PROCID=1 SLURM_NTASKS=4
done
# One of them on each machine.
is 0 "rank 1 of $alone: --steps 3" OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1
is 0 "rank 1 of $alone: --steps 3" PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=1
is 0 "rank 1 of 7: --steps 3" SLURM_PROCID=1 SLURM_STEP_ID=0 "${slurm[@]}" SLURM_CPUS_PER_TASK=7
is 0 "rank 1 of 5: --steps 3" RANK=1 "${torchrun[@]}" OMP_NUM_THREADS=5

# A batch script of Slurm is not a rank; neither is a process without a launcher.
all="starts all: -n 1 $build/rank0 --steps 3 : -n 1 $build/rank1 --steps 3"
is 0 "$all" SLURM_PROCID=0 SLURM_NTASKS=2
is 0 "$all" NONE=

# Another number of ranks than the program's: one of them reports it.
is 1 "run.sh: this is a program of 2 ranks, but WORLD_SIZE is '3'" RANK=0 WORLD_SIZE=3
is 1 "" RANK=1 WORLD_SIZE=3
is 1 "run.sh: this is a program of 2 ranks, but OMPI_COMM_WORLD_SIZE is ''" OMPI_COMM_WORLD_RANK=0

# ---- what it has started itself --------------------------------------------------------------------

# built KIND: the launcher of the ranks. "Ranks" are scripts that sleep, each with a name of its own for that.
built() { printf '%s\n' "from $WORK/toy" "args " "launcher $build/mpirun" "kind $1" > "$build/.built"; }
script() { # NAME LINES...
  printf '%s\n' '#!/bin/bash' "${@:2}" > "$build/$1"
}
cp "$(command -v sleep)" "$WORK/asleep"
asleep="exec $WORK/asleep"
nobody_is_left() {
  local left
  ! left=$(pgrep -f "^$WORK/asleep") || { fail "$1: a process is left"; kill -KILL $left; }
}
# ends NAME STATUS LINES SECONDS: run.sh, in a session of its own, ends with this status within these seconds,
# with so many lines.
ends() {
  local status=0 began=$EPOCHREALTIME
  timeout 100 "$WORK/toy/run.sh" "${transport[@]}" < /dev/null > "$WORK/$1.out" 2>&1 || status=$?
  [ $status = "$2" ] && [ "$(grep -c . "$WORK/$1.out")" = "$3" ] || { fail "$1: status $status"; cat "$WORK/$1.out"; }
  awk -v a="$began" -v b="$EPOCHREALTIME" -v most="$4" 'BEGIN { exit b - a > most }' || fail "$1: it ended late"
  nobody_is_left "$1"
}
# An mpirun that outlives its ranks: for ever, even after a signal.
script rank0 "$asleep 1"
script mpirun "$build/rank0 &" "trap '' TERM" 'wait' 'exec 8<> <(:)' 'read -rt 90 -u 8'
built openmpi
ends stays 1 1 60
grep -q '^run.sh: .*mpirun stayed' "$WORK/stays.out" || fail "stays: $(< "$WORK/stays.out")"
# One that ends by itself keeps its status; run.sh adds no message if a rank has reported, or there was no
# signal.
script mpirun "$build/rank0 &" 'wait' 'exit 7'
ends seven 7 0 60
script mpirun "$build/rank0 &" 'wait' 'exit 137'
ends killed 137 1 60
script mpirun 'kill -URG $TPGEN_RUN' 'echo reported' 'exit 137'
ends reported 137 1 60
# A signal to end is passed on.
for signal in TERM INT HUP; do
  script mpirun "trap 'kill \$!; exit 143' TERM" "$WORK/asleep 50 &" 'touch "$0.began"' wait
  rm -f "$build/mpirun.began"
  # The shell makes background processes ignore SIGINT.
  env --default-signal=INT "$WORK/toy/run.sh" --transport mpi < /dev/null > "$WORK/$signal.out" 2>&1 &
  job=$!
  for ((i = 0; i < 600; i++)); do [ ! -e "$build/mpirun.began" ] || break; sleep 0.05; done
  kill -$signal $job || fail "$signal: run.sh had ended"
  status=0
  wait $job || status=$?
  [ $status = 143 ] || { fail "$signal: status $status"; cat "$WORK/$signal.out"; }
  nobody_is_left $signal
done

# It continues if nobody reads its output: mpirun would end the job.
script mpirun 'for i in $(seq 50); do echo "line $i"; sleep 0.02; done' 'touch "$0.ended"'
rm -f "$build/mpirun.ended"
"$WORK/toy/run.sh" --transport=mpi --steps 3 < /dev/null 2> "$WORK/unread.err" | head -n 1 > /dev/null || true
[ -e "$build/mpirun.ended" ] || fail "nobody reads standard output: mpirun has ended: $(cat "$WORK/unread.err")"
grep -q "nobody reads standard output" "$WORK/unread.err" || fail "it says nothing of its output: $(cat "$WORK/unread.err")"

# Of a job with several machines MPI's launcher starts the ranks.
transport=()
script mpirun 'echo "starts all: $*"'
built other
is 0 "$all" SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_NUM_NODES=2
printf '%s\n' one one two > "$WORK/nodes"
is 0 "$all" PBS_NODEFILE="$WORK/nodes"
# A launcher's ranks talk by MPI.
is 0 "rank 1 of $half: --steps 3" OMPI_COMM_WORLD_RANK=1 "${open_mpi[@]}"
# They may share the memory of each machine besides.
transport=(--transport shared)
cp -r "$build" "$WORK/toy/build/mixed"
is 0 "rank 1 of $half: --steps 3" OMPI_COMM_WORLD_RANK=1 "${open_mpi[@]}"
transport=(--transport=tcp)
is 2 "run.sh: --transport 'tcp': it is shared or mpi" NONE=
# Each program lists the options that it has.
"$WORK/toy/run.sh" --help > "$WORK/help" || fail "run.sh --help: status $?"
[ "$(grep -c -e '--tokens' "$WORK/help")" = 1 ] && grep -q -e '--save DIR' "$WORK/help" && ! grep -q -e '--prompt' "$WORK/help" ||
  fail "run.sh --help: $(cat "$WORK/help")"

# Without MPI, which is its way where all ranks share the memory of this machine, run.sh starts the ranks itself:
# they have one token, all know rank 0's process, which has the input, and a failed rank ends the others, even
# stopped ones.
transport=()
build=$WORK/toy/build
cp "$build/mpi"/rank? "$build"
built none
for rank in 0 1; do script rank$rank "echo \$TPGEN_TOKEN > $WORK/token$rank" "[ $rank = 0 ] || [ \$TPGEN_RANK0 -gt 1 ]"; done
ends tokens 0 0 60
[ -s "$WORK/token0" ] && cmp "$WORK/token0" "$WORK/token1" || fail "other tokens"
for rank in 0 1; do script rank$rank "cat > $WORK/input$rank"; done
echo words | "$WORK/toy/run.sh"
[ "$(< "$WORK/input0")" = words ] && [ ! -s "$WORK/input1" ] || fail "rank 0 alone has the input"
script rank0 "$asleep 50"
script rank1 'exit 3'
ends fails 3 0 60
script rank1 'kill -KILL $$'
ends without 137 1 60
script rank0 'kill -STOP $$' "$asleep 50"
script rank1 'sleep 1' 'exit 4'
ends stopped 4 0 60
finish "run.sh is the right rank in $checked environments"
