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
