#!/usr/bin/env bash
# tpgen and the unit tests under the address and undefined-behaviour sanitizers. Leaks are not looked
# for: what tpgen takes it keeps until it ends.
. "$(dirname "$0")/common.sh"

export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
build=$(dirname "$WORK")/sanitize-build
cmake --preset sanitize -B "$build" > "$WORK/log" 2>&1 &&
  cmake --build "$build" --parallel 2 >> "$WORK/log" 2>&1 || {
  tail -n 60 "$WORK/log"
  fail "the build failed: see above"
  finish
}
# In that build: all cmocka programs, the pairs of plans and dumps, and fewer of the mutants.
MUTANTS=200 ctest --test-dir "$build" --output-on-failure -j 2 -L 'unit|runtime' > "$WORK/log" 2>&1 || {
  cat "$WORK/log"
  fail "unit tests"
}
MUTANTS=200 ctest --test-dir "$build" --output-on-failure -R '^(pairs|mutate)$' > "$WORK/log" 2>&1 || {
  cat "$WORK/log"
  fail "scripts"
}
for plan in plans/*.lua; do
  for target in cpu cuda; do
    "$build/tpgen" "$plan" -o "$WORK/out" --target $target || fail "$plan for $target: status $?"
    rm -rf "$WORK/out"
  done
done
finish "no sanitizer had anything to say"
