#!/usr/bin/env bash
# Fused projections cut part by part (equal/projections.lua): files hold each weight whole, under its one name.
# Initial weights are the same bits with parts and without, on each mesh. A checkpoint goes from each mesh to the next
# without a changed bit, on the CPU and on the stand-in, and its checksums hold; a changed byte is noticed. Files of
# others, in which some weights are parts of one tensor, are the same from each mesh, and each reads them. Steps with
# parts and without give the same numbers, also by optimizers that look at the whole weight.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
plan=$root/tests/equal/projections.lua
undivided=$WORK/undivided.lua
sed 's/Colwise{parts = [^}]*}}*/Colwise()/' "$plan" > "$undivided"
! grep -n 'parts' "$undivided" | grep Colwise || fail "the plan without parts has some"
make_runtimes plain cuda

# make NAME KIND PLAN SETTINGS...
make() {
  local name=$1 kind=$2 from=$3 target=cpu
  [ "$kind" != cuda ] || target=cuda
  "$TPGEN" "$from" -o "$WORK/$name" --target $target "${@:4}" > "$WORK/$name.log" 2>&1 &&
    make_ranks "$WORK/$name" "$kind" || { cat "$WORK/$name.log"; fail "$name is not made"; }
}
beside "$WORK/whole.log" make whole plain "$undivided"
beside "$WORK/one.log" make one plain "$plan"
beside "$WORK/tp3.log" make tp3 plain "$plan" -D tp=3
beside "$WORK/fsdp2_tp2.log" make fsdp2_tp2 plain "$plan" -D fsdp=2 -D tp=2
beside "$WORK/cuda_tp2.log" make cuda_tp2 cuda "$plan" -D tp=2
all_are_done

# same NAME FILE FILE: these have the same tensors, to the bit.
same() {
  "$TOOLS/compare_safetensors" "$2.saved/model.safetensors" "$3.saved/model.safetensors" 0 || fail "$1: other tensors"
}
for name in whole one tp3 fsdp2_tp2 cuda_tp2; do
  start "$WORK/$name" "$WORK/$name.new" --steps 0 --export "$WORK/$name.hf" || fail "$name"
  same "$name, new" "$WORK/$name.new" "$WORK/whole.new"
  "$TOOLS/compare_safetensors" "$WORK/$name.hf/model.safetensors" "$WORK/whole.hf/model.safetensors" 0 ||
    fail "$name: another file for others"
  start "$WORK/$name" "$WORK/$name.read" --steps 0 --weights "$WORK/whole.hf" || fail "$name, from a file of others"
  same "$name, from a file of others" "$WORK/$name.read" "$WORK/whole.new"
done
tr ',' '\n' < "$WORK/whole.hf/model.safetensors" | tr -d '\0' | finds -a '"blocks.1.wide":' || fail "no tensor of two weights"
start "$WORK/one" "$WORK/first" --steps 2 || fail "two steps"
start "$WORK/whole" "$WORK/first_whole" --steps 2 || fail "two steps without parts"
"$TOOLS/compare_safetensors" "$WORK/first.saved/model.safetensors" "$WORK/first_whole.saved/model.safetensors" 1e-5 ||
  fail "two steps without parts: other tensors"
last=first
for name in tp3 fsdp2_tp2 cuda_tp2 whole one; do
  start "$WORK/$name" "$WORK/$name.carried" --load "$WORK/$last.saved" --steps 2 || fail "$name from $last"
  same "$name from $last" "$WORK/$name.carried" "$WORK/first"
  last=$name.carried
done

# A byte of the second part of a weight, in the middle of the file.
cp -r "$WORK/first.saved" "$WORK/spoilt.saved"
size=$(stat -c %s "$WORK/spoilt.saved/model.safetensors")
printf '\x55' | dd of="$WORK/spoilt.saved/model.safetensors" bs=1 seek=$((size / 2)) conv=notrunc status=none
! start "$WORK/fsdp2_tp2" "$WORK/spoilt" --load "$WORK/spoilt.saved" --steps 2 > "$WORK/spoilt.log" ||
  fail "a changed byte is not noticed"
grep -q 'its bytes have changed' "$WORK/spoilt.log" || { cat "$WORK/spoilt.log"; fail "a changed byte: another message"; }
finish "parts of projections are whole tensors in files, on 4 meshes"
