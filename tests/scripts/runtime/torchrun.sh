#!/usr/bin/env bash
# CUDA programs under a real torchrun, on the stand-in: run.sh becomes the rank that torchrun has started, the ranks meet over TCP
# and have the losses of the CPU's ranks. If one is killed, torchrun starts all of them again, and they go on from the last save.
# Needs torchrun (PyTorch) in PATH.
. "$(dirname "$0")/../common.sh"
command -v torchrun > /dev/null || { echo "torchrun: SKIPPED: torchrun is not in PATH"; exit 77; }
export OMP_NUM_THREADS=1 NVIDIA_TF32_OVERRIDE=0 RANKS_FOLDER=$WORK/meet
mkdir "$WORK/meet"
# The programs do not use MPI. The stand-in's NCCL does: ranks of the tests' MPI, which join the others in a file.
stand_in=$WORK/stand_in
cp -r tests/cuda_on_cpu "$stand_in" && cp tests/local_mpi/mpi.h "$stand_in/include" || exit 1
(cd "$WORK" && gcc -O2 -fopenmp -D_GNU_SOURCE -c "$root"/tests/local_mpi/{mpi,requests,messages,rings,joined}.c &&
  ld -r -o all.o mpi.o requests.o messages.o rings.o joined.o) || { fail "the tests' MPI does not compile"; finish; }
export CMAKE_ARGS="-DTPGEN_MPI=OFF -DTPGEN_CUDA_ON_CPU=$stand_in -DCMAKE_EXE_LINKER_FLAGS=$WORK/all.o"

under() { # RANKS PROGRAM ARGUMENTS...: under torchrun
  timeout 600 torchrun --no-python --nproc-per-node "$1" --master-port $((20000 + RANDOM % 10000)) --max-restarts "${restarts:-0}" \
    "$WORK/$2/run.sh" "${@:3}" < /dev/null > "$WORK/said" 2>&1
}

like_cpu() { # NAME RANKS PLAN ARGUMENTS...
  local name=$1
  "$TPGEN" "$3" -o "$WORK/$name" --target cuda -D steps=6 "${@:4}" > "$WORK/said" 2>&1 &&
    "$TPGEN" "$3" -o "$WORK/$name.cpu" -D steps=6 "${@:4}" > "$WORK/said" 2>&1 || { fail "$name: $(cat "$WORK/said")"; return; }
  timeout 600 "$WORK/$name/run.sh" --build > "$WORK/said" 2>&1 || { fail "$name is not built: $(tail -n 5 "$WORK/said")"; return; }
  under "$2" "$name" --metrics "$WORK/$name.jsonl" --save "$WORK/$name.ck" || { fail "$name: $(tail -n 5 "$WORK/said")"; return; }
  env -u CMAKE_ARGS timeout 600 "$WORK/$name.cpu/run.sh" --metrics "$WORK/$name.cpu.jsonl" < /dev/null > "$WORK/said" 2>&1 ||
    fail "$name on CPUs: $(tail -n 5 "$WORK/said")"
  losses_of "$WORK/$name.jsonl" > "$WORK/$name.losses"
  losses_of "$WORK/$name.cpu.jsonl" > "$WORK/$name.cpu.losses"
  same_losses "$name" "$WORK/$name.losses" "$WORK/$name.cpu.losses" 1e-5
}
like_cpu dense 4 plans/llama3.lua -D tp=2 -D dp_shard=2 -D clip=1
like_cpu stages 4 plans/llama3.lua -D pp=2 -D tp=2 -D microbatches=4
like_cpu experts 2 plans/moe.lua -D dp=2 -D ep=2

# More ranks than the program has, and fewer.
! under 2 dense || fail "two ranks of four: status 0"
grep -q "this is a program of 4 ranks, but WORLD_SIZE is '2'" "$WORK/said" || fail "two ranks of four: $(tail -n 3 "$WORK/said")"

# A rank is killed: torchrun starts all of them again, and they go on.
"$TPGEN" plans/toy.lua -o "$WORK/toy" --target cuda -D tp=2 -D steps=600 > /dev/null && "$WORK/toy/run.sh" --build > "$WORK/said" 2>&1 || fail toy
under 2 toy --metrics "$WORK/whole.jsonl" --save "$WORK/whole" || fail "toy: $(tail -n 3 "$WORK/said")"
restarts=2 under 2 toy --metrics "$WORK/killed.jsonl" --resume "$WORK/killed" --save-every 100 &
job=$!
for ((i = 0; i < 600; i++)); do [ ! -e "$WORK/killed/model.safetensors" ] || break; sleep 0.1; done
pkill -KILL -f "^$WORK/toy/build/rank1 " || fail "no rank to kill: $(tail -n 3 "$WORK/said")"
wait $job || fail "a killed rank: $(tail -n 5 "$WORK/said")"
"$TOOLS/compare_safetensors" "$WORK/whole/model.safetensors" "$WORK/killed/model.safetensors" 0 || fail "other weights after a rank was killed"
finish "CUDA programs under torchrun have the losses of the CPU's ranks, and go on after a rank is killed"
