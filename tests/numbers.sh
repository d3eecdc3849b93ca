#!/usr/bin/env bash
# No wrong number in silence: what labels and masks leave out counts for nothing, on meshes, on the
# stand-in and in bfloat16.
. "$(dirname "$0")/common.sh"
. "$root/tests/programs.sh"
optimized=-O1
plans=tests/numbers
for kind in plain cuda; do
  make_runtime $kind > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime of $kind programs"; }
done

# make NAME KIND PLAN ARGUMENTS...
make() {
  local to=$WORK/$1 kind=$2
  shift 2
  [ "$kind" != cuda ] || set -- "$@" --target cuda
  "$TPGEN" "$@" -o "$to" && make_ranks "$to" "$kind" || { fail "$to: no program"; return 1; }
}

# ---- labels of -100, and queries that see nothing ----------------------------------------------------

# ignored NAME KIND ARGUMENTS...: it leaves what the program that says it by other operations does.
ignored() {
  local name=$1 kind=$2
  shift 2
  make "$name" "$kind" $plans/ignored.lua "$@" && start "$WORK/$name" "$WORK/$name" || { fail "$name"; return; }
  [ "$name" = spelled ] && return
  same_losses "$name" "$WORK/$name.losses" "$WORK/spelled.losses" ${within:-2e-6}
  "$TOOLS/compare_safetensors" "$WORK/spelled.saved/model.safetensors" "$WORK/$name.saved/model.safetensors" \
    ${within:-1e-5} || fail "$name: other weights"
}
ignored spelled plain -D how=spelled
beside "$WORK/one.log" ignored one plain
beside "$WORK/loss_parallel.log" ignored loss_parallel plain -D tp=3
beside "$WORK/both.log" ignored both plain -D dp=2 -D tp=2
beside "$WORK/on_stand_in.log" ignored on_stand_in cuda -D dp=2 -D tp=2
within=2e-3 beside "$WORK/bfloat16.log" ignored bfloat16 plain -D dtype=bfloat16
all_are_done
cat "$WORK"/{one,loss_parallel,both,on_stand_in,bfloat16}.log

finish "what counts for nothing does so"
