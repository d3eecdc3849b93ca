#!/usr/bin/env bash
# Recomputation changes no bit: plans of tests/equal with checkpoint=layer, on some of their meshes, give the
# same losses, weights and optimizer's state with it and without, keep less memory with it, and have one
# function for all layers either way.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
optimized=-O2
make_runtime plain > "$WORK/runtime.log" 2>&1 || fail "the runtime does not compile"

# make_and_run NAME PLAN ARGUMENTS...
make_and_run() {
  local to=$WORK/$1
  shift
  "$TPGEN" "$@" -o "$to" && make_ranks "$to" plain && start "$to" "$to" || fail "$to"
}

activations() { sed -n 's/.*"activations": *\([0-9]*\).*/\1/p' "$WORK/$1/plan.json"; }

# check PLAN ARGUMENTS...: on a mesh. The Llama is compiled as by run.sh; in other programs multiply-adds are
# not fused: otherwise the rounding of a product (in gelu's gradient, say) may depend on the rest of its kernel.
check() {
  local name optimized=$optimized
  [ "$1" != tests/equal/llama.lua ] ||
    optimized=$released
  name=$(basename "$1" .lua)$(printf '.%s' "${@:2}" | tr -d ' ')
  make_and_run "$name.kept" "$@"
  make_and_run "$name.again" "$@" -D checkpoint=layer
  [ "$failures" -eq 0 ] || return 1
  cmp "$WORK/$name.kept.losses" "$WORK/$name.again.losses" || fail "$name: other losses"
  "$TOOLS/compare_safetensors" "$WORK/$name".{kept,again}.saved/model.safetensors 0 || fail "$name: other weights"
  [ "$(activations "$name.again")" -lt "$(activations "$name.kept")" ] ||
    fail "$name: not less is kept: $(activations "$name.again") bytes"
  grep -q '^static void layers_backward(' "$WORK/$name.again/step.c" || fail "$name: layers apart"
  echo "  $name: $(activations "$name.kept") bytes of activations, $(activations "$name.again") again"
}

programs=0
while read -r plan arguments; do
  # shellcheck disable=SC2086  # the arguments are words
  beside "$WORK/$programs.log" check "tests/equal/$plan.lua" $arguments
  programs=$((programs + 1))
done <<< 'checkpoint
checkpoint -D tp=3
checkpoint -D dp=2 -D tp=2
llama
llama -D tp=2'
all_are_done
cat "$WORK"/[0-9]*.log
finish "$programs programs leave the same bits with checkpoints and without"
