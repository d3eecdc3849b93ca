#!/usr/bin/env bash
# An OpenBLAS that does not know the processor computes as for one of 2004: a program starts again with the best
# products that the processor has, once, and with its own arguments. Who sets OPENBLAS_CORETYPE is obeyed.
. "$(dirname "$0")/../common.sh"

unset OPENBLAS_CORETYPE
generate toy -D tp=1
"$WORK/toy/run.sh" --steps 2 > "$WORK/before" 2>&1 || fail "the toy does not run: $(cat "$WORK/before")"
gcc -O1 -shared -fPIC -o "$WORK/old_blas.so" tests/tools/old_blas.c || fail "tests/tools/old_blas.c does not compile"
best=$(grep -m 1 '^flags' /proc/cpuinfo | tr ' ' '\n' | awk '
  { has[$0] = 1 }
  END { if (has["avx512f"] && has["avx512dq"] && has["avx512cd"] && has["avx512bw"] && has["avx512vl"]) print "SkylakeX"
        else if (has["avx2"] && has["fma"]) print "Haswell" }')

# starts EXPECTED VARIABLES...: the starts of a run, and that it does its two steps.
starts() {
  local expected=$1
  shift
  rm -f "$WORK/starts"
  env "$@" LD_PRELOAD="$WORK/old_blas.so" STARTS="$WORK/starts" "$WORK/toy/build/rank0" --steps 2 > "$WORK/out" 2>&1 ||
    fail "$*: status $?: $(cat "$WORK/out")"
  [ "$(paste -sd , "$WORK/starts")" = "$expected" ] || fail "$*: it started for $(paste -sd , "$WORK/starts"), not $expected"
  [ "$(grep -c '^step:' "$WORK/out")" = 2 ] || fail "$*: it printed $(cat "$WORK/out")"
}
starts "as it likes${best:+,$best}"
starts Haswell OPENBLAS_CORETYPE=Haswell
finish "one more start, for ${best:-none}"
