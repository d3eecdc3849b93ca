#!/usr/bin/env bash
# A generated program that loads, trains, saves in parts and exports, with one failing allocation, of its own or
# of jansson: it reports the failure and ends with a status above 0, or continues and leaves all files complete.
# The old checkpoint or the new one is there, and nothing unfinished. Every 97th allocation; with SOAK=1 each of
# them.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
every=97
[ "${SOAK:-}" != 1 ] || every=1

make_runtime plain && objects "$WORK/plain" plain -Wno-error=unused-parameter "$root/tests/tools/one_rank.c" &&
  "$TPGEN" tests/plans/resume/tiny.lua -o "$WORK/tiny" && make_ranks "$WORK/tiny" plain &&
  gcc -O1 -D_GNU_SOURCE -shared -fPIC -o "$WORK/no_memory.so" tests/tools/no_memory.c || { fail "it does not compile"; exit 1; }
head -c 700 README.md > "$WORK/text.txt"

# job FOLDER N: resumes from the checkpoint of step 2 in FOLDER.save; its N-th allocation fails.
job() {
  LD_PRELOAD=$WORK/no_memory.so NO_MEMORY=$2 "$WORK/tiny/rank0" --data "$WORK/text.txt" --steps 4 \
    --load "$1.save" --save "$1.save" --save-every 1 --export "$1.export" --shard-bytes 32K \
    --metrics "$1.jsonl" > "$1.out" 2>&1
}
# The files that its index names, whatever their names are. A part of an older save that could not be examined
# stays until the next save.
state_of() {
  (cd "$1" 2> /dev/null && sed -n 's/.*: "\(model-.*safetensors\)".*/\1/p' model.safetensors.index.json |
    LC_ALL=C sort -u | xargs cat | sha256sum) || true
}

"$WORK/tiny/rank0" --data "$WORK/text.txt" --steps 2 --save "$WORK/old" --shard-bytes 32K > /dev/null ||
  fail "step 2 is not saved"
cp -r "$WORK/old" "$WORK/right.save"
NO_MEMORY_SAYS=3 job "$WORK/right" 0 3> "$WORK/count" || { fail "without a failure it fails"; cat "$WORK/right.out"; }
# Step 3 alone, as it is between the two saves.
cp -r "$WORK/old" "$WORK/between"
"$WORK/tiny/rank0" --data "$WORK/text.txt" --steps 3 --load "$WORK/between" --save "$WORK/between" \
  --shard-bytes 32K > /dev/null || fail "step 3 is not saved"
count=$(<"$WORK/count")
old=$(state_of "$WORK/old") between=$(state_of "$WORK/between") new=$(state_of "$WORK/right.save")
exported=$(state_of "$WORK/right.export")

# try N: all checks with the N-th allocation.
try() {
  local at=$WORK/n$1 status=0 state
  cp -r "$WORK/old" "$at.save"
  job "$at" "$1" || status=$?
  state=$(state_of "$at.save")
  if [ $status -eq 0 ]; then
    [ "$state" = "$new" ] && [ "$(state_of "$at.export")" = "$exported" ] || fail "$1: status 0, and other files"
    kept=$((kept + 1))
  else
    [ $status -le 2 ] || fail "$1: status $status"
    grep -qE "memory|failed" "$at.out" || fail "$1: it says nothing of memory: $(tail -n 1 "$at.out")"
    [ "$state" = "$old" ] || [ "$state" = "$between" ] || [ "$state" = "$new" ] ||
      fail "$1: another checkpoint, or none: $(ls -A "$at.save")"
    ended=$((ended + 1))
  fi
  [ -z "$(find "$at".* -name '.*')" ] || fail "$1: left unfinished: $(find "$at".* -name '.*')"
  rm -rf "$at".*
}
kept=0 ended=0
for ((n = 1; n <= count; n += every)); do try "$n"; done
[ "$ended" -gt 20 ] || fail "only $ended of them end the job"
finish "of $count allocations every ${every}th refused: $ended jobs end and say so, $kept do without"
