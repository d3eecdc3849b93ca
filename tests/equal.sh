#!/usr/bin/env bash
# Parallel equals dense: each plan of tests/equal, and some made at random, on each mesh that a line such
# as `-- mesh: dp=2 tp=3` names, comes to the losses of one rank, to its weights and its optimizer's
# state, or to its outputs. gcc and clang compile the programs here, with every warning an error.
#   EQUAL_PLANS="mlp deep"   these plans alone; "" for none
#   EQUAL_RANDOM=200         so many plans from random_plan, not 12
#   EQUAL_SEED=1000          the first of them
#   EQUAL_SANITIZE=all       all pairs run under the sanitizers too, not only a few; none for none
. "$(dirname "$0")/common.sh"

# What float32 sums in another order may do, over at most some hundred summands and five steps. Losses
# are compared relative to themselves (same_losses), tensors relative to their largest element.
tensor_tolerance=2e-5
sanitized='^(gather tp=3|layers tp=2|nested b=2,c=3|outputs dp=6)$'
case ${EQUAL_SANITIZE:-} in all) sanitized=. ;; none) sanitized='^$' ;; esac

strict=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
plain=(-O1)
sanitizers=(-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined)
export ASAN_OPTIONS=detect_leaks=0
# MPI's and BLAS's own headers are not what is tested.
mapfile -t includes < <({ mpicc -show && pkg-config --cflags openblas; } | tr ' ' '\n' |
  sed -n 's/^-I/-isystem/p')
mapfile -t libraries < <({ mpicc -show && pkg-config --libs openblas jansson; } | tr ' ' '\n' |
  sed -n '/^-\(L\|l\|Wl\)/p')
libraries+=(-lm)
# ld.gold takes half of ld's time.
! gcc -fuse-ld=gold -Wl,--version > /dev/null 2>&1 || libraries+=(-fuse-ld=gold)

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1
launch=(mpirun)
if mpirun --version 2>&1 | grep -q 'Open MPI'; then
  launch+=(--quiet --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1)
fi

# compile_runtime KIND FLAGS...: the runtime's objects, which are the same for all programs.
compile_runtime() (
  mkdir "$WORK/$1"
  cd "$WORK/$1"
  shift
  gcc "${strict[@]}" "$@" -I../runtime "${includes[@]}" $(pkg-config --cflags jansson) -c \
    ../runtime/{main,tensors,save,safetensors,philox,launch,cpu}.c
)

# make_ranks DIRECTORY KIND FLAGS...: compiles the program there, into rank0, rank1 ... beside it.
make_ranks() (
  cd "$1"
  kind=$2
  shift 2
  gcc "${strict[@]}" "$@" -I. -Iruntime "${includes[@]}" -c rank*.c step*.c kernels.c || exit 1
  for entry in $(sed -n 's/^set(RANKS \(.*\))$/\1/p' CMakeLists.txt); do
    gcc "$@" -o "rank${entry%:*}" "rank${entry%:*}.o" "${entry#*:}.o" kernels.o "../$kind"/*.o \
      "${libraries[@]}" || exit 1
  done
  [ "$kind" = sanitized ] || ! command -v clang > /dev/null ||
    clang "${strict[@]}" -fsyntax-only -I. -Iruntime "${includes[@]}" rank0.c step*.c kernels.c
)

# start DIRECTORY: runs all its ranks; its metrics and what it saves are beside it.
start() {
  local ranks=() rank
  for ((rank = 0; rank < $(find "$1" -name 'rank*.c' | wc -l); rank++)); do
    [ $rank -eq 0 ] || ranks+=(:)
    ranks+=(-n 1 "$1/rank$rank" --metrics "$1.jsonl" --save "$1.saved")
  done
  timeout 60 "${launch[@]}" "${ranks[@]}" < /dev/null > "$1.out" 2>&1 || {
    tail -n 20 "$1.out"
    return 1
  }
  [ ! -f "$1.jsonl" ] || losses_of "$1.jsonl" > "$1.losses"
}

# make_and_run PLAN NAME KIND MESH...: the plan on a mesh, in $WORK/NAME.
make_and_run() {
  local plan=$1 to=$WORK/$2 kind=$3 size defines=() flags=("${plain[@]}")
  shift 3
  for size; do defines+=(-D "$size"); done
  [ "$kind" = plain ] || flags=("${sanitizers[@]}")
  "$TPGEN" "$plan" -o "$to" "${defines[@]}" || { fail "$to: tpgen ended with status $?"; return 1; }
  make_ranks "$to" "$kind" "${flags[@]}" || { fail "$to does not compile"; return 1; }
  start "$to" || { fail "$to ended with status $?"; return 1; }
}

# compare NAME BASE: what two runs have left.
compare() {
  local name=$1 base=$2 saved
  if [ -f "$WORK/$base.losses" ]; then
    same_losses "$name" "$WORK/$name.losses" "$WORK/$base.losses"
  fi
  for saved in "$WORK/$base.saved"/*.safetensors; do
    "$TOOLS/compare_safetensors" "$saved" "$WORK/$name.saved/${saved##*/}" $tensor_tolerance ||
      fail "$name: ${saved##*/}"
  done
}

# check_plan PLAN: all its meshes against one rank. Its status is 0 if they are all equal.
check_plan() {
  local plan=$1 stem base mesh name
  stem=$(basename "$plan" .lua)
  base=$stem.one
  make_and_run "$plan" "$base" plain || return
  while read -ra mesh; do
    name=$(IFS=,; echo "${mesh[*]}")
    make_and_run "$plan" "$stem.$name" plain "${mesh[@]}" && compare "$stem.$name" "$base"
    [[ "$stem $name" =~ $sanitized ]] || continue
    name=$stem.$name.sanitized
    make_and_run "$plan" "$name" sanitized "${mesh[@]}" && compare "$name" "$base"
  done < <(sed -n 's/^-- mesh: *//p' "$plan")
  [ "$failures" -eq 0 ] || return 1
  rm -rf "$WORK/$stem".*/
}

plans=()
for plan in tests/equal/*.lua; do
  [[ -z ${EQUAL_PLANS+set} || " $EQUAL_PLANS " == *" $(basename "$plan" .lua) "* ]] && plans+=("$plan")
done
seed=${EQUAL_SEED:-1}
for ((i = seed; i < seed + ${EQUAL_RANDOM:-12}; i++)); do
  "$TOOLS/random_plan" $i > "$WORK/random$i.lua"
  plans+=("$WORK/random$i.lua")
done

"$TPGEN" "${plans[0]}" -o "$WORK/first" && mv "$WORK/first/runtime" "$WORK"
compile_runtime plain "${plain[@]}" || fail "the runtime does not compile"
compile_runtime sanitized "${sanitizers[@]}" || fail "the runtime does not compile"

# As many plans at once as there are cores. What each has said stands in a log.
running=0
for plan in "${plans[@]}"; do
  if [ $running -ge "$(nproc)" ]; then
    wait -n || failures=$((failures + 1))
    running=$((running - 1))
  fi
  (check_plan "$plan") > "$WORK/$(basename "$plan" .lua).log" 2>&1 &
  running=$((running + 1))
done
for ((; running > 0; running--)); do wait -n || failures=$((failures + 1)); done
cat "$WORK"/*.log
finish "${#plans[@]} plans on $(grep -h '^-- mesh: ' "${plans[@]}" | wc -l) meshes"
