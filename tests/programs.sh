# Builds and runs generated programs, for the scripts that do so with many of them; sourced after
# common.sh. A program is of one of three kinds: plain, sanitized, or cuda.
strict=(-std=c11 -D_GNU_SOURCE -fopenmp -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
# Only kernels take time to run, and only they make promises (restrict) that an optimizer builds on.
plain=(-O0)
optimized=-O2
sanitizers=(-g -fsanitize=address,undefined -fno-sanitize-recover=undefined)
cuda=(-std=c++20 -D_GNU_SOURCE -DTPGEN_CUDA -DTPGEN_MPI -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX
  -Wall -Wextra -Werror "-I$root/tests/cuda_on_cpu/include")
# MPI's and BLAS's own headers are not what is tested.
mapfile -t includes < <({ mpicc -show && pkg-config --cflags openblas jansson; } | tr ' ' '\n' |
  sed -n 's/^-I/-isystem/p')
mapfile -t libraries < <({ mpicc -show && pkg-config --libs openblas jansson; } | tr ' ' '\n' |
  sed -n '/^-\(L\|l\|Wl\)/p')
libraries+=(-fopenmp -lm)
# ld.gold takes half of ld's time.
! gcc -fuse-ld=gold -Wl,--version > /dev/null 2>&1 || libraries+=(-fuse-ld=gold)

export ASAN_OPTIONS=detect_leaks=0 OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=passive
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launch=(mpirun)
if mpirun --version 2>&1 | grep -q 'Open MPI'; then
  launch+=(--quiet --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1)
fi

# objects DIRECTORY KIND FLAGS AND SOURCES...: compiles them there.
objects() (
  cd "$1"
  kind=$2
  shift 2
  common=(-I. -Iruntime "${includes[@]}" -c "$@")
  case $kind in
  plain) gcc "${strict[@]}" "${plain[@]}" "${common[@]}" ;;
  sanitized) gcc "${strict[@]}" "${sanitizers[@]}" "${common[@]}" ;;
  cuda) g++ "${cuda[@]}" -x c++ "${common[@]}" ;;
  esac
)

# The runtime's objects in $WORK/KIND: they are the same for all programs of a kind.
make_runtime() {
  local kind=$1 to=$WORK/$1 target=cpu object sources
  [ "$kind" != cuda ] || target=cuda
  "$TPGEN" plans/toy.lua -o "$WORK/toy" --target $target && mv "$WORK/toy/runtime" "$to" || return
  rm -r "$WORK/toy"
  # All but the target's own, and those that only CUDA's ranks meet by.
  mapfile -t sources < <(cd "$to" && ls -- *.c | grep -vx 'cpu\.c\|meet\.c')
  if [ "$kind" = cuda ]; then
    mkdir "$to/stand_in"
    objects "$to/stand_in" cuda -O1 "$root"/tests/cuda_on_cpu/*.cpp && objects "$to" cuda cuda.cu &&
      objects "$to" plain -DTPGEN_MPI "${sources[@]}" meet.c || return
    for object in "$to"/stand_in/*.o; do mv "$object" "$to/stand_in_${object##*/}"; done
  else
    objects "$to" "$kind" "${sources[@]}" cpu.c
  fi
}

# make_ranks DIRECTORY KIND: compiles the program there, into rank0, rank1 ... beside it.
make_ranks() (
  cd "$1"
  kind=$2 suffix=c link=(gcc)
  case $kind in
  sanitized) link=(gcc "${sanitizers[@]}") ;;
  cuda) suffix=cu link=(g++) ;;
  esac
  objects . "$kind" rank*.$suffix step*.$suffix && objects . "$kind" $optimized kernels.$suffix || exit 1
  for entry in $(sed -n 's/^set(RANKS \(.*\))$/\1/p' CMakeLists.txt); do
    "${link[@]}" -o "rank${entry%:*}" "rank${entry%:*}.o" "${entry#*:}.o" kernels.o "../$kind"/*.o \
      "${libraries[@]}" || exit 1
  done
  # clang reads every third: what it has to say of one it has to say of many.
  [ "$kind" != plain ] || (($(cksum <<< "$PWD" | cut -d ' ' -f 1) % 3)) || ! command -v clang > /dev/null ||
    clang "${strict[@]}" -fsyntax-only -I. -Iruntime "${includes[@]}" rank0.c step.c kernels.c
)

# start DIRECTORY RESULT ARGUMENTS...: runs all its ranks. RESULT.losses and RESULT.saved/ are what they
# leave.
start() {
  local directory=$1 result=$2 ranks=() rank
  shift 2
  for ((rank = 0; rank < $(find "$directory" -name 'rank*.o' | wc -l); rank++)); do
    [ $rank -eq 0 ] || ranks+=(:)
    ranks+=(-n 1 "$directory/rank$rank" --metrics "$result.jsonl" --save "$result.saved" "$@")
  done
  timeout 60 "${launch[@]}" "${ranks[@]}" < /dev/null > "$result.out" 2>&1 || {
    tail -n 20 "$result.out"
    return 1
  }
  [ ! -f "$result.jsonl" ] || losses_of "$result.jsonl" > "$result.losses"
}

