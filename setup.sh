#!/usr/bin/env bash
# From a bare Debian 12 to a built, shown or tested tpgen. Run it again at will: what is there stays.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: ./setup.sh build    install what is missing, build the compiler: build/tpgen
       ./setup.sh demo     and generate, build and train the toy on two ranks: build/demo
       ./setup.sh quick    and run the quick tests, for a minute or two
       ./setup.sh test     and run all tests but the long ones
       ./setup.sh ci       and those, and builds by other compilers and under sanitizers: what CI runs
       ./setup.sh soak     and run all cases of all tests, and the long ones, for hours
EOF
}

say() { printf '%s\n' "$*"; }
die() { printf 'setup.sh: %s\n' "$*" >&2; exit 1; }

packages=(gcc g++ make cmake ninja-build pkg-config liblua5.4-dev libjansson-dev libminizip-dev zlib1g-dev libcmocka-dev
  libopenblas-dev libdnnl-dev libonig-dev libutf8proc-dev node-d3)
test_packages=(libopenmpi-dev openmpi-bin clang clang-format libomp-dev gfortran curl ccache xz-utils)

ci_packages=(chromium chromium-driver python3) # a browser looks at the pages of --report
soak_packages=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge # jobs in a real queue
  mpich libmpich-dev)

# The packages of the arguments that are not installed.
missing() {
  local package
  for package; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null)" = installed ] ||
      echo "$package"
  done
}

install_packages() {
  local absent as_root=()
  if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
    die "this system has no apt-get. What tpgen needs, by Debian's names: $*. With those" \
      "installed: cmake --preset default && cmake --build build"
  fi
  mapfile -t absent < <(missing "$@")
  [ ${#absent[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo > /dev/null || die "needs these packages, and neither is this root nor is" \
      "there sudo. As root: apt-get install ${absent[*]}"
    as_root=(sudo)
  fi
  say "installing ${absent[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120)
  "${apt[@]}" update || say "setup.sh: the list of packages could not be renewed; going on with the old one" >&2
  "${apt[@]}" install -y --no-install-recommends "${absent[@]}" > /dev/null ||
    die "apt-get could not install ${absent[*]}. Is there a network? Once they are installed," \
      "./setup.sh goes on without it"
}

# build TARGET
build() {
  local log
  # All that there is has tests, too, if their packages are there now.
  if [ ! -f build/build.ninja ] || [ "$1" = all ]; then
    log=$(cmake --preset default 2>&1) || {
      printf '%s\n' "$log" >&2
      die "cmake could not configure build/: see above"
    }
  fi
  cmake --build build --target "$1"
}

demo() {
  local first last
  say "" "generating: build/tpgen plans/toy.lua -o build/demo"
  build/tpgen plans/toy.lua -o build/demo
  say "training:   build/demo/run.sh --steps 10"
  rm -f build/demo.jsonl
  build/demo/run.sh --steps 10 --metrics "$PWD/build/demo.jsonl"
  first=$(sed -n '1s/.*"loss": *\([^,}]*\).*/\1/p' build/demo.jsonl)
  last=$(sed -n '$s/.*"loss": *\([^,}]*\).*/\1/p' build/demo.jsonl)
  awk -v a="$first" -v b="$last" 'BEGIN { exit !(b + 0 < a + 0) }' ||
    die "the loss did not fall: $first, then $last"
  cat <<EOF

The loss fell from $first to $last in 10 steps, on two ranks. The program that did it is in build/demo:
  plan.txt     what was decided: placements, collectives, memory
  step.c       a step of training, as both ranks run it: forward, backward, update
  kernels.c    its fused kernels
  rank0.c      what is rank 0's alone; diff it with rank1.c
It came from plans/toy.lua. Change that, or try: build/tpgen plans/toy.lua -D tp=4 -o build/four
EOF
}

# run_tests OPTIONS...: the tests that these options of ctest choose. Three times as many at once as there are
# cores: each has times in which it keeps but one busy, or none.
run_tests() {
  local status=0 log=build/tests.log
  ctest --test-dir build --output-on-failure --no-label-summary -j $((3 * $(nproc))) "$@" 2>&1 | tee "$log" ||
    status=1
  grep -E '^[0-9]+% tests passed' "$log" | tail -n 1 || status=1
  grep -E '^[a-z0-9_]+: FAILED: |^\[  FAILED  \] ' "$log" | head -n 40 || true # once more, where they are seen
  return $status
}

[ $# -eq 1 ] || { usage >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")"
case $1 in
build)
  install_packages "${packages[@]}"
  build tpgen
  say "built build/tpgen"
  ;;
demo)
  install_packages "${packages[@]}"
  build tpgen
  demo
  ;;
quick)
  install_packages "${packages[@]}" "${test_packages[@]}"
  build all
  run_tests -L quick
  ;;
test)
  install_packages "${packages[@]}" "${test_packages[@]}"
  build all
  run_tests
  ;;
ci)
  install_packages "${packages[@]}" "${test_packages[@]}" "${ci_packages[@]}"
  build all
  CASES=ci run_tests -C ci
  ;;
soak)
  install_packages "${packages[@]}" "${test_packages[@]}" "${ci_packages[@]}" "${soak_packages[@]}"
  build all
  CASES=all run_tests -C soak
  ;;
-h | --help) usage ;;
*) usage >&2; exit 2 ;;
esac
