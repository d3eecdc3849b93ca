#!/usr/bin/env bash
# The benches run: each in its short form, of sizes of a second, without the peers that are not installed. Not this_machine.sh, which
# measures the machine for minutes first.
. "$(dirname "$0")/../common.sh"
export SHORT=1 TPGEN
ran=0
for bench in tests/bench/*.sh; do
  name=$(basename "$bench" .sh)
  arguments=()
  case $name in
  common | this_machine) continue ;;
  gpu) arguments=(generate) && export PROGRAMS=$WORK/gpu ;;
  esac
  ran=$((ran + 1))
  timeout 300 bash "$bench" "${arguments[@]}" > "$WORK/$name.log" 2>&1 < /dev/null || {
    tail -n 20 "$WORK/$name.log"
    fail "$bench ended with status $?"
  }
done
grep -h 'left out' "$WORK"/*.log || true
finish "$ran benches run in their short form"
