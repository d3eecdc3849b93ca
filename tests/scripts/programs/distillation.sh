#!/usr/bin/env bash
# Distillation: plans/distill.lua has the losses of tests/golden/distillation, by PyTorch, on meshes, in micro-batches and on the
# stand-in. The two models come from two folders (--weights, --weights teacher=FOLDER); an export is the student, and another
# program takes it.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
make_runtimes plain cuda
from=$golden/distillation
seq 1 1000 | tr '\n' ' ' > "$WORK/text"
sizes=(-D batch=4 -D seq=32 -D lr=0.01 -D steps=8)
tr '\t' '\n' < "$from/losses.tsv" > "$WORK/golden"

# exports NAME ARGUMENTS...: its weights before the first step, in $WORK/NAME.weights.
exports() {
  make "$1" plain plans/causal_lm.lua "${sizes[@]}" "${@:2}" && start "$WORK/$1" "$WORK/$1" --steps 0 --export "$WORK/$1.weights" || fail "$1"
}
exports student -D "config=$from/config.json"
exports teacher -D "config=$from/teacher.json" -D seed=1

# learns NAME KIND ARGUMENTS...
learns() {
  make "$1" "$2" plans/distill.lua "${sizes[@]}" -D "config=$from/config.json" -D "teacher=$from/teacher.json" -D temperature=2 -D alpha=0.3 "${@:3}" &&
    start "$WORK/$1" "$WORK/$1" --weights "$WORK/student.weights" --weights "teacher=$WORK/teacher.weights" --data "$WORK/text" \
      --export "$WORK/$1.weights" || { fail "$1"; return; }
  same_losses "$1" "$WORK/$1.losses" "$WORK/golden" 2e-6
}
learns whole plain
learns tp plain -D tp=2 -D microbatches=2
learns sharded cuda -D dp_shard=2 -D teacher_dtype=float32
# What is exported is a model of the student's kind: it goes on.
start "$WORK/student" "$WORK/again" --weights "$WORK/tp.weights" --data "$WORK/text" --steps 1 || fail "the export"
! start "$WORK/student" "$WORK/wrong" --weights "$WORK/tp.weights" --weights "teacher=$WORK/teacher.weights" --steps 1 ||
  fail "tensors of a prefix that nothing has are taken"
grep -qF "no parameter whose name begins with 'teacher.'" "$WORK/wrong.out" || fail "a prefix that nothing has: $(tail -n 2 "$WORK/wrong.out")"
# A teacher may be a checkpoint, whose checksums and states go with it.
start "$WORK/teacher" "$WORK/saved" --weights "$WORK/teacher.weights" --steps 0 &&
  start "$WORK/whole" "$WORK/of_checkpoint" --weights "$WORK/student.weights" --weights "teacher=$WORK/saved.saved" --data "$WORK/text" &&
  cmp -s "$WORK/of_checkpoint.losses" "$WORK/whole.losses" || fail "the teacher of a checkpoint"
finish "a student learns from a teacher as PyTorch does"
