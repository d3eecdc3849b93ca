#!/usr/bin/env bash
# Lost or stopped ranks of CUDA programs, on the stand-in: the others end the job within seconds, with one
# message that names the rank, the collective, the plan's line and the step. Steps run one by one, and as
# graphs; ranks meet through MPI, and over TCP as under torchrun. The same holds for a rank that never comes. A
# program that cannot start reports why: a GPU that is too small.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"

make_runtime cuda > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime"; }
"$TPGEN" plans/toy.lua -o "$WORK/mpi" --target cuda -D tp=2 && make_ranks "$WORK/mpi" cuda ||
  { fail "the program does not compile"; exit 1; }
# The same, in a build without MPI: only these two files depend on it.
mkdir "$WORK/tcp"
cp "$WORK"/mpi/*.o "$WORK/tcp"
for name in cuda_cuda cuda_job; do
  (cd "$WORK/cuda" && g++ "${cuda[@]}" -UTPGEN_MPI -x c++ -I. "${includes[@]}" -c $name.cu -o "$WORK/tcp/$name.o") ||
    fail "the runtime without MPI"
done
for rank in 0 1; do
  objects=$(find "$WORK/cuda" -name '*.o' ! -name cuda_cuda.o ! -name cuda_job.o)
  g++ -o "$WORK/tcp/rank$rank" "$WORK"/tcp/{rank$rank,step,kernels,cuda_cuda,cuda_job}.o $objects "$TOOLS/libcuda_on_cpu.a" "${libraries[@]}" ||
    fail "a rank without MPI does not link"
done

# one RANK DIRECTORY NAME ARGUMENTS...: becomes that rank, and records its process id.
export one='echo $$ > "$2/$3.pid$1"; program=$2/rank$1; [ -z "${TCP:-}" ] || export RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1
  stop=(); [ "$1" = 0 ] || [ -z "${EARLY:-}" ] || stop=(bash -c '\''kill -STOP $$; exec "$@"'\'' bash)
  shift 3; exec "${stop[@]}" "$program" "$@"'

# losing NAME PROGRAM SIGNAL PATTERN ARGUMENTS...: rank 1 gets the signal after some steps; rank 0's report
# matches the pattern.
losing() {
  local name=$1 directory=$WORK/$2 signal=$3 pattern=$4 log=$WORK/$1.out began
  shift 4
  set -- "$@" --steps 1000000 --log-every 3
  : > "$log"
  timeout 120 "${launch[@]}" -n 1 bash -c "$one" one 0 "$directory" "$name" "$@" : \
    -n 1 bash -c "$one" one 1 "$directory" "$name" "$@" < /dev/null > "$log" 2>&1 &
  local job=$!
  for ((i = 0; i < 900; i++)); do
    ! grep -q '^step: 6 ' "$log" || break
    sleep 0.1
  done
  began=$EPOCHREALTIME
  kill -"$signal" "$(<"$directory/$name.pid1")"
  if [ -n "${CUDA_ON_CPU_REMOTE_ERROR:-}" ]; then # NCCL tells of a rank that has stopped already
    for ((i = 0; i < 100; i++)); do
      ! grep -q '^State:[[:space:]]*T' "/proc/$(<"$directory/$name.pid1")/status" || break
      sleep 0.1
    done
    touch "$CUDA_ON_CPU_REMOTE_ERROR"
  fi
  ! wait $job || fail "$name: status 0"
  awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { exit b - a > 25 }' || fail "$name: it ended late"
  grep -qE "^rank 0: error: .*$pattern" "$log" || { fail "$name: the message is missing"; cat "$log"; }
  [ "$(grep -c '^rank 0: error:' "$log")" = 1 ] || { fail "$name: more than one message"; cat "$log"; }
  printf '  %-12s %s\n' "$name" "$(grep -m 1 '^rank 0: error:' "$log")"
}

# absent NAME PROGRAM PATTERN ARGUMENTS...: rank 1 is stopped before its first instruction; rank 0's report
# matches.
absent() {
  local name=$1 directory=$WORK/$2 pattern=$3 log=$WORK/$1.out began=$EPOCHREALTIME
  shift 3
  ! EARLY=1 timeout 120 "${launch[@]}" -n 1 bash -c "$one" one 0 "$directory" "$name" "$@" : \
    -n 1 bash -c "$one" one 1 "$directory" "$name" "$@" < /dev/null > "$log" 2>&1 || fail "$name: status 0"
  awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { exit b - a > 25 }' || fail "$name: it ended late"
  [ "$(grep -c 'error:' "$log")" = 1 ] && grep -qE "^rank 0: error: $pattern" "$log" || { fail "$name: other words"; cat "$log"; }
  printf '  %-12s %s\n' "$name" "$(grep -m 1 'error:' "$log")"
}

# refused NAME PATTERN FIRST SECOND: the two ranks, started so, end with one message, which matches the pattern.
refused() {
  ! timeout 60 "${launch[@]}" -n 1 "$WORK/mpi/rank0" $3 : -n 1 "$WORK/mpi/rank1" $4 < /dev/null > "$WORK/$1.out" 2>&1 ||
    fail "$1: status 0"
  grep -qE "^rank 0: error: $2" "$WORK/$1.out" || { fail "$1: other words"; cat "$WORK/$1.out"; }
}

waited=' in ncclAllReduce \(step\.cu:[0-9]+\), which plans/toy.lua:25 asks for, step [0-9]+'
beside "$WORK/killed.log" losing killed mpi KILL "while it waited$waited; rank 1 is gone$"
beside "$WORK/graph.log" losing graph mpi KILL "while it waited$waited; rank 1 is gone$" --graph
# Ranks have to have started within the deadline, too, beside other tests.
beside "$WORK/stopped.log" losing stopped mpi STOP "nothing has moved for [0-9]+ s$waited; rank 1 is stopped$" --deadline 12
CUDA_ON_CPU_REMOTE_ERROR=$WORK/broken beside "$WORK/remote.log" losing remote mpi STOP \
  "NCCL says: remote process exited or there was a network error, while it waited$waited; rank 1 is stopped$"
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
beside "$WORK/absent.log" absent absent mpi "nothing has moved for [0-9]+ s in MPI_Init \(cuda_job\.cu:[0-9]+\); rank 1 is stopped$" --deadline 5
TCP=1 MASTER_PORT=$((MASTER_PORT - 5)) beside "$WORK/tcp_absent.log" absent tcp_absent tcp "after 5 s these ranks have not come: 1$" --deadline 5
# Either the launcher's signal comes first, or the end of the connection to rank 1, which may still be dying then.
TCP=1 beside "$WORK/tcp.log" losing tcp tcp KILL \
  "(the job was ended while it waited$waited; rank 1 is gone|rank 1 has gone away, while it waited$waited(; rank 1 is gone)?)$"
beside "$WORK/alone.log" refused alone '--graph: some ranks were started with it and others were not$' --graph ''
CUDA_ON_CPU_MEMORY_MIB=1 beside "$WORK/small.log" refused small \
  'the program needs 1\.01 MiB \(plan.txt has the parts\), but of GPU 0.s 1\.00 MiB only 1\.00 MiB are free: ' '' ''
all_are_done
cat "$WORK"/{killed,graph,stopped,remote,absent,tcp_absent,tcp,alone,small}.log
finish "of ranks that are lost or stopped the others tell, with and without a graph, over MPI and over TCP"
