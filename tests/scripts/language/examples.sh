#!/usr/bin/env bash
# The examples: the commands of each README run in a copy, and give the losses that it expects.
. "$(dirname "$0")/../common.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 PATH=$(dirname "$TPGEN"):$PATH

# decreasing LOG: both processes print the same losses of three epochs, each below the one before. PyTorch's version chooses the numbers.
decreasing() {
  sort -k2,2n "$1" | awk '/^epoch/ { count[$2]++; if (seen[$2] != "" && seen[$2] != $4) exit 1; seen[$2] = $4 }
    END { exit !(count["1:"] == 2 && count["2:"] == 2 && count["3:"] == 2 && seen["1:"] > seen["2:"] && seen["2:"] > seen["3:"]) }' ||
    { grep '^epoch' "$1"; fail "python: losses of three epochs"; }
}

mkdir -p "$WORK/tree/examples"
cp -r plans "$WORK/tree/plans"
ran=0
for example in examples/*/; do
  name=$(basename "$example") to=$WORK/tree/examples/$(basename "$example")
  cp -r "$example" "$to"
  sed -n '/^```sh$/,/^```$/p' "$to/README.md" | sed '/^```/d' > "$to/commands"
  [ -s "$to/commands" ] || fail "$name: no commands"
  sed -i 's/mpirun /mpirun --quiet --oversubscribe --bind-to none /' "$to/commands"
  if [ "$name" = python ] && ! python3 -c 'import torch' 2> /dev/null; then
    sed -i /train.py/d "$to/commands"
    echo "python: there is no PyTorch here; its module is only built"
  fi
  (cd "$to" && timeout 600 bash -e commands) > "$WORK/$name.log" 2>&1 < /dev/null || { tail -n 20 "$WORK/$name.log"; fail "$name: its commands"; continue; }
  ran=$((ran + 1))
  if [ "$name" = python ]; then
    ! grep -q train.py "$to/commands" || decreasing "$WORK/python.log"
    continue
  fi
  if [ -e "$to/losses.jsonl" ]; then losses_of "$to/losses.jsonl" > "$to/losses"; fi
  same_losses "$name" "$to/losses" "$to/expected.txt" 1e-4
done
finish "$ran examples"
