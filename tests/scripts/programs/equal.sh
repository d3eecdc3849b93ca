#!/usr/bin/env bash
# Parallel equals dense: each plan of tests/equal, and some random plans, on each mesh that a line such as
# `-- mesh: dp=2 tp=3` names, has the losses, weights and optimizer's state, or the outputs, of one rank. gcc and
# clang compile the programs, with every warning an error. A line `-- sanitized: dp=2 tp=3` also runs that mesh
# under the sanitizers (in CI), and a line `-- cuda: dp=2 tp=3` runs the CUDA text, on the stand-in; every tenth random
# plan has either. A random plan may ask for what cannot be computed in parts: such refusals are counted, and
# must be rare.
#   EQUAL_PLANS="mlp deep"   these plans alone; "" for none
#   EQUAL_RANDOM=200         so many plans from random_plan, not 2 (CASES=all: 8)
#   EQUAL_SEED=1000          the first of them
#   EQUAL_AUTO=500           so many random plans whose placements auto() finds, not 1 (CI: 4), from that seed on; such a plan may
#                            be refused only if it is refused without auto(), too
#   EQUAL_SANITIZE=all       all pairs also run under the sanitizers, not only a few; none for none
#   EQUAL_CUDA=all           all pairs also run on the stand-in, not only a few; none for none
#   CASES=all                every mesh, as in a soak. Else of each plan the second, which mostly divides nothing evenly,
#                            or its only one
#   EQUAL_TRANSPORT=shared   ranks of the CPU talk through the runtime's shared memory
#   EQUAL_OVERLAP=1          collectives of programs for the CPU run beside arithmetic: train{overlap = true}
#   EQUAL_KEEP=1             the programs stay in the work directory; else only those that differ
. "$(dirname "$0")/../common.sh"
local_mpi=yes
transport=${EQUAL_TRANSPORT:-mpi}
. "$root/tests/scripts/programs.sh"

# Losses are compared by relative error (same_losses), tensors relative to their largest element (same_tensors). For a plan
# with a line `-- rounds: bfloat16` losses may differ by a unit in the last place of bfloat16, and tensors by what such
# roundings grow to: ranks round their parts of a sum, one rank rounds the sum.
# The stand-in tracks the memory accesses of kernels that are compiled so: no two streams race.
following=(-fsanitize=thread)
# The numbers are those of float32 on both targets: where a plan lets products round to TF32, the stand-in does not.
export NVIDIA_TF32_OVERRIDE=0

# is_refused PLAN ARGUMENTS...: whether it is a random plan whose log has one of the allowed refusals; with auto() also whether
# it is refused without it.
is_refused() {
  [ "$1" = "$WORK/$(basename "$1")" ] && is_random_refusal "$WORK/$(basename "$1" .lua).log" || return
  grep -q '^parallelize(.*auto())$' "$1" || return 0
  sed '/^parallelize(.*auto())$/d' "$1" > "${1%.lua}.without"
  ! "$TPGEN" "${1%.lua}.without" -o "${1%.lua}.refused" "${@:2}" > /dev/null 2>&1
}

# make_and_run PLAN NAME KIND MESH...: the plan on a mesh, in $WORK/NAME.
make_and_run() {
  local plan=$1 to=$WORK/$2 kind=$3 size arguments=() optimized=$optimized
  shift 3
  for size; do arguments+=(-D "$size"); done
  watched=()
  if [ -n "${EQUAL_OVERLAP:-}" ] && [ $# -gt 0 ] && [ "$kind" != cuda ]; then
    sed 's/\<\(train\|infer\){/&overlap = true, /' "$plan" > "$to.lua"
    plan=$to.lua
  fi
  [ "$kind" != cuda ] || { arguments+=(--target cuda); watched=("${following[@]}") optimized=-O1; }
  "$TPGEN" "$plan" -o "$to" "${arguments[@]}" 2>&1 || {
    is_refused "$plan" "${arguments[@]}" || fail "$to: tpgen ended with status $?"
    return 1
  }
  [ -z "${EQUAL_OVERLAP:-}" ] || ! grep -q 'begun(&done\[' "$to"/step*.c 2> /dev/null || touch "$WORK/overlapped"
  make_ranks "$to" "$kind" || { fail "$to does not compile"; return 1; }
  start "$to" "$to" || { fail "$to ended with status $?"; return 1; }
}

# own_metrics FILE: the numbers of the plan's own metrics, one a line.
own_metrics() { sed 's/.*"lr":[^,}]*//' "$1" | tr -c '0-9.e+\n-' '\n' | sed -n '/[0-9]/p'; }

# compare NAME BASE: compares the results of two runs.
compare() {
  local file=outputs.safetensors
  if [ -f "$WORK/$2.saved/model.safetensors" ]; then
    file=model.safetensors
    same_losses "$1" "$WORK/$1.losses" "$WORK/$2.losses" ${rounds:+0.0039}
    own_metrics "$WORK/$1.jsonl" > "$WORK/$1.own"
    own_metrics "$WORK/$2.jsonl" > "$WORK/$2.own"
    [ ! -s "$WORK/$2.own" ] || same_losses "$1 metrics" "$WORK/$1.own" "$WORK/$2.own"
  fi
  same_tensors "$1" "$2" $file || fail "$1: other tensors"
  [ $file != model.safetensors ] || same_files "$1" "$2"
}

# runs_as KIND PLAN MESH: whether this mesh of the plan is also run as KIND.
runs_as() {
  local asked=
  case $1 in sanitized) asked=${EQUAL_SANITIZE:-} ;; cuda) asked=${EQUAL_CUDA:-} ;; esac
  case $1$asked in
  plain | *all) ;;
  *none) return 1 ;;
  sanitized) ci_cases && grep -qx -- "-- $1: *$3" "$2" ;;
  *) grep -qx -- "-- $1: *$3" "$2" ;;
  esac
}

# meshes_of PLAN: those that are asked for, one a line.
meshes_of() {
  local meshes
  mapfile -t meshes < <(sed -n 's/^-- mesh: *//p' "$1")
  all_cases || [ ${#meshes[@]} -lt 2 ] || meshes=("${meshes[1]}")
  [ ${#meshes[@]} -eq 0 ] || printf '%s\n' "${meshes[@]}"
}

# check_plan PLAN: its meshes against one rank. Its status is 0 if they are all equal.
check_plan() {
  local plan=$1 stem base mesh name kind rounds second optimized=-O0
  stem=$(basename "$plan" .lua)
  rounds=$(sed -n 's/^-- rounds: *//p' "$plan")
  [ -n "$(meshes_of "$plan")" ] || return 0
  second=$(CASES= meshes_of "$plan")
  base=$stem.one
  make_and_run "$plan" "$base" plain || { [ "$failures" -eq 0 ]; return; }
  while read -ra mesh; do
    name=$(IFS=,; echo "${mesh[*]}")
    # With all cases the kernels of one mesh of each plan have the flags of users' programs.
    optimized=-O0
    ! all_cases || [ "${mesh[*]}" != "$second" ] || optimized=$released
    for kind in plain sanitized cuda; do
      runs_as $kind "$plan" "${mesh[*]}" || continue
      make_and_run "$plan" "$stem.$name.$kind" $kind "${mesh[@]}" &&
        compare "$stem.$name.$kind" "$base"
    done
  done < <(meshes_of "$plan")
  [ "$failures" -eq 0 ] || return 1
  [ -n "${EQUAL_KEEP:-}" ] || rm -rf "$WORK/$stem".*/
}

plans=()
for plan in tests/equal/*.lua; do
  [[ -n ${EQUAL_PLANS+set} && " $EQUAL_PLANS " != *" $(basename "$plan" .lua) "* ]] || plans+=("$plan")
done
seed=${EQUAL_SEED:-1}
count=${EQUAL_RANDOM:-$(all_cases && echo 8 || echo 2)}
automatic=${EQUAL_AUTO:-$(ci_cases && echo 4 || echo 1)}
# random_plan NAME SEED [auto]: a random plan. Some also run in another way.
random_plan() {
  local kind
  "$TOOLS/random_plan" "$2" 8 ${3:-} > "$WORK/$1.lua"
  plans+=("$WORK/$1.lua")
  case $2 in *5) kind=sanitized ;; *0) kind=cuda ;; *) return 0 ;; esac
  sed -i "s/^-- mesh: *\(.*\)/&\n-- $kind: \1/" "$WORK/$1.lua"
}
for ((i = seed; i < seed + count; i++)); do random_plan random$i $i; done
for ((i = seed; i < seed + automatic; i++)); do random_plan random_auto$i $i auto; done
# The meshes of `sanitized` and `cuda` lines must be meshes of the plan.
unknown=$(for plan in "${plans[@]}"; do
  sed -n 's/^-- \(sanitized\|cuda\): *//p' "$plan" | sort -u | comm -23 - <(sed -n 's/^-- mesh: *//p' "$plan" | sort)
done)
[ -z "$unknown" ] || fail "no plan has the mesh" $unknown
make_runtimes plain sanitized cuda
[ -z "${EQUAL_OVERLAP:-}" ] || cp -r tests/equal/kernels "$WORK/kernels" # of plans that are changed

# As many plans at once as there are cores. The output of each goes to a log.
for plan in "${plans[@]}"; do
  beside "$WORK/$(basename "$plan" .lua).log" check_plan "$plan"
done
all_are_done
cat "$WORK"/*.log
[ -z "${EQUAL_OVERLAP:-}" ] || [ -e "$WORK/overlapped" ] || fail "no collective runs beside arithmetic"
refused=0
for log in "$WORK"/random*.log; do [ ! -e "$log" ] || ! is_random_refusal "$log" || refused=$((refused + 1)); done
[ $((4 * refused)) -le ${#plans[@]} ] || fail "$refused plans are refused: too many"
finish "${#plans[@]} plans on $(for plan in "${plans[@]}"; do meshes_of "$plan"; done | wc -l) meshes, but for $refused refused"
