#!/usr/bin/env bash
# Plans that combine features: rows of covering/features.txt that have every pair of two features' values, each as a plan that
# really runs and equals one rank: losses, norms of gradients, validations, metrics, saved weights and states, and what is
# loaded, saved and exported again. A combination may be refused, by a message with the plan's line.
#   CASES=ci            the first 57 rows, always the same, and those of once_failed.txt; without it the first 8; CASES=all: all pairs
#   SOAK=1              and triples, COVERING_ROWS of them, with a seed of the day
#   COVERING_ROWS=200   so many rows
#   COVERING_SEED=7     of these rows
#   COVERING_STRENGTH=3 triples
#   COVERING_FILE=FILE  the rows of this file
#   COVERING_KIND=sanitized   all as this kind: plain, cuda or sanitized (or library, of rows that have a meaning then)
#   COVERING_RESULTS=FILE     what was tried before, with which rows are chosen, and to which this adds
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
export OMP_NUM_THREADS=1 NVIDIA_TF32_OVERRIDE=0
plan=tests/covering/plan.lua features=tests/covering/features.txt
cover=$TOOLS/cover
strength=${COVERING_STRENGTH:-2} seed=${COVERING_SEED:-1}
results=${COVERING_RESULTS:-$WORK/results}
touch "$results"
# The two transports have runtimes of their own.
for transport in mpi shared; do
  (WORK=$WORK/$transport && mkdir -p "$WORK" && make_runtimes plain sanitized cuda library)
done

value_in() { # FEATURE ROW...
  local word
  for word in "${@:2}"; do [ "${word%%=*}" != "$1" ] || { echo "${word#*=}"; return; }; done
}

# A refusal names a line of the plan.
is_refusal() { grep -q "^$plan:[0-9]*: error: " "$1"; }

# try NUMBER ROW...: prints "ok", "refused" or "failed", the row, and a message.
try() {
  local name=$1 kind transport of files validate arguments=() word WORK=$WORK
  shift
  kind=${COVERING_KIND:-$(value_in kind "$@")} transport=$(value_in transport "$@") files=$(value_in files "$@") validate=$(value_in validate "$@")
  kind=${kind:-plain} transport=${transport:-mpi}
  [[ $kind != cuda && $kind != library ]] || transport=mpi
  WORK=$WORK/$transport
  for word; do arguments+=(-D "$word"); done
  case $(value_in loss "$@") in mse) of=mse ;; ignored) of=ignored ;; *) of=labels ;; esac
  local one=$WORK/$name.one many=$WORK/$name why
  if why=$(compare_row "$name" "$kind" 2>&1); then
    printf 'ok\t%s\t\n' "$*"
    rm -rf "$one"* "$many".* "$many"
  elif [ -e "$many.refused" ] && is_refusal "$many.refused"; then
    printf 'refused\t%s\t%s\n' "$*" "$(grep -m 1 'error: ' "$many.refused")"
    rm -rf "$one"* "$many"
  elif grep -q '\(for which there is no room\|MiB to compile\): .* --ranks' <<< "$why"; then
    printf 'refused\t%s\t%s\n' "$*" "unlike ranks of more text than tpgen writes at once"
    rm -rf "$one"* "$many".* "$many"
  elif grep -q 'local MPI: .* ranks, at most' <<< "$why"; then
    printf 'refused\t%s\t%s\n' "$*" "the tests' MPI has 64 ranks at most"
    rm -rf "$one"* "$many".* "$many"
  else
    printf 'failed\t%s\t%s\n' "$*" "$(tail -n 3 <<< "$why" | tr '\t\n' '  ')"
    printf '%s: FAILED: %s\n%s\n' "$script" "$*" "$why" > "$many.why"
  fi
}

# told_by RUN KEY...: these numbers of a run, which ranks must have as one rank has them.
told_by() {
  local key
  for key in "${@:2}"; do numbers "$key" "$1.jsonl"; done
}

# What a library has beside a program's losses and files: a forward has the numbers of the step that follows it, and a second
# model that loads what the first has saved saves the same.
same_calls() {
  local keys=(loss spread most)
  ! [[ " ${arguments[*]} " == *" accumulate="* ]] || keys=(loss) # metrics are of a step then
  if ! is_other_step && numbers forward_loss "$many.jsonl" | finds .; then
    same_losses "$name, forward" <(told_by "$many" "${keys[@]/#/forward_}") <(told_by "$many" "${keys[@]}") "$within"
  fi
  "$TOOLS/compare_safetensors" "$many.saved/model.safetensors" "$many.saved.second/model.safetensors" 0 ||
    fail "the second model saves other numbers"
}

# Whether a step's loss is another one than the mean of its batches' forwards: they drop nothing out, and count their own labels.
is_other_step() {
  local row=" ${arguments[*]} "
  [[ $row == *" drop=dropout "* ]] || [[ $row == *" loss="@(ignored|computed)" "* && $row == *" accumulate="@(2|each)" "* ]]
}

# make_inputs: the arguments by which the programs read the row's samples, two batches and a half.
make_inputs() {
  inputs=()
  [ -n "$files$validate" ] || return 0
  local batch
  batch=$(grep -A 2 '{{"input"' "$one/tensors.h" | sed -n 's/^ *2, {\([0-9]*\), .*/\1/p' | head -n 1)
  mkdir -p "$one.samples"
  "$TOOLS/samples" "$one.samples" "$batch" || return 1
  [ -z "$files" ] || inputs=(--data "$one.samples/$of.train.safetensors")
  [ -z "$validate" ] || inputs+=(--validate "$one.samples/$of.valid.safetensors")
}

# same_told: the numbers of many ranks are those of one, or as near as those of one rank that begins a rounding error away.
same_told() {
  local i
  same_numbers "$within" > "$many.told.apart" && return
  if perturbed_runs "$name.one"; then
    for i in 1 2 3 4; do told_by "$one.like$i" "${keys[@]}" > "$one.like$i.told"; done
    same_numbers "$within" "$one".like[1-4].told && return
  fi
  cat "$many.told.apart"
  fail "$name: other numbers"
}

# same_numbers WITHIN LIKE...: whether they are so near, in relation to the number, or ten times as near as these others.
same_numbers() {
  paste "$many.told" "$one.told" "${@:2}" | awk -v within="$1" -v columns=$(($# + 1)) '
    function abs(x) { return x < 0 ? -x : x }
    NF != columns { print "  one has more numbers than the other"; bad = 1; exit }
    {
      allowed = within * abs($2)
      for (i = 3; i <= NF; i++) if (10 * abs($i - $2) > allowed) allowed = 10 * abs($i - $2)
    }
    !(abs($1 - $2) <= allowed) { print "  number " NR ": " $1 ", expected " $2; bad = 1 }
    END { exit bad || NR == 0 }'
}

compare_row() {
  local name=$1 kind=$2 within=1e-5 keys=(loss grad_norm validation_loss spread most) rounds='' tensor_tolerance=$tensor_tolerance watched=() optimized=-O0
  "$TPGEN" $plan -o "$one" "${arguments[@]}" -D one=1 > "$many.refused" 2>&1 || { cat "$many.refused"; return 1; }
  if [ "$kind" = cuda ]; then
    "$TPGEN" $plan -o "$many" "${arguments[@]}" --target cuda > "$many.refused" 2>&1 || { cat "$many.refused"; return 1; }
    watched=(-fsanitize=thread) optimized=-O1 # without it attention's kernels run four times as long
  elif [ "$kind" = library ]; then
    "$TPGEN" $plan -o "$many" "${arguments[@]}" --emit library > "$many.refused" 2>&1 || { cat "$many.refused"; return 1; }
    keys=(loss spread most)
  else
    "$TPGEN" $plan -o "$many" "${arguments[@]}" > "$many.refused" 2>&1 || { cat "$many.refused"; return 1; }
  fi
  rm "$many.refused"
  make_ranks "$many" "$kind" || { echo "it does not compile"; return 1; }
  watched=()
  make_ranks "$one" plain || { echo "one rank does not compile"; return 1; }
  make_inputs || { echo "no samples"; return 1; }
  start "$one" "$one" "${inputs[@]}" || { echo "one rank does not run"; return 1; }
  start "$many" "$many" "${inputs[@]}" || { echo "it does not run"; return 1; }
  [[ " ${arguments[*]} " != *" precision=bf16 "* ]] || within=0.02 rounds=bfloat16
  told_by "$one" "${keys[@]}" > "$one.told"
  told_by "$many" "${keys[@]}" > "$many.told"
  failures=0
  same_told
  [ -n "$rounds" ] || same_tensors "$name" "$name.one" model.safetensors || fail "other tensors"
  [ "$kind" != library ] || same_calls
  same_files "$name" "$name.one" "${inputs[@]}"
  [ "$failures" -eq 0 ]
}

rows=${COVERING_ROWS:-}
if [ -z "$rows" ] && ! all_cases; then rows=$(ci_cases && echo 57 || echo 8); fi
if [ -n "${COVERING_FILE:-}" ]; then
  cp "$COVERING_FILE" "$WORK/rows"
else
  "$cover" $features rows "$strength" "$seed" "$results" > "$WORK/covering"
  head -n "${rows:-1000000}" "$WORK/covering" > "$WORK/rows"
  [ -n "${COVERING_ROWS:-}" ] || ! ci_cases || cat tests/covering/once_failed.txt >> "$WORK/rows"
fi
number=0
while read -r -a row; do
  number=$((number + 1))
  beside "$WORK/$number.result" try $number "${row[@]}"
done < "$WORK/rows"
all_are_done
for ((i = 1; i <= number; i++)); do cat "$WORK/$i.result"; done >> "$results"
cat "$WORK"/{mpi,shared}/*.why 2> /dev/null || true
"$cover" $features tell "$strength" "$results" > "$WORK/told"
if all_cases; then cat "$WORK/told"; else head -n 1 "$WORK/told"; fi
failed=$(grep -c '^failed' "$results") || true
[ "$failed" -eq 0 ] || fail "$failed rows"
finish "$number rows: $(grep -c '^ok' "$results") equal one rank, $(grep -c '^refused' "$results" || true) are refused"
