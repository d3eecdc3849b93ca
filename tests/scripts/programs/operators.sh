#!/usr/bin/env bash
# Every operator, in running programs: the outputs of each case of tests/operators, and the gradients of its
# inputs, are PyTorch's (tests/golden/operators), on one rank and on meshes with differently sharded inputs. gcc
# and clang compile the programs, with every warning an error; some run under the sanitizers, and the CUDA text
# of some runs on the stand-in.
#   CASES=all                  all programs, as in a soak, not one of a kind
#   OPERATORS="views images"   these families alone
#   OPERATORS_ON="tp=1"        only programs that match this extended regular expression
#   OPERATORS_KEEP=1           the programs stay in the work directory; else only those that differ
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"

# The tolerance for float32 sums of some hundred terms in another order, relative to the largest magnitude in
# the tensor.
tolerance=5e-6
facts=$root/tests/golden/operators
programs=(
  "plain tp=1"
  "plain tp=3 place=mixed"
)
! all_cases || programs=(
  "plain tp=1"
  "plain tp=2 place=0"
  "plain tp=2 place=pending"
  "sanitized tp=3 place=mixed"
  "cuda tp=2 place=mixed"
  "plain tp=2 place=1"
  "plain dp=2 tp=2 place=2"
  "plain tp=2 place=2 mode=infer"
  "cuda tp=1"
)
# The flags of users' programs only in CI: compilation takes most of the time here.
optimization() {
  case $1 in "plain tp=1") ci_cases && echo "$released" || echo -O0 ;; *) echo -O0 ;; esac
}

# check FAMILY KIND ARGUMENTS...: generates the program, runs it, and compares its results.
check() {
  local family=$1 kind=$2 name=$1.$2 value arguments=() file=model facts_of=trained losses
  local files=(--data "$facts/$family.data.safetensors")
  losses=$(sed -n "s/^$family //p" "$facts/losses" | tr ' ' '\n')
  shift 2
  for value; do
    arguments+=(-D "$value")
    name+=.$value
    [ "$value" != mode=infer ] || file=outputs facts_of=outputs
  done
  [ "$kind" != cuda ] || arguments+=(--target cuda)
  [ $file = outputs ] || files+=(--steps "$(wc -l <<< "$losses")")
  [ ! -f "$facts/$family.weights.safetensors" ] || files+=(--weights "$facts/$family.weights.safetensors")
  local to=$WORK/$name
  "$TPGEN" "$WORK/$family.lua" -o "$to" "${arguments[@]}" ||
    { fail "$name: tpgen ended with status $?"; return; }
  make_ranks "$to" "$kind" || { fail "$name does not compile"; return; }
  start "$to" "$to" "${files[@]}" || { fail "$name ended with status $?"; return; }
  "$TOOLS/compare_safetensors" "$facts/$family.$facts_of.safetensors" "$to.saved/$file.safetensors" \
    $tolerance || { fail "$name: other tensors"; return; }
  [ $file = outputs ] || same_losses "$name" "$to.losses" <(echo "$losses")
  [ -n "${OPERATORS_KEEP:-}" ] || rm -rf "$to" "$to".*
}

# Operators of the table, functions and modules without a case. They do not fail the test: whether a new row is
# right is for its reference to show.
not_run() {
  local family name
  for family in $families; do
    "$TPGEN" "$WORK/$family.lua" --dump=redistribute -D tp=2 -D place=mixed
  done > "$WORK/operations"
  for name in $(sed -nE 's/^OP\((\w+), *"[^"].*/\1/p' gen/ir/{ops,row_ops,generate_ops,float8_ops}.h); do
    grep -q " = $name(" "$WORK/operations" || echo "$name"
  done
  echo 'for k in pairs(F) do print("F." .. k) end for k in pairs(nn) do print("nn." .. k) end' \
    > "$WORK/names.lua"
  for name in $("$TPGEN" "$WORK/names.lua" -o "$WORK/names" 2> /dev/null); do
    grep -qE "[.:]${name#*.}\b" tests/operators/*.lua || echo "$name"
  done
}

families=$(operator_plans)
families=${OPERATORS:-$families}
make_runtimes plain sanitized cuda
count=0
for family in $families; do
  for program in "${programs[@]}"; do
    [[ "$program" =~ ${OPERATORS_ON:-.} ]] || continue
    count=$((count + 1))
    optimized=$(optimization "$program")
    # shellcheck disable=SC2086
    beside "$WORK/$count.log" check $family $program
  done
done
all_are_done
[ $count -gt 0 ] || fail "no program is asked for"
cat /dev/null "$WORK"/*.log 2> /dev/null || true
[ -n "${OPERATORS:-}" ] || for name in $(not_run); do echo "  no case runs $name"; done
finish "$count programs come to PyTorch's values and gradients"
