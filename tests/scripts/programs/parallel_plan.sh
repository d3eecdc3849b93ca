#!/usr/bin/env bash
# train{parallel = auto{...}}: the mesh and all that is cut over it, which tpgen finds for models of its own: the programs
# compute what one rank does, plan.lua beside them gives the same ones, what is given stays, and what cannot be is said.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
make_runtimes plain cuda
command -v python3 > /dev/null || { echo "parallel_plan: skipped, no python3"; exit 77; }

# cluster NAME DEVICES MEMORY: a file of it.
cluster() {
  printf '{"name": "%s", "device": "H100", "nodes": 1, "devices_per_node": %d, "memory": "%s"}\n' "$@" > "$WORK/$1.json"
}
cluster one 1 80GiB
cluster two 2 80GiB
cluster four 4 80GiB
value() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$@"; }
plan_of() { echo "tests/equal/parallel_$1.lua"; }

# found NAME MODEL KIND CLUSTER ARGUMENTS...: the program of what tpgen finds, and its losses; of plan.lua the same program.
found() {
  local name=$1 model=$2 kind=$3 target=cpu
  [ "$kind" != cuda ] || target=cuda
  "$TPGEN" "$(plan_of "$model")" -o "$WORK/$name" --target $target -D cluster="$WORK/$4.json" "${@:5}" > "$WORK/$name.table" 2>&1 ||
    { fail "$name: $(cat "$WORK/$name.table")"; return; }
  "$TPGEN" "$WORK/$name/plan.lua" -o "$WORK/$name.again" --target $target -D cluster="$WORK/$4.json" > "$WORK/$name.log" 2>&1 ||
    { fail "$name: plan.lua is no plan: $(cat "$WORK/$name.log")"; return; }
  same_numbers "$WORK/$name" "$WORK/$name.again" || fail "$name: plan.lua gives another program"
  make_ranks "$WORK/$name" "$kind" && start "$WORK/$name" "$WORK/$name" || { fail "$name: no program"; return; }
  [ "$name" = "$model" ] || same_losses "$name" "$WORK/$name.losses" "$WORK/$model.losses" 5e-7
}
# same_numbers FOLDER FOLDER: plan.json, without what depends on the plan's text.
same_numbers() { cmp -s <(numbers_of "$1") <(numbers_of "$2"); }
numbers_of() {
  python3 - "$1" << 'END'
import glob, json, sys
def strip(x):
  if isinstance(x, dict): return {k: strip(v) for k, v in x.items() if k not in ("hash", "plan", "line", "file", "files", "why", "with", "style")}
  return [strip(v) for v in x] if isinstance(x, list) else x
for name in sorted(glob.glob(sys.argv[1] + "/plan*.json")): print(json.dumps(strip(json.load(open(name)))))
END
}

for model in layers transformer images experts; do found $model $model plain one; done
logs=()
try() {
  logs+=("$1")
  beside "$WORK/$1.said" found "$@"
}
try layers.four layers plain four
try layers.stages layers plain four -D pp=2 -D dp_replicate=2
try transformer.two transformer plain two
try transformer.tensor transformer plain four -D tp=2 -D dp_shard=2
try transformer.sequences transformer plain two -D cp=2
try images.stages images plain two -D pp=2
try experts.tensor experts plain two -D tp=2
try experts.experts experts plain four -D ep=2
try transformer.cuda transformer cuda four -D tp=2
if ci_cases; then
  try images.four images plain four
  try experts.four experts plain four
  try layers.shards layers plain four -D dp_shard=4 -D checkpoint=layer
  try images.tensor images plain two -D tp=2
fi
all_are_done
for name in "${logs[@]}"; do cat "$WORK/$name.said"; done

# ---- what is given stays; the search says why
json=$WORK/transformer.tensor/search.json
[ "$(value "$json" 'all(c["settings"].get("tp") == 2 and c["settings"].get("dp_shard") == 2 for c in d["candidates"])')" = True ] ||
  fail "tp=2 did not stay"
grep -q 'styles = {' "$WORK/transformer.tensor/plan.lua" && grep -q 'units = {' "$WORK/transformer.tensor/plan.lua" ||
  fail "plan.lua has no styles or units"
grep -q 'split = {' "$WORK/layers.stages/plan.lua" || fail "plan.lua does not say where stages begin"
grep -q 'would' "$WORK/transformer.two.table" || fail "nothing says why"
"$TOOLS/check_schema" plans/search.schema.json "$json" || fail "search.json is not as the schema says"

# ---- the same for one process
if command -v taskset > /dev/null; then
  taskset -c 0 "$TPGEN" "$(plan_of layers)" -o "$WORK/single" --target cpu -D cluster="$WORK/four.json" > "$WORK/single.table" 2>&1
  cmp "$WORK/layers.four.table" "$WORK/single.table" || fail "another table in one process"
  cmp "$WORK/layers.four/search.json" "$WORK/single/search.json" || fail "another search.json in one process"
fi

# ---- nothing fits: status 4, what comes closest, what helps
cluster small 2 1100MB
status=0
"$TPGEN" "$(plan_of layers)" -o "$WORK/none" -D cluster="$WORK/small.json" -D width=2048 -D depth=8 > "$WORK/none.table" 2>&1 || status=$?
[ $status -eq 4 ] || fail "nothing fits: status $status"
for words in "nothing fits" "comes closest" "are lacking" "twice the devices"; do
  grep -q "$words" "$WORK/none.table" || fail "nothing fits: it does not say '$words'"
done
[ -f "$WORK/none/search.json" ] && [ ! -f "$WORK/none/plan.lua" ] || fail "nothing fits: the folder"

# ---- with what else tpgen does
with() { "$TPGEN" "$(plan_of layers)" -D cluster="$WORK/two.json" "$@" > "$WORK/with.log" 2>&1 || fail "$*: $(tail -n 3 "$WORK/with.log")"; }
with --explain-cost layers.0.up
grep -q 'step of the program' "$WORK/with.log" || fail "--explain-cost says nothing"
with -o "$WORK/report" --report
[ -f "$WORK/report/report.html" ] || fail "no report"
with --search
grep -q '^\* ' "$WORK/with.log" || fail "--search prints no table"
with --dump=plan

# ---- -D pins in a plan that declares settings of its own
archive=(plans/torch_export.lua -D model=tests/golden/torch_export/vit.pt2)
"$TPGEN" "${archive[@]}" -D auto=true -D pp=2 --cluster "$WORK/two.json" -o "$WORK/archive" --ranks 0 > "$WORK/archive.table" 2>&1 ||
  fail "-D pp=2 of an archive: $(cat "$WORK/archive.table")"
[ "$(value "$WORK/archive/search.json" 'd["best"]["settings"]["pp"]')" = 2 ] || fail "-D pp=2 of an archive did not stay"

# refuses WORDS PLAN ARGUMENTS...
refuses() {
  if "$TPGEN" "${@:2}" -o "$WORK/refused" > "$WORK/refused.log" 2>&1; then
    fail "${*:2} is no error"
  else
    grep -qF -- "$1" "$WORK/refused.log" || fail "${*:2}: it does not say '$1': $(tail -n 2 "$WORK/refused.log")"
  fi
}
refuses "auto must know where the ranks run" tests/plans/parallel_plan/plan.lua
refuses "leave out device_mesh" tests/plans/parallel_plan/plan.lua -D mesh=true
refuses "tp must be" tests/plans/parallel_plan/plan.lua -D tp=none --cluster dgx-h100
refuses "use all 8 devices" tests/plans/parallel_plan/plan.lua -D tp=3 --cluster dgx-h100
refuses "train's parallel says checkpoint, and so does train" tests/plans/parallel_plan/plan.lua -D both=true --cluster dgx-h100
for stated in 'styles = {["layers.9"] = Colwise()}, tp = 1' 'split = {"layers.9"}'; do
  text=$(< "$(plan_of layers)")
  echo "${text//auto\{/auto\{$stated, }" > "$WORK/stated.lua"
  refuses "no module matches 'layers.9'" "$WORK/stated.lua" -D cluster=dgx-h100
done
refuses "this mesh is given" tests/plans/parallel_plan/plan.lua -D given=true
refuses "the plan has no setting 'pp'" "${archive[@]}" -D pp=2
refuses "is a search of its own" "${archive[@]}" -D auto=true --search --cluster dgx-h100
refuses "is a search of its own" tests/plans/parallel_plan/plan.lua -D searched=true --search --cluster dgx-h100
finish
