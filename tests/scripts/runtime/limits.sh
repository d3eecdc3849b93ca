#!/usr/bin/env bash
# A job within the limits of a shell: of memory (-v), of descriptors (-n), of a file's size (-f), of the stack (-s), and without
# /proc. It has the losses of a run without limits, or ends soon, with a status and one message: none waits for ever, and none
# ends in silence. On one rank, and on two that share memory.
. "$(dirname "$0")/../common.sh"
transport=shared
. "$root/tests/scripts/programs.sh"
make_runtimes plain
export OMP_NUM_THREADS=1
for ranks in 1 2; do
  make of$ranks plain plans/llama3.lua -D dim=256 -D n_layers=1 -D hidden=512 -D vocab=256 -D tp=$ranks || finish
  as_built "$WORK/of$ranks"
  "$WORK/of$ranks/run.sh" --steps 2 --metrics "$WORK/of$ranks.jsonl" > "$WORK/of$ranks.out" 2>&1 || fail "$ranks ranks, no limit"
  losses_of "$WORK/of$ranks.jsonl" > "$WORK/of$ranks.losses"
done

# within RANKS PATTERN LIMIT COMMAND...: runs COMMAND run.sh with the limit. If the run fails, one message matches the pattern.
within() {
  local ranks=$1 pattern=$2 limit=$3 name status=0 began=${EPOCHREALTIME/./}
  name=$ranks.${limit// /}
  shift 3
  # A limit of a file's size holds for the output, too, unless it is a pipe.
  # shellcheck disable=SC2086
  (ulimit $limit && exec timeout 30 "$@" "$WORK/of$ranks/run.sh" --steps 2 --metrics "$WORK/$name.jsonl" --save "$WORK/$name.saved" --deadline 5 < /dev/null 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-) \
    2>&1 | cat > "$WORK/$name.out" || status=$?
  printf '  %-24s status %3d, %4d/100 s  %s\n' "$ranks, $limit" $status $(((${EPOCHREALTIME/./} - began) / 10000)) \
    "$(grep -m 1 -E 'error:|run.sh:|failed at' "$WORK/$name.out")"
  if [ $status -eq 0 ]; then
    losses_of "$WORK/$name.jsonl" | cmp -s - "$WORK/of$ranks.losses" || fail "$ranks ranks, $limit: other losses"
    return
  fi
  [ $status -ne 124 ] || fail "$ranks ranks, $limit: it does not end"
  # Each process tells by itself which library it cannot load.
  [ "$(grep -E 'error|run.sh:|failed|annot|fork' "$WORK/$name.out" | sed 's/.*shared libraries:/loader:/' | sort -u | grep -c .)" = 1 ] ||
    { fail "$ranks ranks, $limit: not one message"; cat "$WORK/$name.out"; }
  grep -qE "$pattern" "$WORK/$name.out" || { fail "$ranks ranks, $limit: other words"; cat "$WORK/$name.out"; }
}
for ranks in $([ -n "${CASES:-}" ] && echo 1) 2; do
  for kilobytes in 20000 60000 100000 150000 200000 300000 600000; do
    within $ranks 'memory|annot allocate|failed to map segment' "-v $kilobytes"
  done
  for files in 7 8 9 10 12 16; do within $ranks 'Too many open files|too few open files' "-n $files"; done
  for blocks in 0 1 8 300 3000; do within $ranks 'File too large|a file may not be so large' "-f $blocks"; done
  for kilobytes in 32 64 128 256; do within $ranks 'stack|memory' "-s $kilobytes"; done
done
finish "the limits of a shell"
