#!/usr/bin/env bash
# Every token goes to the expert that its router names, whatever it names: experts at random, one alone for all tokens,
# none for some experts, one for each sequence. Losses and weights are those of a program without rows, in which every
# expert takes every token (experts/forced.lua), on one rank and on meshes; ranks may have no tokens, or no experts. And
# a gradient of experts that is too large by a factor shows on each of them. With a bound the step that passes it ends the
# job with one message, and what the steps before have made is saved. A capacity drops the same places where sequences
# are cut; what cannot go back to its tokens is refused.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
optimized=-O0
export OMP_NUM_THREADS=1

# routers EXPERTS: a file of 12 batches of 5 sequences of 4 tokens: each token's numbers, and the experts at its three
# places.
routers() {
  awk -v experts="$1" '
    function bytes(n, width) { for (n %= 2 ^ 32; width > 0; width--) { printf "%c", n % 256; n = int(n / 256) } }
    function random(n) { seed = (seed * 16807) % 2147483647; return int(seed / 64) % n }
    function named(step, sample) {
      if (step % 6 == 2) return step % experts
      if (step % 6 == 3) return random(int((experts + 1) / 2))
      if (step % 6 == 4) return sample % experts
      if (step % 6 == 5) return random(experts) < 1 ? 1 : experts - 1
      return random(experts)
    }
    BEGIN {
      seed = 7
      head = "{\"ids\":{\"dtype\":\"I32\",\"shape\":[60,4,3],\"data_offsets\":[0,2880]}," \
        "\"numbers\":{\"dtype\":\"I32\",\"shape\":[60,4,6],\"data_offsets\":[2880,8640]}}"
      bytes(length(head), 8)
      printf "%s", head
      for (i = 0; i < 720; i++) bytes(named(int(i / 60), int(i / 12)), 4)
      for (i = 0; i < 1440; i++) bytes(2 ^ 32 + random(101) - 50, 4)
    }' > "$WORK/routers$1.safetensors"
}

# run DIRECTORY EXPERTS
run() { start "$WORK/$1" "$WORK/$1" --data "$WORK/routers$2.safetensors" || { fail "$1: no run"; return 1; }; }

# is_dense NAME EXPERTS: whether it has the losses and weights of the program without rows.
is_dense() (
  failures=0 dense=$WORK/dense$2
  case $1 in own*) dense=$WORK/dense_own ;; *parts*) dense=$WORK/dense_of6 ;; esac
  same_losses "$1" "$WORK/$1.losses" "$dense.losses" 2e-6
  "$TOOLS/compare_safetensors" "$dense.saved/model.safetensors" "$WORK/$1.saved/model.safetensors" 2e-5 || exit 1
  [ $failures -eq 0 ]
)

# wrong NAME EXPERTS ARGUMENTS...: the program with one gradient of experts ep times as large, or twice, must not pass.
wrong() {
  local to=$WORK/$1.wrong factor
  factor=$(sed -n 's/.*\bep=\([0-9]\).*/\1/p' <<< "${*:3}")
  cp -r "$WORK/$1" "$to"
  rm -f "$to/ranks" "$to/kernels.o"
  sed -i -E "0,/grouped_tn\(/s/^( *)grouped_tn\(.*, ([0-9]+), ([0-9]+), ([0-9]+)\);\$/&\\n\\1for (long i = 0; i < \\2 * \\3 * \\4; i++) out[i] *= ${factor:-2};/" \
    "$to/kernels.c"
  ! cmp -s "$to/kernels.c" "$WORK/$1/kernels.c" || { fail "$1: no gradient to change"; return; }
  make_ranks "$to" plain && run "$1.wrong" "$2" || { fail "$1: no wrong program"; return; }
  ! is_dense "$1.wrong" "$2" > "$to.noticed" 2>&1 || fail "$1: a gradient that is ${factor:-2} times as large is not noticed"
}

# check NAME KIND EXPERTS ARGUMENTS...
check() {
  local name=$1 kind=$2 experts=$3
  make "$name" "$kind" tests/plans/experts/forced.lua -D experts="$experts" "${@:4}" && run "$name" "$experts" || return 0
  is_dense "$name" "$experts" || { fail "$name: other losses or weights"; return; }
  [ "$kind" != plain ] || wrong "$name" "$experts" "${@:4}"
}

# beyond NAME KIND BOUND ARGUMENTS...: in the third step all tokens go to one expert, which is more than the bound.
beyond() {
  local name=$1 kind=$2 to=$WORK/$1 had="had [^:]* rows in step 3, and bound = $3 has room for [0-9]*: [^;]*" then
  then='; .* has the checkpoint of step 2'
  make "$name" "$kind" tests/plans/experts/forced.lua -D bound="$3" "${@:4}" || return 0
  grep -q clamp_to_capacity "$to"/step.c* || { fail "$name: no bound"; return; }
  [ "$kind" != cuda ] || had=${had/in step 3/by step [34]} then='; nothing computed since then is saved'
  ! start "$to" "$to" --data "$WORK/routers7.safetensors" --save-every 2 > "$to.ended" || { fail "$name: no end"; return; }
  [ "$(grep -c error: "$to.out")" = 1 ] && grep -q "rank [0-9]*: error: tests/plans/experts/forced.lua:[0-9]*: [a-z_]*: .*$had$then" "$to.out" ||
    { cat "$to.out"; fail "$name: another message, or several"; }
  "$TOOLS/compare_safetensors" "$WORK/dense7_2.saved/model.safetensors" "$to.saved/model.safetensors" 2e-5 ||
    fail "$name: not saved as the second step left it"
}

# text DIRECTORY: of the program that does not say of which plan it is.
text() { sed 's/[0-9a-f]\{16\}//g' "$1"/*.[ch]*; }

# A bound that no rank's rows can pass leaves the program as it is without one; a smaller one does not.
for kind in cpu cuda; do
  for bound in false 7 6.9; do
    "$TPGEN" tests/plans/experts/forced.lua -o "$WORK/$kind$bound" --target $kind -D ep=3 $([ $bound = false ] || echo -D bound=$bound) ||
      fail "no program with bound = $bound"
  done
  cmp <(text "$WORK/${kind}false") <(text "$WORK/${kind}7") || fail "$kind: a bound of all rows changes the program"
  text "$WORK/${kind}6.9" | finds 'clamp_to_capacity(' || fail "$kind: a bound that one rank can pass is not held"
done

# Where another dimension cuts the tokens of a rank within ep's cut, its ranks would have experts' rows of other tokens.
for batch in 6 12; do
  ! "$TPGEN" tests/plans/experts/forced.lua -o "$WORK/outer" -D ep=2 -D dp=2 -D outer=true -D batch=$batch 2> "$WORK/outer.said" &&
    finds 'let it come after the others in device_mesh' "$WORK/outer.said" || fail "ep that cuts first: $(cat "$WORK/outer.said")"
done

make_runtimes plain sanitized cuda
for experts in 7 2; do
  routers $experts
  make dense$experts plain tests/plans/experts/forced.lua -D experts=$experts -D how=dense && run dense$experts $experts
done
make dense_own plain tests/plans/experts/forced.lua -D how=dense -D own=true && run dense_own 7
make dense_of6 plain tests/plans/experts/forced.lua -D how=dense -D batch=6 && run dense_of6 7
start "$WORK/dense7" "$WORK/dense7_2" --data "$WORK/routers7.safetensors" --steps 2 || fail "dense7: no run of two steps"
while read -r name kind experts arguments; do
  case $name in one | ep3 | ep2_sharded | ep2_parts | none | own_ep3 | ep3_cuda) ;; *) all_cases || continue ;; esac
  # shellcheck disable=SC2086
  beside "$WORK/$name.log" check "$name" "$kind" "$experts" $arguments
done << 'END'
one plain 7
ep2 plain 7 -D ep=2
ep3 plain 7 -D ep=3
ep4 plain 7 -D ep=4
tp3 plain 7 -D tp=3
ep2_dp2 plain 7 -D ep=2 -D dp=2
ep2_sharded plain 7 -D ep=2 -D dp=2 -D sharded=true
ep2_tp2 plain 7 -D ep=2 -D tp=2
ep2_parts sanitized 7 -D ep=2 -D batch=6 -D microbatches=2
ep2_tp2_parts sanitized 7 -D ep=2 -D tp=2 -D batch=6 -D microbatches=2
none plain 2 -D ep=3
ep3_sanitized sanitized 7 -D ep=3
own plain 7 -D own=true
own_ep3 plain 7 -D own=true -D ep=3
own_ep2_dp2 plain 7 -D own=true -D ep=2 -D dp=2
own_cuda cuda 7 -D own=true -D ep=3
one_cuda cuda 7
ep2_cuda cuda 7 -D ep=2
ep3_cuda cuda 7 -D ep=3
ep2_parts_cuda cuda 7 -D ep=2 -D batch=6 -D microbatches=2
none_cuda cuda 2 -D ep=3
END
while read -r name kind arguments; do
  case $name in beyond | beyond_cuda) ;; *) all_cases || continue ;; esac
  # shellcheck disable=SC2086
  beside "$WORK/$name.log" beyond "$name" "$kind" $arguments
done << 'END'
beyond sanitized 1.75 -D ep=3
beyond_gathered sanitized 1.5 -D ep=2 -D dp=4
beyond_sharded plain 1.25 -D ep=2 -D dp=2 -D sharded=true
beyond_cuda cuda 2 -D ep=3
beyond_parts sanitized 1.7 -D ep=2 -D microbatches=2
beyond_parts_cuda cuda 1.7 -D ep=2 -D microbatches=2
beyond_gathered_cuda cuda 1.5 -D ep=2 -D dp=4
END
# capacity NAME KIND ARGUMENTS...: tests/plans/experts/capacity.lua.
capacity() {
  make "$1" "$2" tests/plans/experts/capacity.lua "${@:3}" && start "$WORK/$1" "$WORK/$1" || fail "$1: no losses"
}
beside "$WORK/capacity_one.log" capacity capacity_one plain
beside "$WORK/capacity_ep2_sp2.log" capacity capacity_ep2_sp2 sanitized -D ep=2 -D sp=2
more beside "$WORK/capacity_tp2.log" capacity capacity_tp2 sanitized -D ep=2 -D sp=2 -D tp=2
more beside "$WORK/capacity_cuda.log" capacity capacity_cuda cuda -D ep=2 -D sp=2
all_are_done
cat "$WORK"/*.log
for name in ep2_sp2 $(more echo tp2 cuda); do
  same_losses "capacity, $name" "$WORK/capacity_$name.losses" "$WORK/capacity_one.losses" 2e-6
done

# Rows go back to the ranks with their tokens: none has all of one sequence that is cut.
for arguments in "-D batch=1" "-D cut=1"; do
  # shellcheck disable=SC2086
  ! "$TPGEN" tests/plans/experts/capacity.lua -o "$WORK/refused" -D ep=2 $arguments 2> "$WORK/refused.err" &&
    grep -q 'capacity.lua:[0-9]*: error: .* their counts are of other parts: cut the experts. input along dimension 0' "$WORK/refused.err" ||
    fail "$arguments is not refused: $(cat "$WORK/refused.err")"
done

# Kernels of a rank's experts end behind their last row, be there room for more: all but those of whole experts.
for name in ep3 own_ep3; do
  counted=$(grep -c 'const int rows = all_rows(' "$WORK/$name/kernels.c" || true)
  [ "$counted" -gt 0 ] && [ "$counted" = "$(grep '_1x5x4x3x' "$WORK/$name/kernels.h" | grep -cv 'void grouped')" ] ||
    fail "$name: $counted kernels count rows"
done
finish "tokens reach the experts that are named, on each mesh"
