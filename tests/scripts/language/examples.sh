#!/usr/bin/env bash
# The examples: the commands of each README run in a copy, and give the losses that it expects.
. "$(dirname "$0")/../common.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 PATH=$(dirname "$TPGEN"):$PATH
mkdir -p "$WORK/tree/examples"
cp -r plans "$WORK/tree/plans"
ran=0
for example in examples/*/; do
  name=$(basename "$example") to=$WORK/tree/examples/$(basename "$example")
  cp -r "$example" "$to"
  sed -n '/^```sh$/,/^```$/p' "$to/README.md" | sed '/^```/d' > "$to/commands"
  [ -s "$to/commands" ] || fail "$name: no commands"
  sed -i 's/mpirun /mpirun --quiet --oversubscribe --bind-to none /' "$to/commands"
  (cd "$to" && timeout 600 bash -e commands) > "$WORK/$name.log" 2>&1 < /dev/null || { tail -n 20 "$WORK/$name.log"; fail "$name: its commands"; continue; }
  if [ -e "$to/losses.jsonl" ]; then losses_of "$to/losses.jsonl" > "$to/losses"; fi
  same_losses "$name" "$to/losses" "$to/expected.txt" 1e-4
  ran=$((ran + 1))
done
finish "$ran examples"
