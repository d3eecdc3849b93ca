#!/usr/bin/env bash
# --search --cluster this: of six models the plans that the search has tried on this machine are built, and run in turn; how far
# the chosen one is from the quickest. Ranks and threads are those of the machine; with 2 cores plans have 1 or 2 ranks.
# Prints for each model the chosen plan, the quickest one and the ratio of their steps, measured; and, for each plan, the
# simulated step beside the measured one: the least of all steps, as other work of the machine only adds to it, and the median
# of the rounds' least. It fails where a ratio of the least is above 1.05.
#   ROUNDS (5)    STEPS   steps of a run (8)    MOST   plans of a model (12): the quickest simulated ones
#   ONLY          a pattern: these models
#   KEEP          a folder for the programs
#   FIRST         a command before each run, as in "chrt -f 10", ahead of other work of the machine
set -euo pipefail
. "$(dirname "$0")/common.sh"
rounds=${ROUNDS:-$(short_or 1 5)} steps=${STEPS:-$(short_or 2 8)} most=${MOST:-$(short_or 3 12)}
if [ -n "${KEEP:-}" ]; then
  trap - EXIT
  work=$KEEP && mkdir -p "$work"
fi
read -ra first <<< "${FIRST:-}"
cd "$root"
has_peer python3 "$PYTHON" -c 'import json' || exit 0

# name, plan, settings
models=(
  "llama  plans/llama3.lua  dim=256 n_layers=4 n_heads=4 n_kv_heads=2 hidden=704 vocab=2048 seq=128 batch=4"
  "gpt2   plans/gpt2.lua    dim=256 n_layers=4 n_heads=4 vocab=2048 positions=128 batch=4"
  "vit    plans/vit.lua     dim=192 n_layers=4 n_heads=3 hidden=768 image=64 patch=8 classes=100 batch=8"
  "resnet plans/resnet.lua  image=64 batch=8"
  "moe    plans/moe.lua     dim=192 hidden=384 n_layers=2 n_heads=4 n_kv_heads=4 head_dim=48 vocab=1024 seq=128 batch=4"
  "export plans/torch_export.lua model=tests/golden/torch_export/gpt2.pt2 loss=cross_entropy"
)
is_short && models=("${models[0]}")
wanted() { [[ -z ${ONLY:-} || $1 =~ ${ONLY} ]]; }

# quickest NAME: the settings of the quickest plans that were tried, the chosen one first: -D definitions, a tab, and the seconds.
quickest() {
  "$PYTHON" - "$work/$1.found/search.json" "$most" << 'END'
import json, sys
d = json.load(open(sys.argv[1]))
text = lambda v: str(v).lower() if isinstance(v, bool) else str(v)
rows, seen = [], set()
for c in [d["best"]] + [c for c in d["candidates"] if c["fits"]]:
    line = " ".join("-D " + k + "=" + text(v) for k, v in c["settings"].items())
    if line not in seen: rows.append((line, c["seconds"]))
    seen.add(line)
for line, seconds in rows[: int(sys.argv[2])]: print(line + "\t" + repr(seconds))
END
}

for model in "${models[@]}"; do
  read -r name plan settings <<< "$model"
  wanted "$name" || continue
  read -ra given <<< "$(printf -- '-D %s ' $settings)"
  "$TPGEN" "$plan" --search --cluster this "${given[@]}" -o "$work/$name.found" > "$work/$name.table" 2> "$work/log" ||
    { cat "$work/log" && exit 1; }
  quickest "$name" > "$work/$name.plans"
  n=0
  while IFS=$'\t' read -r definitions _; do
    read -ra given <<< "$definitions"
    "$TPGEN" "$plan" "${given[@]}" --cluster this -o "$work/$name.$n" > "$work/log" 2>&1 || { cat "$work/log" && exit 1; }
    rm -f "$work/$name.$n.times"
    "$work/$name.$n/run.sh" --steps 1 > "$work/log" 2>&1 || { cat "$work/log" && exit 1; }
    n=$((n + 1))
  done < "$work/$name.plans"
done
for ((i = 0; i < rounds; i++)); do
  for model in "${models[@]}"; do
    read -r name _ <<< "$model"
    wanted "$name" || continue
    for ((k = 0; k < $(wc -l < "$work/$name.plans"); k++)); do
      "${first[@]}" "$work/$name.$k/run.sh" --steps "$steps" --log-every 1 --metrics "$work/metrics" > "$work/log" 2>&1 ||
        { cat "$work/log" && exit 1; }
      sed -n 's/.*"seconds": *\([0-9.e+-]*\).*/\1/p' "$work/metrics" | sort -g | head -n 1 >> "$work/$name.$k.times"
    done
  done
done
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg)"
for model in "${models[@]}"; do
  read -r name _ <<< "$model"
  wanted "$name" || continue
  k=0
  while IFS=$'\t' read -r definitions seconds; do
    printf '%s\t%s\t%s\t%s\n' "$(sort -g "$work/$name.$k.times" | head -n 1)" "$seconds" "$definitions" "$(median "$work/$name.$k.times")"
    k=$((k + 1))
  done < "$work/$name.plans" > "$work/$name.measured"
  awk -F '\t' -v name="$name" '
    NR == 1 { chosen = $1; plan = $3 }
    NR == 1 || $1 < best { best = $1; quickest = $3 }
    { printf "  %-8s %10.3f ms measured, median %10.3f ms; %10.3f ms simulated  %s\n", name, 1e3 * $1, 1e3 * $4, 1e3 * $2, $3 }
    END { printf "%s: chosen / quickest %.3f: %s; quickest: %s\n", name, chosen / best, plan, quickest; exit chosen > 1.05 * best }
  ' "$work/$name.measured" || failed=1
done
[ -z "${failed:-}" ] || is_short
