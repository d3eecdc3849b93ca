# Common to the test scripts; each sources it first. From the environment, set by ctest:
#   TPGEN   the compiler under test             else build/tpgen
#   TOOLS   the folder of the tests' programs   else build/tests
#   WORK    this script's own directory         else build/tests/work/SCRIPT; it is made anew
#   TPGEN_GOLDEN  the tables of facts           else tests/golden
# A script counts its failures with `fail` and ends with `finish`.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
script=$(basename "$0" .sh)
TPGEN=$(realpath "${TPGEN:-$root/build/tpgen}")
TOOLS=$(realpath "${TOOLS:-$root/build/tests}")
WORK=$(realpath -m "${WORK:-$root/build/tests/work/$script}")
golden=$(realpath "${TPGEN_GOLDEN:-$root/tests/golden}")
rm -rf "$WORK"
mkdir -p "$WORK"
cd "$root"

# Beyond one case of each kind, cases run only where CASES=all, as in ./setup.sh soak: `more beside LOG COMMAND...`.
# Those that repeat a case in another way (clang, a sanitizer) run where CASES=ci, too, as in ./setup.sh ci.
[ -z "${SOAK:-}" ] || export CASES=all
all_cases() { [ "${CASES:-}" = all ]; }
ci_cases() { [ -n "${CASES:-}" ]; }
more() { ! all_cases || "$@"; }
in_ci() { ! ci_cases || "$@"; }

# run.sh builds the runtime into each program: ccache compiles equal text once for all scripts of a build. Its files
# are this machine's (-march=native).
if command -v ccache > /dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_NOHASHDIR=1
  export CCACHE_DIR=$TOOLS/ccache CCACHE_BASEDIR=$WORK CCACHE_COMPILERCHECK=content
fi

failures=0
fail() {
  printf '%s: FAILED: %s\n' "$script" "$*"
  failures=$((failures + 1))
}
# The processor time is that of this script's children: the log of a run has what each script costs.
finish() {
  [ "$failures" -eq 0 ] || exit 1
  printf '%s: %s\n' "$script" "$*"
  times > "$WORK/times" # not in a pipe: a subshell has children of its own
  awk -F '[ms ]+' -v script="$script" 'NR == 2 { printf "%s: %.0f s of processor time\n", script, 60 * ($1 + $3) + $2 + $4 }' "$WORK/times"
}

# with_defaults ARRAY ARGUMENTS...: sets `arguments` to these, and to the definitions of the array that they do not replace:
# tpgen refuses a name that is given twice.
with_defaults() {
  local -n defaults=$1
  local definition
  arguments=("${@:2}")
  for definition in "${defaults[@]}"; do
    [[ $definition == -D || " ${*:2} " == *" ${definition%%=*}="* ]] || arguments+=(-D "$definition")
  done
}

# The arguments in a plan's first line: `-- args: -D tp=4`.
plan_args() { sed -n '1s/^-- args: *//p' "$1"; }

# The messages, one a line, that may refuse a random plan, and whether a log has one of them.
random_refusals=$root/tests/random/refusals.txt
is_random_refusal() { grep -F ': error: ' "$1" | finds -Ff "$random_refusals"; }

# finds ARGUMENTS...: whether grep finds it in standard input. Unlike grep -q it reads all of it: under pipefail,
# the signal that ends the writer where nobody reads on would count as not found.
finds() { grep "$@" > /dev/null; }

# A hash of all names and contents under a directory.
hash_of() {
  (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | sha256sum
}

# generate NAME ARGUMENTS...: the toy plan into $WORK/NAME.
generate() {
  local name=$1
  shift
  "$TPGEN" plans/toy.lua -o "$WORK/$name" "$@" || fail "$name: tpgen ended with status $?"
}

# train NAME ARGUMENTS...: runs $WORK/NAME, with its metrics in $WORK/NAME.jsonl and its output in NAME.log: by
# run.sh, or as one program with all ranks, if it was built so (programs.sh).
train() {
  local name=$1 program=run.sh
  shift
  [ ! -e "$WORK/$name/ranks" ] || program=ranks
  "$WORK/$name/$program" --metrics "$WORK/$name.jsonl" "$@" > "$WORK/$name.log" 2>&1 || {
    fail "$name: $program $* ended with status $?"
    tail -n 30 "$WORK/$name.log"
  }
}

# The losses in a file of metrics, and those of the golden file, one a line.
losses_of() { sed -n 's/.*"loss": *\([-+.0-9eE]*\)[,}].*/\1/p' "$1"; }
golden_losses() { sed 's/.*"losses": *\[\([^]]*\)\].*/\1/' "$golden/toy/losses.json" | tr -d ' ' | tr , '\n'; }

# same_losses NAME FILE1 FILE2 [WITHIN]: both have the same number of losses, each within 1e-5 of the second
# file's.
same_losses() {
  paste "$2" "$3" | awk -v name="$1" -v within="${4:-1e-5}" '
    function abs(x) { return x < 0 ? -x : x }
    NF != 2 { print "  " name ": one has more losses than the other"; bad = 1; exit }
    { difference = abs($1 - $2) / abs($2); if (difference > worst) worst = difference }
    !(difference <= within) { print "  " name ": step " NR ": " $1 ", expected " $2; bad = 1 }
    END {
      if (NR == 0) { print "  " name ": no losses"; bad = 1 }
      if (bad) exit 1
      printf "  %-16s %d losses, at most %.1e apart\n", name, NR, worst
    }' || fail "$1: other losses"
}
# Trains on the golden weights and data, and compares the losses.
train_golden() {
  local name=$1
  shift
  train "$name" --weights "$golden/toy/toy.safetensors" --data "$golden/toy/toy.safetensors" "$@"
  [ -f "$WORK/$name.jsonl" ] || return 0
  losses_of "$WORK/$name.jsonl" > "$WORK/$name.losses"
  golden_losses > "$WORK/golden.losses"
  same_losses "$name" "$WORK/$name.losses" "$WORK/golden.losses"
}

# beside LOG COMMAND...: runs it in the background, `at_once` of them at once, as many as there are cores unless
# a script says otherwise; its output goes to LOG. It fails if the command fails or something in it calls fail.
at_once=$(nproc)
running=0
beside() {
  local log=$1
  shift
  [ $running -lt "$at_once" ] || one_is_done
  (failures=0; "$@"; [ $failures -eq 0 ]) > "$log" 2>&1 &
  running=$((running + 1))
}
one_is_done() {
  wait -n || failures=$((failures + 1))
  running=$((running - 1))
}
all_are_done() { while [ $running -gt 0 ]; do one_is_done; done; }

# Makes plans of the families of cases in tests/operators, $WORK/FAMILY.lua, and prints their names.
operator_plans() {
  local file
  cp -r tests/operators/kernels "$WORK"
  for file in tests/operators/*.lua; do
    file=$(basename "$file" .lua)
    [ "$file" != frame ] || continue
    cat tests/operators/{frame,"$file"}.lua > "$WORK/$file.lua"
    echo "$file"
  done
}

# A tokenizer whose tokens are the bytes from 0 to 127 and letters of two bytes.
byte_tokenizer() {
  printf '{"model": {"type": "BPE", "byte_fallback": true, "unk_token": "<0x00>", "merges": [], "vocab": {'
  for ((i = 0; i < 128; i++)); do printf '%s"<0x%02X>": %d' "$([ $i = 0 ] || echo ', ')" $i $i; done
  for ((i = 128; i < 256; i++)); do printf ', "\\u%04x": %d' $((i + 128)) $i; done
  printf '}}, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}}'
}
