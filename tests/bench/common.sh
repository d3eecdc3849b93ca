# Common to the benches; each sources it first. From the environment:
#   TPGEN    the compiler   (build/tpgen)
#   PYTHON   a python with what the peer needs   (python3)
#   SHORT    1: sizes of a second, one round: whether the bench runs at all (tests/scripts/programs/benches.sh); its figures mean nothing
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
TPGEN=${TPGEN:-$root/build/tpgen}
PYTHON=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

is_short() { [ -n "${SHORT:-}" ]; }
! is_short || export CMAKE_ARGS="-DCMAKE_C_FLAGS=-O0 ${CMAKE_ARGS:-}"

# short_or SHORT LONG: the one of a short run, or the other.
short_or() { is_short && echo "$1" || echo "$2"; }

# has_peer NAME COMMAND...: whether the command says that the peer is there. Without it a short run goes on, and any other ends.
has_peer() {
  "${@:2}" > /dev/null 2>&1 && return
  echo "$(basename "$0"): $1 is not installed: left out" >&2
  is_short || exit 1
  return 1
}
has_modules() { has_peer "$1" "$PYTHON" -c "import $1"; }

# median FILE: of its numbers, one a line.
median() { sort -g "$1" | awk '{ a[NR] = $1 } END { print (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'; }

# tell_memory PROGRAM METRICS: what a rank of it takes at its peak, of which MPI, BLAS and code are a part, and what its plan
# says of the model; in a pipeline of the stage that has most.
tell_memory() {
  local planned
  planned=$(sed -n 's/^ *"\(total\|memory_of_rank\)": *\([0-9][0-9]*\).*/\2/p' "$1/plan.json" | sort -n | tail -n 1)
  awk -v planned="$planned" '
    match($0, /"memory": *[0-9]+/) { taken = substr($0, RSTART, RLENGTH); sub(/.*[ :]/, "", taken) }
    END { printf "memory of a rank: %.0f MiB at its peak, %.0f MiB by its plan\n", taken / 1048576, planned / 1048576; exit !taken || !planned }' "$2"
}
