#!/usr/bin/env bash
# Ranks of one machine that talk through shared memory. Each collective against plain loops, on 2, 3 and 5 ranks,
# under the sanitizers once; plans of tests/equal, also under the sanitizers, against one rank; the toy as run.sh
# builds and starts it where CMake finds no MPI, against PyTorch, against ranks that talk by MPI, and to the same
# bits in each run; greedy tokens of Hugging Face's Llama on two ranks and on three; a Llama on two pretended machines,
# against PyTorch. The collectives are those of plan.json. Lost ranks are lost.sh's.
local_mpi=yes transport=shared
. "$(dirname "$0")/../common.sh"
runtime_plan=plans/generate.lua
. "$root/tests/scripts/programs.sh"
unset CC
export CMAKE_ARGS=-DCMAKE_C_FLAGS=-O0 # toy.sh builds with a release's flags

# ---- collectives ----------------------------------------------------------------------------------

collectives() {
  local kind=$1 flags=(-O1) ranks
  shift
  [ "$kind" = plain ] || flags=("${sanitizers[@]}")
  gcc "${strict[@]}" "${flags[@]}" -DTPGEN_SHARED -Iruntime -o "$WORK/collectives.$kind" tests/tools/shared_memory.c \
    $(find runtime/cpu/shared_memory -name '*.c' ! -name beside_mpi.c) -lm || fail "shared_memory.c does not compile"
  for ranks; do
    OMP_NUM_THREADS=$((ranks % 2 + 1)) timeout 200 "$WORK/collectives.$kind" "$ranks" || fail "$kind: collectives on $ranks ranks"
  done
}
beside "$WORK/collectives.plain.log" collectives plain 2 5
beside "$WORK/collectives.sanitized.log" collectives sanitized 3

# ---- the toy, as a user runs it --------------------------------------------------------------------

# Without MPI: neither CMake nor run.sh finds one.
alone="$CMAKE_ARGS -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"
without_mpi() {
  generate toy -D tp=2
  CMAKE_ARGS=$alone train_golden toy
  ! ldd "$WORK/toy/build/rank0" | finds libmpi || fail "a program without MPI is linked with it"
}
by_mpi() {
  generate toy_mpi -D tp=2
  train_golden toy_mpi --transport mpi
  ldd "$WORK/toy_mpi/build/mpi/rank0" | finds libmpi || fail "a program with MPI is not linked with it"
}
beside "$WORK/toy.messages" without_mpi
beside "$WORK/toy_mpi.messages" by_mpi
all_are_done
same_losses transports "$WORK/toy.losses" "$WORK/toy_mpi.losses" 5e-7
for again in 1 2; do
  CMAKE_ARGS=$alone "$WORK/toy/run.sh" --steps 20 --save "$WORK/saved$again" > "$WORK/again.log" 2>&1 < /dev/null || fail "the toy, once more"
done
cmp "$WORK"/saved[12]/model.safetensors || fail "two runs have different bits"
CMAKE_ARGS=$alone "$WORK/toy/run.sh" --steps 300 2> "$WORK/unread" | head -n 1 > /dev/null
[ "${PIPESTATUS[0]}" = 0 ] || fail "nobody reads standard output: $(< "$WORK/unread")"

# ---- ranks of several machines ---------------------------------------------------------------------

# Four ranks that take themselves for two of each of two machines: tp and dp_shard go one way each. MPI's ranks of
# one machine, too, share its memory.
mixed() {
  local program=(mpirun "${launch[@]:1}" -n 4 "$WORK/mixed/run.sh" --transport shared --weights "$llama/llama.safetensors"
    --data "$llama/text.txt" --steps "$steps")
  "$TPGEN" plans/llama3.lua -o "$WORK/mixed" "${golden_shape[@]}" -D tp=2 -D dp_shard=2 &&
    mpicc -std=c11 -D_GNU_SOURCE -shared -fPIC -Wall -Wextra -Werror -o "$WORK/two_machines.so" tests/tools/two_machines.c -ldl ||
    { fail "no program of mixed ranks"; return; }
  export OMP_NUM_THREADS=1
  timeout 100 "${program[@]}" --metrics "$WORK/mixed1.jsonl" < /dev/null &&
    timeout 100 mpirun -x LD_PRELOAD="$WORK/two_machines.so" "${program[@]:1}" --metrics "$WORK/mixed2.jsonl" < /dev/null ||
    fail "ranks that talk through memory and by MPI"
}
more beside "$WORK/mixed.log" mixed
all_are_done
! all_cases || for machines in 1 2; do near_golden mixed$machines; done

# ---- whole programs --------------------------------------------------------------------------------

EQUAL_TRANSPORT=shared EQUAL_PLANS="training $(more echo moves sharded)" EQUAL_RANDOM=0 EQUAL_CUDA=none \
  WORK="$WORK/equal" bash tests/scripts/programs/equal.sh > "$WORK/equal.log" 2>&1 || { cat "$WORK/equal.log"; fail "tests/equal"; }
tail -n 1 "$WORK/equal.log"

COUNTED_TRANSPORT=shared COUNTED="toy.lua tp=3|equal/llama" WORK="$WORK/counted" bash tests/scripts/passes/counted_collectives.sh > "$WORK/counted.log" 2>&1 ||
  { cat "$WORK/counted.log"; fail "other collectives than plan.json's"; }
tail -n 1 "$WORK/counted.log"

make_runtimes plain
of=$golden/generate
"$TOOLS/compare_answers" prompts "$of/llama/generate.json" > "$WORK/llama.jsonl"
greedy() {
  make "llama$1" plain plans/generate.lua -D config="$of/llama/config.json" -D context=80 -D tp="$1" -D prefill=16 -D slots=3 &&
    timeout 120 "$WORK/llama$1/ranks" --weights "$of/llama" --prompts "$WORK/llama.jsonl" --tokens 40 --top 5 \
      --output "$WORK/llama$1.out" < /dev/null > "$WORK/llama$1.messages" 2>&1 || { tail "$WORK/llama$1.messages"; fail "greedy on $1 ranks"; return; }
  "$TOOLS/compare_answers" greedy "$of/llama/generate.json" "$WORK/llama$1.out" 1e-4 || fail "$1 ranks: other tokens"
}
for tp in 3 $(more echo 2); do beside "$WORK/greedy.$tp.log" greedy $tp; done
all_are_done
cat "$WORK"/collectives.*.log "$WORK"/toy*.messages "$WORK"/greedy.*.log
finish "programs without MPI compute the same"
