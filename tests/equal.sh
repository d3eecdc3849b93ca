#!/usr/bin/env bash
# Parallel equals dense: each plan of tests/equal, and some made at random, on each mesh that a line such
# as `-- mesh: dp=2 tp=3` names, comes to the losses of one rank, to its weights and its optimizer's
# state, or to its outputs. gcc and clang compile the programs here, with every warning an error; some run
# under the sanitizers too, and of some the CUDA text runs, on the stand-in. A plan made at random may ask
# for what cannot be computed in parts: that tpgen refuses it is counted, and is rare.
#   EQUAL_PLANS="mlp deep"   these plans alone; "" for none
#   EQUAL_RANDOM=200         so many plans from random_plan, not 8
#   EQUAL_SEED=1000          the first of them
#   EQUAL_SANITIZE=all       all pairs run under the sanitizers too, not only a few; none for none
#   EQUAL_CUDA=all           all pairs run on the stand-in too, not only a few; none for none
#   EQUAL_KEEP=1             the programs stay in the work directory; else only those that differ
. "$(dirname "$0")/common.sh"
local_mpi=yes
. "$root/tests/programs.sh"

# What float32 sums in another order may do, over at most some hundred summands and five steps. Losses
# are compared relative to themselves (same_losses), tensors relative to their largest element. Of a plan
# with a line `-- rounds: bfloat16` losses are a unit in its last place apart, and tensors as far as
# rounding to it grows: ranks round their parts of a sum, one rank the sum.
tensor_tolerance=2e-5
refusal='error: .* cannot be \(sharded over\|done: make it whole first\)\|error: async_tp: over \|error: prefetch = '
sanitized='^(sharded dp=4,keep=true|gather tp=3|classes tp=4|orders tp=3|orders_moves a=2,b=3|moves a=2,b=3|moves_narrow a=2,b=3|bfloat16 tp=3|mixed tp=2|layers tp=2|nested b=2,c=3|outputs dp=6|choices tp=3|transformer dp=2,tp=2|training tp=3|cast_of_one .*|kept_pieces dp=3,.*|random[0-9]*5 .*)$'
case ${EQUAL_SANITIZE:-} in all) sanitized=. ;; none) sanitized='^$' ;; esac
on_stand_in='^(chain dp=2,tp=2|sharded dp=3,checkpoint=layer|conflict dp=2,tp=2|data dp=4,zero=2|data copies=2,dp=2,how=shard|classes tp=4|orders dp=2,tp=2|orders_moves a=3,b=2|moves a=3,b=2|moves_greedy b=3,c=2|moves_narrow a=2,b=2|bfloat16 tp=3|mixed dp=2,tp=2,reduced=bfloat16|layers tp=3|means dp=2,tp=2|scatter tp=3|outputs tp=2|operators tp=2|masks tp=2|training dp=2,tp=2|epilogues dp=2,tp=2(,pieces=2)?|pieces tp=3,pieces=4|products dp=[23]|dot dp=2|dot dp=2|added_pieces tp=2,.*|kept_pieces a=2,.*|sequence_pieces .*|pending_most a=2|permuted_casts b=3|strided_rows dp=4|led_last_round .*|awaited_leader .*|random[0-9]*0 .*)$'
case ${EQUAL_CUDA:-} in all) on_stand_in=. ;; none) on_stand_in='^$' ;; esac

# The stand-in follows what kernels compiled so read and write: nothing is touched on two streams at once.
following=(-fsanitize=thread)

# is_refused PLAN: whether it is a random plan, and what tpgen has just said of it in its log is a reason.
is_refused() {
  [ "$1" = "$WORK/$(basename "$1")" ] &&
    grep -q "$refusal" "$WORK/$(basename "$1" .lua).log"
}

# make_and_run PLAN NAME KIND MESH...: the plan on a mesh, in $WORK/NAME.
make_and_run() {
  local plan=$1 to=$WORK/$2 kind=$3 size arguments=()
  shift 3
  for size; do arguments+=(-D "$size"); done
  watched=()
  [ "$kind" != cuda ] || { arguments+=(--target cuda); watched=("${following[@]}"); }
  "$TPGEN" "$plan" -o "$to" "${arguments[@]}" 2>&1 || {
    is_refused "$plan" || fail "$to: tpgen ended with status $?"
    return 1
  }
  make_ranks "$to" "$kind" || { fail "$to does not compile"; return 1; }
  start "$to" "$to" || { fail "$to ended with status $?"; return 1; }
}

# Runs of the one rank from weights that are a rounding error away, where there are none yet.
perturbed_runs() {
  local base=$WORK/$1 i
  [ ! -d "$base.like1.saved" ] || return 0
  start "$base" "$base.zero" --steps 0
  for i in 1 2 3; do
    "$TOOLS/perturb" "$base.zero.saved/model.safetensors" "$base.zero.saved/$i" $i $rounds
    start "$base" "$base.like$i" --weights "$base.zero.saved/$i" --no-verify
  done
}

# same_tensors NAME BASE FILE: what they have saved. Some gradients are sums of terms that cancel, all but
# or altogether: where the tolerance does not do, it is measured what a rounding error grows to.
same_tensors() {
  local files=("$WORK/$2.saved/$3" "$WORK/$1.saved/$3")
  "$TOOLS/compare_safetensors" "${files[@]}" $tensor_tolerance 2> "$WORK/$1.difference" && return
  if [ "$3" = model.safetensors ] && [ -f "${files[1]}" ] && perturbed_runs "$2"; then
    "$TOOLS/compare_safetensors" "${files[@]}" $tensor_tolerance \
      "$WORK/$2".like[123].saved/model.safetensors && return
  fi
  cat "$WORK/$1.difference"
  return 1
}

# compare NAME BASE: what two runs have left.
compare() {
  local file=outputs.safetensors
  if [ -f "$WORK/$2.saved/model.safetensors" ]; then
    file=model.safetensors
    same_losses "$1" "$WORK/$1.losses" "$WORK/$2.losses" ${rounds:+0.0039}
  fi
  same_tensors "$1" "$2" $file || fail "$1: other tensors"
}

# check_plan PLAN: all its meshes against one rank. Its status is 0 if they are all equal.
check_plan() {
  local plan=$1 stem base mesh name kind rounds
  stem=$(basename "$plan" .lua)
  rounds=$(sed -n 's/^-- rounds: *//p' "$plan")
  base=$stem.one
  make_and_run "$plan" "$base" plain || return
  while read -ra mesh; do
    name=$(IFS=,; echo "${mesh[*]}")
    for kind in plain sanitized cuda; do
      [ $kind != sanitized ] || [[ "$stem $name" =~ $sanitized ]] || continue
      [ $kind != cuda ] || [[ "$stem $name" =~ $on_stand_in ]] || continue
      make_and_run "$plan" "$stem.$name.$kind" $kind "${mesh[@]}" &&
        compare "$stem.$name.$kind" "$base"
    done
  done < <(sed -n 's/^-- mesh: *//p' "$plan")
  [ "$failures" -eq 0 ] || return 1
  [ -n "${EQUAL_KEEP:-}" ] || rm -rf "$WORK/$stem".*/
}

plans=()
for plan in tests/equal/*.lua; do
  [[ -n ${EQUAL_PLANS+set} && " $EQUAL_PLANS " != *" $(basename "$plan" .lua) "* ]] || plans+=("$plan")
done
seed=${EQUAL_SEED:-1}
for ((i = seed; i < seed + ${EQUAL_RANDOM:-8}; i++)); do
  "$TOOLS/random_plan" $i 8 > "$WORK/random$i.lua"
  plans+=("$WORK/random$i.lua")
done
for kind in plain sanitized cuda; do
  make_runtime $kind > "$WORK/runtime.log" 2>&1 || {
    cat "$WORK/runtime.log"
    fail "the runtime of $kind programs does not compile"
  }
done

# As many plans at once as there are cores. What each has to say stands in a log.
for plan in "${plans[@]}"; do
  beside "$WORK/$(basename "$plan" .lua).log" check_plan "$plan"
done
all_are_done
cat "$WORK"/*.log
refused=$({ grep -l "$refusal" "$WORK"/*.log || true; } | wc -l)
[ $((4 * refused)) -le ${#plans[@]} ] || fail "$refused plans are refused: too many"
finish "${#plans[@]} plans on $(grep -h '^-- mesh: ' "${plans[@]}" | wc -l) meshes, but for $refused refused"
