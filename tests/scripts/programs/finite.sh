#!/usr/bin/env bash
# Programs by tpgen --check-finite name the first value that is not finite, with its module, its line of the
# plan and its step, on meshes, in bfloat16 and on the stand-in; and they compute the same numbers.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
plan=tests/plans/finite/plan.lua
make_runtimes plain cuda
# Twelve samples of six zeros, except for one number of sample 9: 1e18, or 1.
write_input() {
  local head="{'descr': '<f4', 'fortran_order': False, 'shape': (12, 6), }"
  { printf '\223NUMPY\1\0v\0%-117s\n' "$head"; head -c 288 /dev/zero; } > "$1"
  printf "$2" | dd of="$1" bs=1 seek=$((128 + 4 * (9 * 6 + 2))) conv=notrunc status=none
}
mkdir "$WORK/large" "$WORK/small"
write_input "$WORK/large/input.npy" '\153\13\136\135'
write_input "$WORK/small/input.npy" '\0\0\200\77'

# finds NAME KIND RANK STEP "ARGUMENTS" OPTIONS...: the rank reports it once, at that step; no other message
# appears.
finds() {
  local name=$1 kind=$2 rank=$3 step=$4
  # shellcheck disable=SC2086
  make "$name" "$kind" $plan --check-finite $5 && make "$name.plain" "$kind" $plan $5 || return
  start "$WORK/$name" "$WORK/$name" --data "$WORK/large/input.npy" "${@:6}" || fail "$name"
  grep -q "^rank $rank: warning: by step $step, layers\.1\.mul ($plan:[56]) is infinite at element [0-9]* of this rank's part: the first value that is not finite$" "$WORK/$name.out" ||
    fail "$name: $(grep -a warning "$WORK/$name.out" || tail -n 3 "$WORK/$name.out")"
  [ -z "$(sed -n 's/^\(rank [0-9]*\): warning: by .*/\1/p' "$WORK/$name.out" | sort | uniq -d)" ] || fail "$name: a rank tells more than once"
  start "$WORK/$name" "$WORK/$name.small" --data "$WORK/small/input.npy" "${@:6}" || fail "$name, small"
  ! grep -q 'not finite' "$WORK/$name.small.out" || fail "$name: all are finite"
  start "$WORK/$name.plain" "$WORK/$name.plain" --data "$WORK/small/input.npy" "${@:6}" || fail "$name.plain"
  cmp "$WORK/$name.small.losses" "$WORK/$name.plain.losses" || fail "$name: other losses than without"
}
beside "$WORK/one.log" finds one plain 0 3 ""
beside "$WORK/mesh.log" finds mesh plain 1 3 "-D dp=4"
beside "$WORK/half.log" finds half plain 0 5 "-D tp=2 -D dtype=bfloat16" --log-every 5
beside "$WORK/on_stand_in.log" finds on_stand_in cuda 0 3 "-D dp=2"
beside "$WORK/graph.log" finds graph cuda 0 5 "-D tp=2" --graph --log-every 5
all_are_done
cat "$WORK"/{one,mesh,half,on_stand_in,graph}.log

finish "the first value that is not finite is named"
