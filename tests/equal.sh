#!/usr/bin/env bash
# Parallel equals dense: each plan of tests/equal, on each mesh that it names in a line such as
# `-- mesh: dp=2 tp=3`, comes to the losses of one rank, to its weights and its optimizer's state, or
# to its outputs. The programs are compiled here, by gcc and by clang, with every warning an error.
#   EQUAL_PLANS="mlp deep"   these plans alone
#   EQUAL_SANITIZE=all       all pairs run under the sanitizers too, not only a few
. "$(dirname "$0")/common.sh"

# Float32 sums in another order, over at most some hundred summands and five steps. Losses are compared
# relative to themselves (same_losses), tensors relative to their largest element.
tensor_tolerance=1e-4
sanitized='^(gather tp=3|layers tp=2|nested b=2,c=3|outputs dp=6|parameters dp=2,tp=2|scatter tp=4)$'
[ "${EQUAL_SANITIZE:-}" = all ] && sanitized='.'

strict=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror ${EQUAL_X:-})
# MPI's and BLAS's own headers are not what is tested.
read -ra includes <<< "$({ mpicc -show && pkg-config --cflags openblas; } | tr ' ' '\n' | sed -n 's/^-I/-isystem/p' | tr '\n' ' ')"
read -ra libraries <<< "$(mpicc -show | tr ' ' '\n' | sed -n '/^-\(L\|l\|Wl\)/p' | tr '\n' ' ')"
read -ra libraries <<< "${libraries[*]} $(pkg-config --libs openblas jansson | tr '\n' ' ') -lm"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1
launch=(mpirun)
if mpirun --version 2>&1 | grep -q 'Open MPI'; then
  launch+=(--quiet --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1)
fi
plain=(-O1)
sanitizers=(-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined)
export ASAN_OPTIONS=detect_leaks=0

# compile_runtime KIND FLAGS...: the runtime's objects, which are the same for all programs.
compile_runtime() {
  local kind=$1 from=$WORK/runtime
  shift
  mkdir -p "$WORK/$kind"
  (cd "$WORK/$kind" && gcc "${strict[@]}" "$@" -I"$from" "${includes[@]}" $(pkg-config --cflags jansson) -c \
    "$from"/{main,tensors,save,safetensors,philox,launch,cpu}.c)
}

# link_ranks DIRECTORY KIND FLAGS...: compiles the program there, into rank0, rank1 ... beside it.
link_ranks() (
  cd "$1"
  local kind=$2 entry
  shift 2
  gcc "${strict[@]}" "$@" -I. -Iruntime "${includes[@]}" -c rank*.c step*.c kernels.c
  for entry in $(sed -n 's/^set(RANKS \(.*\))$/\1/p' CMakeLists.txt); do
    gcc "$@" -o "rank${entry%:*}" "rank${entry%:*}.o" "${entry#*:}.o" kernels.o "$WORK/$kind"/*.o \
      "${libraries[@]}"
  done
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
  local plan=$1 to=$WORK/$2 kind=$3 size defines=() flags
  shift 3
  for size; do defines+=(-D "$size"); done
  flags=("${plain[@]}")
  [ "$kind" = plain ] || flags=("${sanitizers[@]}")
  "$TPGEN" "$plan" -o "$to" "${defines[@]}" || { fail "$to: tpgen ended with status $?"; return; }
  link_ranks "$to" "$kind" "${flags[@]}" || { fail "$to does not compile"; return; }
  if [ "$kind" = plain ] && command -v clang > /dev/null; then
    (cd "$to" && clang "${strict[@]}" -fsyntax-only -I. -Iruntime "${includes[@]}" ./*.c) ||
      fail "$to: clang"
  fi
  start "$to" || fail "$to ended with status $?"
}

# compare NAME BASE: what two runs have left.
compare() {
  local name=$1 base=$2 saved
  if [ -s "$WORK/$base.losses" ]; then
    same_losses "$name" "$WORK/$name.losses" "$WORK/$base.losses"
  fi
  for saved in "$WORK/$base.saved"/*.safetensors; do
    "$TOOLS/compare_safetensors" "$saved" "$WORK/$name.saved/$(basename "$saved")" $tensor_tolerance ||
      fail "$name: $(basename "$saved")"
  done
}

# check_plan PLAN: all its meshes against one rank. Ends with 1 if one of them differs.
check_plan() {
  local plan=$1 stem mesh name base
  stem=$(basename "$plan" .lua)
  base=$stem.one
  make_and_run "$plan" "$base" plain
  [ "$failures" -eq 0 ] || return 1
  while read -ra mesh; do
    name=$stem.$(IFS=,; echo "${mesh[*]}")
    make_and_run "$plan" "$name" plain "${mesh[@]}"
    compare "$name" "$base"
    if [[ "$stem $(IFS=,; echo "${mesh[*]}")" =~ $sanitized ]]; then
      make_and_run "$plan" "$name.sanitized" sanitizers "${mesh[@]}"
      compare "$name.sanitized" "$base"
    fi
  done < <(sed -n 's/^-- mesh: *//p' "$plan")
  [ "$failures" -eq 0 ]
}

plans=(tests/equal/*.lua)
if [ -n "${EQUAL_PLANS:-}" ]; then
  plans=()
  for name in $EQUAL_PLANS; do plans+=("tests/equal/$name.lua"); done
fi

"$TPGEN" "${plans[0]}" -o "$WORK/first" && mv "$WORK/first/runtime" "$WORK"
compile_runtime plain "${plain[@]}" &
compile_runtime sanitizers "${sanitizers[@]}"
wait -n || fail "the runtime does not compile"

# As many plans at once as there are cores.
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
