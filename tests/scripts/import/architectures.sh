#!/usr/bin/env bash
# auto() in archives of ten architectures (tests/golden/architectures): none is left whole on every rank, the styles that it prints give
# the same program, and the losses are those of one rank. Without CASES: three of them.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
data=$WORK/archives
cp -r plans/lib "$WORK" # for plans that are made here
mkdir -p "$data" && tar -xJf "$golden/architectures/archives.tar.xz" -C "$data"
make_runtime plain > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime"; }

# made PLAN NAME RUN ARGUMENTS...: its program in $WORK/RUN.
made() {
  local plan=$1 name=$2 to=$WORK/$3
  shift 3
  "$TPGEN" "$plan" -D "model=$data/$name.pt2" -D "loss=$(< "$data/$name.loss")" -D clip=1.0 "$@" -o "$to" > "$to.made" 2>&1 ||
    { tail -n 3 "$to.made"; fail "$to: no program"; return 1; }
}
# losses NAME RUN: five steps of it.
losses() {
  make_ranks "$WORK/$2" plain && start "$WORK/$2" "$WORK/$2" --data "$data/$1.batch.safetensors" --steps 5 || { fail "$2"; return 1; }
  numbers loss "$WORK/$2.jsonl" > "$WORK/$2.losses"
}
# The plan with the styles that tpgen has printed in the place of auto(), all in its line.
by_hand() {
  while IFS= read -r line; do
    case $line in
    *'parallelize(model, mesh.tp, auto())'*) sed -n '/note: auto() chose/,/^})/{/note:/d;p}' "$1" | tr '\n' ' ' ;;
    *) printf %s "$line" ;;
    esac
    echo
  done < plans/torch_export.lua
}
# The text of the program, without comments and the plan's name and hash.
text_of() {
  sed '/"plan":/d;s/[0-9a-f]\{16\}/HASH/g;s|"plans/lib/|"lib/|' "$WORK/$1/plan.json"
  cat "$WORK/$1"/step*.c | gcc -fpreprocessed -dD -E -P -x c - 2> /dev/null | sed 's/[0-9a-f]\{16\}/HASH/g'
}

# check NAME MESH...
check() {
  local name=$1 run
  shift
  run=$name.$(IFS=,; echo "$*")
  made plans/torch_export.lua "$name" "$run" "${@/#/-D}" || return
  grep -q 'note: auto() chose' "$WORK/$run.made" && ! grep 'nothing is sharded along tp' "$WORK/$run.made" || fail "$run: it is whole on every rank"
  by_hand "$WORK/$run.made" > "$WORK/$run.torch_export.lua"
  made "$WORK/$run.torch_export.lua" "$name" "$run.hand" "${@/#/-D}" || return
  diff <(text_of "$run") <(text_of "$run.hand") > "$WORK/$run.diff" || fail "$run: its styles give another program: $(head -n 4 "$WORK/$run.diff")"
  losses "$name" "$run" && same_losses "$run" "$WORK/$run.losses" "$WORK/$name.one.losses" 5e-7
}
# of_one_rank NAME
of_one_rank() { made plans/torch_export.lua "$1" "$1.one" && losses "$1" "$1.one"; }

names=(graph convnext llava)
! ci_cases || names+=(flux sd3 unet2d_condition whisper swin detr mamba2)
for name in "${names[@]}"; do beside "$WORK/$name.log" of_one_rank "$name"; done
all_are_done
for name in "${names[@]}"; do
  beside "$WORK/$name.tp.log" check "$name" tp=2
  more beside "$WORK/$name.tp4.log" check "$name" tp=4
  # LLaVA counts the places of images over the whole batch.
  [ "$name" = llava ] || more beside "$WORK/$name.both.log" check "$name" tp=2 dp_shard=2
done
all_are_done
for name in "${names[@]}"; do cat "$WORK/$name"*.log; done
finish "${#names[@]} archives"
