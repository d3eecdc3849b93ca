#!/usr/bin/env bash
# The unchanged text of the CUDA target, on the stand-in for CUDA, NCCL and cuBLASLt:
#   the toy and the Llama have PyTorch's losses and norms of gradients, tp = 2 (CASES=all: 1, 2, 4), and fully
#   sharded over three ranks, in five steps, and in CI one in twenty (SOAK=1: all); in bfloat16 losses within 2 % of float32's
#   as a library the toy has the program's losses, to the bit (in CI)
#   a step that is captured as a graph gives the same bits; in CI also one of several batches, whose last one differs
#   checkpoints go to the CPU target's program and back
#   planted faults are caught: a missing wait, a wrong count, a swapped collective; in CI also waits between layers
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
optimized=-O1
patience=300
steps=${SOAK:+20}
steps=${steps:-5}
local_mpi=yes
export OMP_NUM_THREADS=1

# toy NAME ARGUMENTS...: PyTorch's ten losses.
toy() {
  local name=$1 to=$WORK/$1 data=$golden/toy/toy.safetensors
  shift
  "$TPGEN" plans/toy.lua -o "$to" --target cuda "$@" && make_ranks "$to" cuda || fail "$name: no program"
  start "$to" "$to" --weights "$data" --data "$data" || fail "$name: it ended with status $?"
  golden_losses > "$to.golden"
  same_losses "$name" "$to.losses" "$to.golden"
}

# Built and started like a user's program: by run.sh and its CMakeLists.txt. Then the same folder's library.
by_run_sh() {
  local build=$WORK/run/build
  generate run --target cuda -D tp=2 --emit library
  unset OMP_NUM_THREADS
  export CMAKE_ARGS="-DTPGEN_CUDA_ON_CPU=$root/tests/cuda_on_cpu -DCMAKE_CXX_FLAGS=-O0"
  train_golden run
  train run --steps 10
  losses_of "$WORK/run.jsonl" > "$WORK/run.losses"
  ci_cases || return 0
  cmake --build "$build" --target library > "$WORK/run.made" 2>&1 &&
    gcc "${strict[@]}" "-I$WORK/run" "${includes[@]}" -c -o "$build/example.o" examples/library/example.c &&
    g++ -o "$build/example" "$build/example.o" "$build/libmodel.a" "${libraries[@]}" &&
    timeout "$patience" "${launch[@]}" -n 2 "$build/example" > "$WORK/run.library" 2> "$WORK/run.made" ||
    { tail -n 20 "$WORK/run.made"; fail "the toy as a library"; }
  cmp "$WORK/run.losses" "$WORK/run.library" || fail "the toy as a library has other losses"
}

bfloat16() {
  within=(2e-2 2e-2)
  check_golden cuda "$@" -D dtype=bfloat16
}

# from NAME RESULT ARGUMENTS...: the program of that name, on the Llama's text.
from() {
  local name=$1 result=$WORK/$2
  shift 2
  start "$WORK/$name" "$result" --data "$llama/text.txt" "$@" || fail "$result: it ended with status $?"
}

same_bits() { cmp "$WORK/$1.saved/model.safetensors" "$WORK/$2.saved/model.safetensors" || fail "$3"; }

# captured NAME: the second step is captured, and what was captured runs three times.
captured() {
  from "$1" "$1.graph" --weights "$llama/llama.safetensors" --steps 4 --graph
  from "$1" "$1.plain" --weights "$llama/llama.safetensors" --steps 4
  same_bits "$1.graph" "$1.plain" "a captured step of $1 leaves other bits"
}

# Three batches, and the last one reduces whole gradients.
captured_batches() {
  local to=$WORK/batches
  "$TPGEN" tests/equal/last_batch.lua -D dp=2 -D shard=2 -D batches=3 -o "$to" --target cuda && make_ranks "$to" cuda &&
    start "$to" "$to.graph" --steps 4 --graph && start "$to" "$to.plain" --steps 4 || fail "several batches: status $?"
  same_bits batches.graph batches.plain "a captured step of several batches leaves other bits"
}

# exchanged FIRST THEN: two steps of one target, then two of the other, have PyTorch's losses.
exchanged() {
  from "$1" "$1.two" --weights "$llama/llama.safetensors" --steps 2
  from "$2" "$1.$2" --load "$WORK/$1.two.saved" --steps 4
  golden_numbers losses | sed -n 3,4p > "$WORK/$1.$2.golden"
  same_losses "$1, then $2" "$WORK/$1.$2.losses" "$WORK/$1.$2.golden"
  # The loaded and the saved tensors are equal, bit for bit.
  from "$2" "$2.as_loaded" --load "$WORK/$1.two.saved" --steps 2
  "$TOOLS/compare_safetensors" "$WORK/$2.as_loaded.saved/model.safetensors" "$WORK/$1.two.saved/model.safetensors" 0 ||
    fail "$2 does not save what it has loaded from $1"
}

# The stand-in tracks the memory accesses of kernels and steps that are compiled so.
following=(-fsanitize=thread)

# planted NAME FROM RANKS PATTERN PERL: these ranks of the tracked program FROM run a step changed by PERL; the
# job ends with a message that matches PATTERN.
planted() {
  local name=$1 ranks=$3 pattern=$4 change=$5 to=$WORK/$1 rank
  cp -r "$WORK/followed_$2" "$to"
  perl -0pe "$change" "$to/step.cu" > "$to/step_planted.cu"
  ! cmp -s "$to/step.cu" "$to/step_planted.cu" || fail "$name: nothing is planted"
  # The two steps are parts of one program.
  (
    cd "$to"
    sed -i 's/\bstep_program\b/planted_program/' step_planted.cu
    for rank in $ranks; do sed -i 's/\bstep_program\b/planted_program/' "rank$rank.cu"; done
    join_ranks cu
  )
  objects "$to" cuda "${following[@]}" step_planted.cu all_ranks.cu && link_ranks "$to" cuda || { fail "$name does not compile"; return; }
  ! start "$to" "$to" --data "$llama/text.txt" --steps 2 > "$to.said" || fail "$name: it went unnoticed"
  grep -qE "$pattern" "$to.out" || { fail "$name: other words"; head -n 5 "$to.out"; }
  printf '  %-24s %s\n' "$name" "$(grep -m 1 -E "$pattern" "$to.out")"
}

# follow FROM: builds the tracked program in followed_FROM.
follow() {
  local to=$WORK/followed_$1
  mkdir "$to"
  cp -r "$WORK/$1"/{*.cu,*.h,CMakeLists.txt,runtime} "$to"
  watched=("${following[@]}")
  make_ranks "$to" cuda || fail "$1 does not compile to be followed"
}

# followed FROM: unchanged, it passes.
followed() {
  local name=followed_$1
  from "$name" "$name" --steps 2
  from "$name" "${name}_graph" --steps 3 --graph
}

make_runtimes plain cuda
for tp in 1 2 4; do
  [ $tp = 2 ] || all_cases || continue
  steps=$(ci_cases && [ $tp = 2 ] && echo 20 || echo $steps) beside "$WORK/tp$tp.log" check_golden cuda tp$tp -D tp=$tp
  beside "$WORK/bf$tp.log" bfloat16 bf$tp -D tp=$tp
  more beside "$WORK/toy$tp.log" toy toy$tp -D tp=$tp
done
beside "$WORK/run_sh.log" by_run_sh
more beside "$WORK/toy_dp2_tp2.log" toy toy_dp2_tp2 -D dp=2 -D tp=2
beside "$WORK/fsdp3.log" check_golden cuda fsdp3 -D dp_shard=3
more beside "$WORK/tp2_async.log" check_golden cuda tp2_async -D tp=2 -D async_tp=2
beside "$WORK/cpu.log" check_golden plain cpu -D tp=2
all_are_done
for name in tp2 $(in_ci echo fsdp3); do beside "$WORK/follow_$name.log" follow $name; done
all_are_done
for name in tp2 $(more echo tp2_async); do beside "$WORK/captured_$name.log" captured $name; done
in_ci beside "$WORK/captured_batches.log" captured_batches
beside "$WORK/exchanged.log" exchanged tp2 cpu
beside "$WORK/exchanged_back.log" exchanged cpu tp2
for name in tp2 $(in_ci echo fsdp3); do beside "$WORK/followed_$name.log" followed $name; done
unordered='nothing orders the one after the other'
beside "$WORK/wait.log" planted wait tp2 "0 1" "$unordered" 's/\n +await\(done\[0\]\);//'
beside "$WORK/begin.log" planted begin tp2 "0 1" "$unordered" 's/\n +begin_on\(tp_stream\);//'
# Gathers that are prefetched a layer ahead, and collectives that are issued in the last layer's iteration.
in_ci beside "$WORK/ahead.log" planted ahead fsdp3 "0 1 2" "$unordered" 's/\n  await\(done\[0\]\);//'
in_ci beside "$WORK/last.log" planted last fsdp3 "0 1 2" "$unordered" \
  's/(layers_forward\(l\);\n.*?)\n  await\(done\[3\]\);/$1/s'
beside "$WORK/count.log" planted count tp2 1 'the ranks disagree.*16380 x' 's/(ncclAllGather\(\w+, \w+, )16384/${1}16380/'
beside "$WORK/swapped.log" planted swapped tp2 1 'ncclAllGather.*ncclReduceScatter|ncclReduceScatter.*ncclAllGather' \
  's/(COLLECTIVE\(\.plan_line = \d+, \w+, ncclAllGather.*?;\n)(.*?)(COLLECTIVE\(\.plan_line = \d+, \w+, ncclReduceScatter.*?;\n)/$2$3$1/s'
all_are_done
cat "$WORK"/*.log
finish "the toy and the Llama on the stand-in: PyTorch's losses, the CPU's checkpoints, and no planted fault unseen"
