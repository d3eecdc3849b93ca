#!/usr/bin/env bash
# --search: it finds a plan that fits and writes it as a plan that gives the same program; it is the same for any number of
# processes; what fails, what does not fit and what is refused is listed; SIGINT and --search-time end it with the best so far.
. "$(dirname "$0")/../common.sh"

clusters=$golden/search
search() { "$TPGEN" "$@" --search; }
# value FILE EXPRESSION: of search.json.
value() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$@"; }

# ---- a plan, and the program that it gives
small=(plans/llama3.lua -D dim=512 -D n_layers=8 -D hidden=1408 -D vocab=8192 -D seq=1024 -D batch=32 -D dtype=bfloat16)
search "${small[@]}" --cluster "$clusters/node.json" -o "$WORK/out" > "$WORK/table" || fail "status $?: $(cat "$WORK/table")"
json=$WORK/out/search.json
"$TOOLS/check_schema" plans/search.schema.json "$json" || fail "search.json is not as the schema says"
grep -q '^\* ' "$WORK/table" || fail "the table marks no choice"
grep -qF 'why:' "$WORK/table" || fail "the table says no reasons"
[ "$(value "$json" 'd["target"]')" = cuda ] || fail "the programs of a GPU are not of CUDA"
[ "$(value "$json" 'd["best"]["fits"] and 10 < len(d["candidates"]) < 60')" = True ] || fail "few candidates or many, or none that fits"
[ "$(value "$json" 'd["best"]["seconds"] <= 1.005 * min(c["seconds"] for c in d["candidates"] if c["fits"])')" = True ] ||
  fail "the best is not the quickest"
[ "$(value "$json" 'all(k in d["reasons"] for k in ("tp", "pp", "cp", "checkpoint"))')" = True ] || fail "a setting has no reason"
# plan.json of the program says the same seconds and bytes.
seconds=$(value "$json" 'd["best"]["seconds"]')
[ "$(value "$WORK/out/plan.json" "abs(d['simulated_step']['seconds'] - $seconds) < 1e-12")" = True ] || fail "plan.json has another step"
[ "$(value "$json" 'd["best"]["bytes"]')" = "$(value "$WORK/out/plan.json" 'd["memory_of_rank"]["total"]')" ] ||
  fail "plan.json has another memory"
"$TPGEN" "$WORK/out/plan.lua" -o "$WORK/again" --target cuda || fail "plan.lua is no plan"
# Its comments name other lines, and its names of files and hashes are others.
code() { python3 -c 'import re, sys; print("\n".join(re.sub(r"//.*|/\*.*?\*/", "", open(sys.argv[1]).read(), flags=re.S if sys.argv[1][-1] == "h" else 0).split()))' "$1" |
  sed 's/[0-9a-f]\{16\}/HASH/; s/^"[^"]*\.lua"/"FILE"/; /plan_line$/,+2s/^[0-9]*,$/LINE/'; }
for file in "$WORK"/out/step*.cu "$WORK/out/kernels.cu" "$WORK"/out/memory*.h; do
  cmp <(code "$file") <(code "$WORK/again/$(basename "$file")") || fail "plan.lua gives another $(basename "$file")"
done
grep -q -- '-- .* would\|-- .* does not fit' "$WORK/out/plan.lua" || fail "plan.lua says no reason"
# -D has the last word over what the plan pins.
"$TPGEN" "$WORK/out/plan.lua" -o "$WORK/other" --target cuda -D dtype=float32 || fail "-D beside a pinned setting"
grep -q 'bfloat16' "$WORK/other/kernels.h" && fail "pin has the last word"

# ---- the same for one process
if command -v taskset > /dev/null; then
  taskset -c 0 "$TPGEN" "${small[@]}" --search --cluster "$clusters/node.json" -o "$WORK/one" > "$WORK/table.one"
  cmp "$WORK/table" "$WORK/table.one" || fail "another table in one process"
  cmp "$json" "$WORK/one/search.json" || fail "another search.json in one process"
fi

# ---- seven devices, of which no size is a multiple; one device: no collective
search "${small[@]/batch=32/batch=14}" --cluster "$clusters/seven.json" > "$WORK/seven" || fail "seven devices: status $?"
search "${small[@]}" --cluster "$clusters/one.json" -o "$WORK/single" > /dev/null || fail "one device: status $?"
[ "$(value "$WORK/single/search.json" '"tp" in d["best"]["settings"]')" = False ] || fail "one device has tp"

# ---- pins stay
search "${small[@]}" --cluster "$clusters/node.json" -D tp=4 -o "$WORK/pinned" > /dev/null || fail "tp=4: status $?"
[ "$(value "$WORK/pinned/search.json" 'all(c["settings"]["tp"] == 4 for c in d["candidates"])')" = True ] || fail "tp=4 did not stay"

# ---- a plan that refuses the default of a choice, where another setting is on: attention's dropout goes around no ring
dropout=(plans/gpt2.lua -D attention_dropout=0.1 -D n_layers=4 -D batch=2 -D seq=4096 -D positions=4096 -D dtype=bfloat16)
for pinned in "" "-D cp=2"; do
  search "${dropout[@]}" $pinned --cluster "$clusters/four.json" -o "$WORK/dropout" > "$WORK/table" || fail "dropout, $pinned: status $?"
  grep -qF 'context=ring with cp is not tried: plans/gpt2.lua' "$WORK/table" || fail "dropout, $pinned: the table says nothing of the ring"
  [ "$(value "$WORK/dropout/search.json" 'sum("seconds" in c for c in d["candidates"] if c["settings"].get("cp", 1) > 1) > 3')" = True ] ||
    fail "dropout, $pinned: cp is hardly tried"
  [ "$(value "$WORK/dropout/search.json" 'all(c["settings"].get("cp", 1) == 1 or c["settings"]["context"] != "ring" for c in d["candidates"])')" = True ] ||
    fail "dropout, $pinned: a ring is tried"
done
[ "$(value "$WORK/dropout/search.json" '"\"ring\"" in d["not_tried"]["context=ring with cp"]')" = True ] || fail "search.json: no quotes"
"$TOOLS/check_schema" plans/search.schema.json "$WORK/dropout/search.json" || fail "search.json is not as the schema says"

# ---- recomputation within memory, where all that a step keeps does not fit, and whole layers need not be made again
search "${small[@]}" --cluster "$clusters/four.json" -D memory=1.8GiB -D tp=1 -D pp=1 -D cp=1 -D dp_replicate=1 -D microbatches=1 \
  -o "$WORK/within" > /dev/null || fail "within memory: status $?"
[ "$(value "$WORK/within/search.json" 'd["best"]["settings"]["checkpoint"]')" = memory ] || fail "checkpoint=memory was not found"
[ "$(value "$WORK/within/search.json" 'any(not c["fits"] and c["settings"].get("checkpoint") is None for c in d["candidates"])')" = True ] ||
  fail "within memory: without recomputation it fits"

# ---- ties of 0.5 %: the simplest
python3 - "$WORK/out/search.json" << 'END' || fail "the choice is not the simplest of those that are as quick"
import json, sys
d = json.load(open(sys.argv[1]))
off = {"dp_replicate": 1, "dp_shard": 1, "tp": 1, "pp": 1, "cp": 1, "ep": 1, "loss_parallel": True}
given = {"dim", "n_layers", "hidden", "vocab", "seq", "batch", "dtype", "dp", "microbatches" if d["best"]["settings"].get("pp", 1) > 1 else ""}
on = lambda c: sum(off.get(k) != v for k, v in c["settings"].items() if k not in given)
most = 1.005 * min(c["seconds"] for c in d["candidates"] if c["fits"])
sys.exit(any(c["fits"] and c["seconds"] <= most and on(c) < on(d["best"]) for c in d["candidates"]))
END

search "${small[@]}" --cluster "$clusters/one.json" -D memory=3GiB -D checkpoint=memory > "$WORK/table" || fail "-D checkpoint=memory: status $?"

# ---- nothing fits: status 4, the closest, what helps
status=0
search plans/llama3.lua -D preset=8b -D batch=8 --cluster "$clusters/one.json" -o "$WORK/large" > "$WORK/table" || status=$?
[ "$status" -eq 4 ] || fail "nothing fits: status $status"
for words in "nothing fits" "comes closest" "are lacking" "twice the devices" "bfloat16"; do
  grep -qF "$words" "$WORK/table" || fail "nothing fits: says nothing of '$words'"
done
[ "$(value "$WORK/large/search.json" 'd["best"] is None and d["closest"]["bytes"] > d["limit"]')" = True ] || fail "search.json has a best"
"$TOOLS/check_schema" plans/search.schema.json "$WORK/large/search.json" || fail "search.json is not as the schema says"

# A folder with a program keeps it, and a plan that tpgen left in its folder stays there, with what it reads and its table.
cp -r "$WORK/out" "$WORK/kept" && rm -rf "$WORK/kept.before" && cp -r "$WORK/kept" "$WORK/kept.before"
status=0
search plans/llama3.lua -D preset=8b -D batch=8 --cluster "$clusters/one.json" -o "$WORK/kept" > "$WORK/table" 2>&1 || status=$?
[ "$status" -eq 4 ] && grep -q "still holds the program of before" "$WORK/table" && diff -r "$WORK/kept" "$WORK/kept.before" > "$WORK/difference" ||
  fail "nothing fits: status $status, and the folder has changed: $(cat "$WORK/difference")"
for turn in first second; do
  "$TPGEN" "$WORK/kept/plan.lua" -o "$WORK/kept" --target cuda || fail "plan.lua into its own folder, the $turn time"
  for file in plan.lua search.json lib; do diff -r "$WORK/kept/$file" "$WORK/kept.before/$file" || fail "$file is gone, the $turn time"; done
done
echo "-- edited" >> "$WORK/kept/plan.lua"
cp "$WORK/kept/plan.lua" "$WORK/edited.lua"
search "$WORK/kept/plan.lua" --cluster "$clusters/one.json" -o "$WORK/kept" > "$WORK/table" 2>&1 && fail "a search writes over the plan that it reads"
cmp "$WORK/kept/plan.lua" "$WORK/edited.lua" || fail "the edited plan is lost"

# A prime number of samples has no micro-batches.
status=0
search "${small[@]/batch=32/batch=1000003}" --cluster "$clusters/four.json" > "$WORK/table" || status=$?
[ "$status" -eq 4 ] || fail "a prime batch: status $status"
grep -q "micro-batches of one sample, of a batch that is a multiple of [0-9]*: [0-9.]* TiB less" "$WORK/table" || fail "a prime batch: no help"

# ---- a plan of one's own, some candidates of which fail, in all ways
search tests/plans/search/own.lua --cluster "$clusters/node.json" -o "$WORK/own" > "$WORK/table" || fail "own.lua: status $?"
for words in "this way is not made yet" "does it end?" "no such way"; do
  grep -qF "$words" "$WORK/own/search.json" || fail "own.lua: '$words' is not listed"
done
[ "$(value "$WORK/own/search.json" 'd["best"]["settings"].get("way", "plain")')" = plain ] || fail "own.lua: a wrong way was chosen"

# One whose layers leave async_tp nothing to cut, and have no more stages than it has modules: none fails.
search tests/plans/search/steps.lua --cluster "$clusters/four.json" -o "$WORK/steps" > "$WORK/table" 2>&1 || fail "steps.lua: status $?"
[ "$(value "$WORK/steps/search.json" 'all("seconds" in c for c in d["candidates"])')" = True ] || fail "steps.lua: a candidate failed"
[ "$(value "$WORK/steps/search.json" 'any(c["settings"].get("async_tp") for c in d["candidates"])')" = True ] ||
  fail "steps.lua: async_tp was not tried"

# One that crashes: the first that takes long is killed by a signal.
"$TPGEN" tests/plans/search/long.lua --search --cluster "$clusters/four.json" -o "$WORK/crashed" > "$WORK/table" 2>&1 &
searching=$!
killed=
children() { cat "/proc/$searching/task/$searching/children" 2> /dev/null || true; }
while [ -z "$killed" ] && kill -0 "$searching" 2> /dev/null; do
  before=$(children)
  sleep 1
  for process in $(children); do
    [[ " $before " != *" $process "* ]] || { kill -SEGV "$process" && killed=$process && break; }
  done
done
wait "$searching" || fail "a candidate that crashes ends the search: $(cat "$WORK/table")"
[ -n "$killed" ] || fail "no candidate took a second"
grep -qF "was ended by signal 11" "$WORK/crashed/search.json" || fail "a candidate that crashes is not listed as such"
grep -q '^\* ' "$WORK/table" || fail "after a crash nothing is chosen"
# One that takes more than its time: here a second, as the shell says.
(ulimit -t 2 && search tests/plans/search/long.lua --cluster "$clusters/four.json" -o "$WORK/long") > "$WORK/table" 2>&1 ||
  fail "a candidate that is out of time ends the search: $(cat "$WORK/table")"
grep -qF "took more than 1 s for it" "$WORK/long/search.json" || fail "a candidate that is out of time is not listed as such"

# ---- a plan's files that have changed since are written anew
cp -r plans "$WORK/plans"
again=("$WORK/plans/llama3.lua" "${small[@]:1}" -D tp=1 -D pp=1 -D cp=1 --cluster "$clusters/one.json" -o "$WORK/twice")
search "${again[@]}" > /dev/null || fail "the first search: status $?"
echo "-- another line" >> "$WORK/plans/lib/settings.lua"
search "${again[@]}" > "$WORK/log" 2>&1 || fail "the second search into a folder: $(tail -n 2 "$WORK/log")"
cmp -s "$WORK/plans/lib/settings.lua" "$WORK/twice/lib/settings.lua" || fail "lib/settings.lua is that of the first search"

# ---- time: processor time, which does not depend on what else runs as much as the clock does
seconds_of() { # COMMAND...: its processor time, in whole seconds
  python3 -c 'import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(int(used.ru_utime + used.ru_stime) if status == 0 and used.ru_maxrss <= 512 << 10 else f"status {status}, {used.ru_maxrss >> 10} MiB")' "$@"
}
within() { # SECONDS NAME ARGUMENTS...
  local most=$1 name=$2 took
  shift 2
  took=$(seconds_of "$TPGEN" "$@" -D dtype=bfloat16 --search)
  [ "$took" -le "$most" ] 2> /dev/null || fail "$name: a search takes $took, and may take $most s"
}
in_ci within 16 "8B on 128" plans/llama3.lua -D preset=8b -D batch=256 --cluster dgx-h100:16
more within 40 "70B on 512" plans/llama3.lua -D preset=70b -D batch=1024 --cluster dgx-h100:64
more within 60 "405B on 1024" plans/llama3.lua -D preset=405b -D batch=128 --cluster dgx-h100:128
more within 60 "DeepSeek-V3 on 2048" plans/moe.lua -D preset=deepseek-v3 -D batch=4096 --cluster dgx-h100:256

# ---- ends
large=(plans/llama3.lua -D preset=8b -D batch=256 -D dtype=bfloat16 --search --cluster dgx-h100:16)
timeout -s INT 1.5 "$TPGEN" "${large[@]}" > "$WORK/table" && status=0 || status=$?
[ "$status" -eq 124 ] || fail "SIGINT: status $status"
grep -qF "ended" "$WORK/table" || fail "SIGINT: the table says no end"
"$TPGEN" "${large[@]}" --search-time 0.05 > "$WORK/table" && fail "0.05 s were enough"
grep -qF "ended before" "$WORK/table" || fail "--search-time 0.05: $(cat "$WORK/table")"

# ---- at most 1 % slower than the best of all settings, each of them a program of its own
beside_all() { # NAME PLAN DEVICES BATCH CLUSTER OPTIONS -- ARGUMENTS
  local name=$1 plan=$2 devices=$3 batch=$4 cluster=$5 best
  shift 5
  local options=()
  while [ "$1" != -- ]; do options+=("$1") && shift; done
  shift
  set -- --target cuda -D "batch=$batch" "$@"
  python3 tests/tools/exhaustive_search.py "$TPGEN" "$plan" "$devices" "$batch" "${options[@]}" -- "$@" -D "cluster=$cluster" \
    > "$WORK/$name.all" 2> "$WORK/$name.log" || fail "$name: $(tail -n 1 "$WORK/$name.log")"
  search "$plan" "$@" --cluster "$cluster" --ranks 0 -o "$WORK/$name" > "$WORK/$name.table" || fail "$name: status $?"
  best=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["seconds"])' "$WORK/$name.all")
  [ "$(value "$WORK/$name/search.json" "d['best']['seconds'] <= 1.01 * $best")" = True ] ||
    fail "$name: $(value "$WORK/$name/search.json" 'd["best"]["seconds"]') s, and the best of all takes $best: $(cat "$WORK/$name.all")"
}
if [ -n "${CASES:-}" ]; then
  beside_all small plans/llama3.lua 4 8 "$clusters/four.json" --cp --layers 8 -- "${small[@]:1:10}" -D dtype=bfloat16
fi
if all_cases; then
  beside_all 8b plans/llama3.lua 8 64 dgx-h100 --layers 32 -- -D preset=8b -D dtype=bfloat16
  beside_all gpt2 plans/gpt2.lua 8 64 dgx-h100 --layers 48 -- -D dtype=bfloat16 -D dim=1600 -D n_layers=48 -D n_heads=25 \
    -D vocab=50257 -D positions=1024
  beside_all mixtral plans/moe.lua 16 32 dgx-h100:2 --ep --layers 32 --sample 800 -- -D preset=8x7b -D dtype=bfloat16
  beside_all 13b plans/llama3.lua 16 64 dgx-h100:2 --layers 40 --sample 800 -- -D dtype=bfloat16 -D dim=5120 -D n_layers=40 \
    -D n_heads=40 -D n_kv_heads=40 -D hidden=13824 -D vocab=32000 -D seq=4096
  beside_all 8b-32 plans/llama3.lua 32 128 dgx-h100:4 --layers 32 --sample 800 -- -D preset=8b -D dtype=bfloat16
  beside_all 8b-128 plans/llama3.lua 128 256 dgx-h100:16 --layers 32 --sample 800 -- -D preset=8b -D dtype=bfloat16
  beside_all 70b plans/llama3.lua 64 128 dgx-h100:8 --layers 80 --sample 800 --schedules 1f1b,interleaved_1f1b -- \
    -D preset=70b -D dtype=bfloat16
  beside_all 70b-512 plans/llama3.lua 512 1024 dgx-h100:64 --layers 80 --sample 400 -- -D preset=70b -D dtype=bfloat16
  beside_all deepseek plans/moe.lua 256 512 dgx-h100:32 --ep --layers 61 --sample 200 -- -D preset=deepseek-v3 -D dtype=bfloat16
fi

# ---- on each cluster at most 1 % slower than plans of the kind that should win there
beside_kind() { # NAME CLUSTER PLAN ARGUMENTS PINS
  local file=$2 word given=() pins=()
  case $file in *.json) file=$clusters/$file ;; esac
  for word in $4; do given+=(-D "$word"); done
  for word in $5; do pins+=(-D "$word"); done
  given=("plans/$3.lua" "${given[@]}" -D dtype=bfloat16 --target cuda --cluster "$file" --ranks 0)
  search "${given[@]}" -o "$WORK/$1" > "$WORK/$1.table" || fail "$1: status $?"
  search "${given[@]}" "${pins[@]}" -o "$WORK/$1.kind" > "$WORK/$1.kind.table" || fail "$1, $5: status $?"
  local best
  best=$(value "$WORK/$1.kind/search.json" 'd["best"]["seconds"]')
  [ "$(value "$WORK/$1/search.json" "d['best']['seconds'] <= 1.01 * $best")" = True ] || fail "$1: with $5 it takes $best s, and it found
$(grep '^\*' "$WORK/$1.table")"
}
while IFS=$'\t' read -r name cluster plan arguments pins; do
  [ "$name" = name ] || more beside_kind "$name" "$cluster" "$plan" "$arguments" "$pins"
done < "$clusters/meshes.tsv"

# ---- misuse
refuses() {
  local expected=$1 words=$2 status=0
  shift 2
  "$TPGEN" "$@" > "$WORK/log" 2>&1 || status=$?
  [ "$status" -eq "$expected" ] || fail "$*: status $status, not $expected: $(cat "$WORK/log")"
  grep -qF -- "$words" "$WORK/log" || fail "$*: says nothing of '$words': $(cat "$WORK/log")"
}
refuses 2 "must know where the ranks run" plans/llama3.lua --search
refuses 2 "the device H100 says no number of them" plans/llama3.lua --search -D device=H100
refuses 1 "there is no cluster 'dgx-h1'" plans/llama3.lua --search --cluster dgx-h1
refuses 1 "no setting 'tq'" plans/llama3.lua --search --cluster dgx-h100 -D tq=2
refuses 2 "give one of them" plans/llama3.lua --search --cluster dgx-h100 -D cluster=dgx-h100
refuses 2 "what -D says must divide the devices" plans/llama3.lua --search --cluster dgx-h100 -D tp=3
refuses 2 "there is no search without --search" plans/toy.lua --search-time 3 -o "$WORK/no"
refuses 2 "must be a number of seconds" plans/toy.lua --search --search-time soon
refuses 2 "must be a number of seconds" plans/toy.lua --search --search-time -1
refuses 2 "--search takes a plan" plans/toy.lua --search --dump=lua
refuses 2 "declares no setting that a search may vary" tests/plans/search/none.lua --search --cluster dgx-h100
refuses 1 "the kinds are copies" tests/plans/search/kind.lua --search --cluster dgx-h100
refuses 1 "one setting of each kind" tests/plans/search/twice.lua --search --cluster dgx-h100
refuses 2 "and -D microbatches=3" plans/llama3.lua --search --cluster dgx-h100 -D batch=8 -D microbatches=3
refuses 4 "ended before" plans/llama3.lua --search --cluster dgx-h100 --search-time 1e-9
refuses 1 "list the values that a search tries" tests/plans/search/values.lua --search --cluster dgx-h100
refuses 1 "pin: the plan has no setting 'q'" tests/plans/search/pin.lua -o "$WORK/no"

finish "plans are found, written, refused and ended as they should"
