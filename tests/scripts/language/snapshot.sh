#!/usr/bin/env bash
# out/toy-cpu and out/toy-cuda are what tpgen writes for plans/toy.lua, but for the runtime.
# `tests/scripts/language/snapshot.sh --update` rewrites them.
. "$(dirname "$0")/../common.sh"

for target in cpu cuda; do
  generate "$target" --target "$target"
  rm -r "$WORK/$target/runtime" "$WORK/$target/files.txt" # which lists the runtime's
  if [ "${1:-}" = --update ]; then
    rm -rf "out/toy-$target"
    mkdir -p out
    cp -r "$WORK/$target" "out/toy-$target"
  else
    diff -ru "out/toy-$target" "$WORK/$target" ||
      fail "out/toy-$target is not what tpgen writes: look at the difference, then tests/scripts/language/snapshot.sh --update"
  fi
done
finish "both snapshots are what tpgen writes"
