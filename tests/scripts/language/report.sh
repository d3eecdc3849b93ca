#!/usr/bin/env bash
# --report: report.html has plan.json and nothing that a name runs, the same bytes each time; --report of a folder with a run's
# metrics, and --compare. In CI a browser looks at pages (tests/tools/look_at_report.py).
. "$(dirname "$0")/../common.sh"

# make NAME PLAN ARGUMENTS...: with report.html, in $WORK/NAME.
make() {
  "$TPGEN" "$2" -o "$WORK/$1" --report "${@:3}" 2> "$WORK/notes" || fail "$1: tpgen ended with status $?: $(cat "$WORK/notes")"
}

# What a page has without a browser: its JSON is that of the files, its policy allows just its scripts, no other place is named.
check_page() { # PAGE FOLDER
  python3 - "$1" "$2" <<'PYTHON' || fail "$1: see above"
import base64, hashlib, html, json, os, re, sys
page, folder = sys.argv[1:]
text = open(page, encoding="utf-8").read()
wrong = []
if len(text.encode()) >= 2000000: wrong.append(f"{len(text)} bytes")
scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.S)
if [a for a, _ in scripts] != [' type="application/json" id="data"', "", ""]: wrong.append(f"{len(scripts)} scripts: {[a for a, _ in scripts]}")
data = json.loads(scripts[0][1])
if re.search("[<>&]", scripts[0][1]): wrong.append("a < in the data")
policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
def source(content): return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"
allowed = [source(content) for _, content in scripts[1:]]
if f"script-src {' '.join(allowed)};" not in policy or not policy.startswith("default-src 'none';"): wrong.append("the policy allows other scripts")
style = re.search(r"<style>(.*?)</style>", text, re.S)[1]
if f"style-src {source(style)};" not in policy: wrong.append("the policy allows other styles")
if re.search(r"<(link|img|iframe|object|embed|base|form)\b", text[:text.index("<script")]): wrong.append("an element that loads")
def files(data, folder):
    for name, there in [("plan.json", data.get("plan")), ("search.json", data.get("search"))] + list(data.get("stages", {}).items()):
        path = os.path.join(folder, name)
        if os.path.exists(path) and json.load(open(path)) != there: wrong.append(f"another {name}")
files(data, folder)
step = data["plan"].get("simulated_step")
facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text, re.S))
if step and "tokens_per_second" in step and facts.get("Tokens a second") != f"{int(step['tokens_per_second']):,}": wrong.append("other tokens in the head")
if step and facts.get("MFU") != f"{100 * step['mfu']:.1f} %": wrong.append("another MFU in the head")
if "<" in facts["Plan"] or facts["Plan"] != html.escape(data["plan"]["plan"]): wrong.append("another plan in the head")
sizes = re.search(r"const sizes = {(.*?)};", scripts[2][1])[1]
types = json.load(open("plans/plan.schema.json"))["$defs"]["type"]["enum"]
if sorted(re.findall(r"(\w+):", sizes)) != sorted(types): wrong.append(f"the bytes of a rank by types {sizes}, not {types}")
for w in wrong: print(f"{page}: {w}")
sys.exit(bool(wrong))
PYTHON
}

llama=plans/llama3.lua
large=(-D preset=405b -D tp=8 -D dp=128 -D seq=8192 -D batch=128 -D cluster=dgx-h100:128 -D dtype=bfloat16 -D checkpoint=layer
  --target cuda --ranks 0-7)
stages=(-D tp=2 -D pp=2 -D microbatches=4 -D batch=8 -D dp=2 -D n_layers=5 -D cluster=dgx-h100 --target cuda)
make toy plans/toy.lua
make large $llama "${large[@]}"
make stages $llama "${stages[@]}"
make hostile tests/plans/hostile_page.lua
for name in toy large stages hostile; do check_page "$WORK/$name/report.html" "$WORK/$name"; done
mv "$WORK/stages/report.html" "$WORK/first.html"
make stages $llama "${stages[@]}"
cmp "$WORK/first.html" "$WORK/stages/report.html" || fail "another page of the same plan"

# All other files are those without --report, but for plan.json.
"$TPGEN" $llama -o "$WORK/without" "${stages[@]}" || fail "without --report: status $?"
diff -rq -x 'plan*.json' -x report.html -x files.txt "$WORK/stages" "$WORK/without" || fail "--report changes other files"

# The timeline is that of trace.json: as many runs, and the same end.
make traced $llama -D tp=2 -D dp=2 -D device=A100 --target cuda --trace
python3 - "$WORK/traced" <<'PYTHON' || fail "the timeline is not that of trace.json"
import json, sys
plan = json.load(open(sys.argv[1] + "/plan.json"))["timeline"]
trace = [e for e in json.load(open(sys.argv[1] + "/trace.json"))["traceEvents"] if e["ph"] == "X"]
assert len(trace) == len(plan["runs"]) > 20, (len(trace), len(plan["runs"]))
for e, r in zip(trace, plan["runs"]):
    assert abs(e["ts"] * 1000 - r[4]) <= 1 and abs(e["dur"] * 1000 - r[5]) <= 2, (e, r)
PYTHON

# The bytes of a rank to others are those that its collectives send.
python3 - "$WORK/traced/plan.json" <<'PYTHON' || fail "the pairs have other bytes than the collectives"
import json, sys
plan = json.load(open(sys.argv[1]))
sent = sum(c["sent"] * c["times"] for c in plan["collectives"])
rows = [sum(row) for row in plan["pairs"]["bytes"]]
assert max(rows) <= sent <= 1.02 * max(rows) + 4096, (sent, rows)
PYTHON

# At its peak the memory over the step is what lives at once.
python3 - "$WORK/toy/plan.json" "$WORK/traced/plan.json" "$WORK/large/plan.json" <<'PYTHON' || fail "the memory over the step has another peak"
import json, sys
for path in sys.argv[1:]:
    plan = json.load(open(path))
    peak = max(kept + rest for _, kept, rest in plan["memory_over_time"]["activations"])
    bound = plan["memory_of_rank"]["activations_bound"]
    assert 0.6 * bound < peak <= bound, (path, peak, bound)
PYTHON

# ---- a run
printf '%s\n' '{"step": 1, "loss": 2.5, "seconds": 0.02, "</script><script>window.hacked=1</script>": 3}' \
  '{"step": 2, "loss": null, "seconds": 0.01}' '{"step": 2, "validation_loss": 2.25}' '{"step": 3, "lo' | head -c -1 > "$WORK/metrics.jsonl"
"$TPGEN" --report "$WORK/traced" --metrics "$WORK/metrics.jsonl" || fail "--report FOLDER: status $?"
check_page "$WORK/traced/run.html" "$WORK/traced"
grep -q '"metrics":\[{"step":1,"loss":2.5' "$WORK/traced/run.html" || fail "the page has no metrics"
"$TPGEN" --report "$WORK/traced" --metrics "$WORK/metrics.jsonl" || fail "a page is not written anew: status $?"

# ---- two plans
make other $llama -D tp=4 -D device=A100 --target cuda
"$TPGEN" --compare "$WORK/traced" "$WORK/other" -o "$WORK/both.html" > "$WORK/both" || fail "--compare: status $?"
check_page "$WORK/both.html" "$WORK/traced"
for words in 'mesh  *dp=2 tp=2  *dp=1 tp=4' 'placements that differ' 'memory of a rank' 'all_gather over tp.* differs'; do
  grep -q "$words" "$WORK/both" || fail "--compare does not say '$words': $(cat "$WORK/both")"
done
"$TPGEN" --compare "$WORK/traced" "$WORK/traced" > "$WORK/same" || fail "--compare of one: status $?"
grep -q 'the placements of parameters are the same' "$WORK/same" && ! grep -q 'differs\| [+-][0-9.]* %$' "$WORK/same" || fail "a program differs from itself: $(cat "$WORK/same")"

# ---- wrong use: refused WORDS ARGUMENTS...
refused() {
  local status=0
  "$TPGEN" "${@:2}" > "$WORK/said" 2>&1 || status=$?
  [ $status -eq 2 ] || [ $status -eq 3 ] || fail "${*:2}: status $status"
  grep -q '^tpgen: error: ' "$WORK/said" && grep -qF -- "$1" "$WORK/said" || fail "${*:2}: $(cat "$WORK/said")"
}
mkdir "$WORK/empty" "$WORK/broken"
echo '{"plan": ' > "$WORK/broken/plan.json"
echo mine > "$WORK/mine.html"
refused "give a folder that tpgen wrote" --compare "$WORK/toy" "$WORK/empty"
refused "give a folder that tpgen wrote" --report "$WORK/empty"
refused "it is not what tpgen writes" --report "$WORK/broken"
refused "--compare: give two directories" --compare "$WORK/toy"
refused "--metrics is for --report DIRECTORY" plans/toy.lua -o "$WORK/toy" --metrics "$WORK/metrics.jsonl"
refused "say where report.html goes" plans/toy.lua --report --dump=plan
refused "is no page that tpgen wrote" --report "$WORK/toy" -o "$WORK/mine.html"
echo '[1]' > "$WORK/list.jsonl"
refused "list.jsonl:1: it is no line of a run's --metrics" --report "$WORK/toy" --metrics "$WORK/list.jsonl"
cmp "$WORK/mine.html" <(echo mine) || fail "a file of somebody else is overwritten"
refused "No such file" --report "$WORK/toy" --metrics "$WORK/none.jsonl"

pages=4
if ci_cases; then
  command -v chromedriver > /dev/null || fail "no chromedriver: ./setup.sh ci installs it"
  make meshes $llama -D preset=70b -D dp_replicate=2 -D dp_shard=8 -D cp=4 -D tp=8 -D cluster=dgx-h100:64 -D dtype=bfloat16 -D checkpoint=layer \
    -D batch=16 --target cuda --ranks 0-7
  make experts plans/moe.lua -D dp=4 -D ep=4 -D device=A100 --target cuda
  make generates plans/generate.lua -D tp=2
  "$TPGEN" $llama -D dim=512 -D n_layers=8 -D hidden=1408 -D vocab=8192 -D seq=1024 -D batch=32 -D dtype=bfloat16 --search \
    --cluster "$golden/search/node.json" -o "$WORK/searched" --report > "$WORK/table" || fail "the search: status $?"
  "$TPGEN" $llama -D preset=8b -D batch=8 --search --cluster "$golden/search/one.json" -o "$WORK/nothing" --report > "$WORK/table" && fail "something fits"
  for name in meshes experts generates searched; do check_page "$WORK/$name/report.html" "$WORK/$name"; done
  pages=(toy large stages hostile meshes experts generates searched)
  python3 tests/tools/look_at_report.py "${pages[@]/#/$WORK/}" || fail "the browser sees faults"
  PAGE=run.html python3 tests/tools/look_at_report.py "$WORK/traced" || fail "the browser sees faults in a run"
  pages=$((${#pages[@]} + 1))
fi
finish "$pages pages"
