#!/usr/bin/env bash
# Whichever call of tpgen fails, or is the last one before it is killed, the folder of -o has the old program or
# the new one, complete; after a kill perhaps none that runs, and the next run repairs it. The same holds if
# memory runs out, and then the printed text is complete. With SOAK=1 every call at every place, with several
# errors.
. "$(dirname "$0")/../common.sh"

EIO=5 EINTR=4 ENOMEM=12 ENOSPC=28 EXDEV=18 KILL=0
memory=/dev/shm # a file system that is fast to write
[ -d $memory ] && [ -w $memory ] || memory=$WORK
beside=$(mktemp -d "$memory/tpgen-failing.XXXXXX")
trap 'rm -rf "$beside"' EXIT
place=$beside/place
cp -r plans "$WORK"
cat > "$WORK/reads.lua" << 'END'
local given = read_json("given.json")
return infer{ model = nn.Linear(given.inputs, 3), batch = {input = randn{2, given.inputs}} }
END
echo '{"real": 0.5, "inputs": 5, "none": null, "list": [1, 2, {"a": "b"}]}' > "$WORK/given.json"
cd "$WORK"
toy=(plans/toy.lua -D lr=0.5)
move=(--move 'f32[64,8] on a=2,b=4: S(0) S(0) -> S(1) S(1)' --json)
"$TPGEN" plans/toy.lua -D tp=3 -o old
mkdir -p old/build/inner
echo mine | tee old/notes.txt old/rank7.c old/kernels12.h old/runtime/mine.c old/build/inner/x > mine
cp -r old new
"$TPGEN" "${toy[@]}" -o new
"$TPGEN" "${toy[@]}" -o fresh
"$TPGEN" reads.lua -o read
"$TPGEN" "${move[@]}" > moved
"$TPGEN" plans/toy.lua --explain in_proj.weight > explained
: > nothing
[ -e new/rank7.c ] && [ -e new/runtime/mine.c ] && [ ! -e new/rank2.c ] || fail "new/ holds $(ls new)"

cp -r new changed # from one plan, with changes by hand
tee -a changed/step.c changed/kernels.c < mine > /dev/null

# each CALL ERROR OLD NEW PLACE ARGUMENTS...
each() { "$TOOLS/fail_each" "$TOOLS/fail_nth.so" "${@:1:5}" "$TPGEN" "${@:6}" || fail "$1 $2"; }
replaced() { each "$1" "$2" old new "$place" "${toy[@]}" -o "$place"; }
made() { each "$1" "$2" - fresh "$place" "${toy[@]}" -o "$place"; }
no_memory() {
  replaced memory $ENOMEM
  each memory $ENOMEM - read "$place" reads.lua -o "$place"
  each memory $ENOMEM - moved - "${move[@]}"
  each memory $ENOMEM - explained - plans/toy.lua --explain in_proj.weight
  each memory $ENOMEM - nothing - "${toy[@]}" -o new --check
}

no_memory
for call in renameat fsync mkdirat; do replaced $call $EIO; done
made renameat $EIO
for call in renameat unlinkat; do replaced $call $KILL; done
each renameat $KILL changed new "$place" "${toy[@]}" -o "$place"
replaced write $ENOSPC
replaced readdir $EIO
FAIL_ON=1 replaced renameat $EIO # what cannot be taken back either
made mkdirat $EIO
made flock $EIO
if [ "${SOAK:-}" = 1 ]; then
  FAIL_ON=1 no_memory
  for call in open openat read write close fstat stat fstatat flock mkdir mkdirat fsync renameat rename \
    unlinkat rmdir fdopendir readdir faccessat; do
    for error in $EIO $EINTR $ENOSPC $EXDEV $KILL; do
      replaced $call $error
      made $call $error
    done
  done
fi
finish "the folder is as it was, or as it is to be"
