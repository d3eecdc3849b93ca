#!/usr/bin/env bash
# Redistributions in running programs: tests/plans/redistributions/pairs.lua moves a tensor from many layouts to many
# others, and the output must equal the input, bit by bit; on meshes of one, two and three dimensions, with
# sizes even, uneven and smaller than the mesh, by both planners. gcc and clang compile the programs, with every
# warning an error; some run under the sanitizers, and the CUDA text of some runs on the stand-in. At the end
# every kind of step must have occurred.
#   CASES=all           all programs, as in a soak
#   MOVES="mesh=2x3"    only programs that match this extended regular expression
#   MOVES_KEEP=1        the programs stay in the work directory; else only those that fail
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"

programs=(
  "plain mesh=2 shape=4x6"
  "plain mesh=3 shape=7x5"
  "plain mesh=4 shape=8x4 every=3 through=bfloat16"
  "plain mesh=2x2 shape=4x6 every=11"
  "plain mesh=2x2 shape=5x3 every=11 first=5"
  "plain mesh=2x3 shape=7x5 every=13 first=4"
  "plain mesh=2x2x2 shape=8x4 every=401"
  "plain mesh=2x2x2 shape=7x5 every=401 first=7 slow=c"
  "plain mesh=2x2x2 shape=3x2x4 every=1201 planner=greedy"
  "plain mesh=2x3 shape=5x7 every=29 type=int64"
  "plain mesh=2x3 shape=7x5 every=13 type=bool"
  "sanitized mesh=3 shape=7x5 every=2"
  "sanitized mesh=2x2x2 shape=5x3 every=997"
  "cuda mesh=3 shape=7x5 every=2 first=2"
  "cuda mesh=2x3 shape=7x5 every=37 first=3"
  "cuda mesh=2x2 shape=4x6 every=19 first=2"
  "cuda mesh=2x2 shape=7x5 every=61 first=2 through=bfloat16"
)
# These repeat those for other sizes.
! all_cases || programs+=(
  "plain mesh=4 shape=2x9"
  "plain mesh=2x2 shape=7x5 every=17 planner=greedy"
  "plain mesh=2x3 shape=6x12 every=13"
  "plain mesh=2x3 shape=7x4 every=13 first=6 slow=a"
  "plain mesh=2x3 shape=1x8 every=17 first=9"
  "plain mesh=2x3 shape=11 every=2"
  "plain mesh=2x3 shape=7x5 every=31 planner=greedy"
  "plain mesh=2x3 shape=5x7 every=29 type=int32 first=3"
  "sanitized mesh=2x3 shape=7x5 every=37 first=2"
)

# Every kind of step by its name in the programs' text: local ones, and the libraries' calls for even and for
# uneven parts. NCCL has no call for uneven parts.
local_steps="slice_rows slice_box put_rows fill pack_parts unpack_parts pack_pieces unpack_pieces"
steps_c="$local_steps MPI_Allreduce MPI_Allgather MPI_Allgatherv MPI_Reduce_scatter
  MPI_Reduce_scatter_block MPI_Alltoall MPI_Alltoallv MPI_Sendrecv"
steps_cu="${local_steps/slice_box /} ncclAllReduce ncclAllGather ncclBroadcast ncclReduceScatter ncclReduce
  ncclSend ncclRecv"

# steps_of DIRECTORY: those in the program there.
steps_of() { find "$1" -maxdepth 1 -name 'step*.c*' -exec cat {} + | grep -oE '\w+\(' | tr -d '(' | sort -u; }

# check KIND DEFINITIONS...: generates the program, runs it, and checks the moved tensors.
check() {
  local kind=$1 name value shape arguments=() moved
  name=$(IFS=.; echo "$*")
  shift
  for value; do
    arguments+=(-D "$value")
    [[ $value != shape=* ]] || shape=${value#*=}
  done
  [ "$kind" != cuda ] || arguments+=(--target cuda)
  local to=$WORK/$name
  "$TPGEN" tests/plans/redistributions/pairs.lua -o "$to" "${arguments[@]}" ||
    { fail "$name: tpgen ended with status $?"; return; }
  make_ranks "$to" "$kind" || { fail "$name does not compile"; return; }
  "$TOOLS/reshard_data" make "$to/data" "$shape" 400
  start "$to" "$to" --data "$to/data" || { fail "$name ended with status $?"; return; }
  moved=$("$TOOLS/reshard_data" check "$to.saved/outputs.safetensors" "$shape") ||
    { fail "$name: what comes out is not what went in"; return; }
  printf '  %-64s %4d outputs\n' "$name" "$moved"
  steps_of "$to" >> "$WORK/$([ "$kind" = cuda ] && echo steps_cu || echo steps_c)"
  [ -n "${MOVES_KEEP:-}" ] || rm -rf "$to" "$to".saved
}

make_runtimes plain sanitized cuda
# The runtime's own collective, for larger sizes than those above.
for kind in plain sanitized; do
  flags=()
  [ $kind = plain ] || flags=("${sanitizers[@]}")
  gcc "${strict[@]}" "${flags[@]}" "${includes[@]}" -Iruntime -o "$WORK/reduce_scatter.$kind" tests/tools/reduce_scatter.c \
    runtime/cpu/collectives.c "${libraries[@]}" || { fail "reduce_scatter.c does not compile"; continue; }
  for ranks in 2 3 4; do
    [ $kind = plain ] || [ $ranks = 3 ] || continue
    timeout 60 "${launch[@]}" -n $ranks "$WORK/reduce_scatter.$kind" || fail "reduce_scatter on $ranks ranks"
  done
done
count=0
for program in "${programs[@]}"; do
  [[ "$program" =~ ${MOVES:-.} ]] || continue
  count=$((count + 1))
  # shellcheck disable=SC2086
  beside "$WORK/$count.log" check $program
done
all_are_done
[ $count -gt 0 ] || fail "no program is asked for"
[ -n "${MOVES:-}" ] || for list in steps_c steps_cu; do
  for step in ${!list}; do
    grep -qx "$step" "$WORK/$list" || fail "no program has a $step"
  done
done
cat /dev/null "$WORK"/*.log
finish "$count programs: $(cat "$WORK"/*.log | awk '{ n += $2 } END { print n }') outputs are what went in"
