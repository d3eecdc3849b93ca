#!/usr/bin/env bash
# The rotary embedding of a config.json is transformers': both spellings at once, YaRN with each of its keys, lengths beside it.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
make_runtime plain > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime does not compile"; }
mkdir "$WORK/configs"
cp -r plans/lib tests/plans/rotary_of_configs.lua "$WORK/configs"
python3 - "$golden/configs/rotary.json" "$WORK/configs" <<'PYTHON'
import json, sys
for name, row in json.load(open(sys.argv[1]))["variants"].items():
    json.dump(row["config"], open(f"{sys.argv[2]}/{name}.json", "w"))
PYTHON
mapfile -t names < <(cd "$WORK/configs" && printf '%s\n' *.json | sed 's/\.json$//')
saved=()
for ((i = 0; i < ${#names[@]}; i += 7)); do # a plan reads few files
  some=$(IFS=, && echo "${names[*]:i:7}")
  "$TPGEN" "$WORK/configs/rotary_of_configs.lua" -o "$WORK/p$i" -D "configs=$WORK/configs" -D "names=$some" || { fail "$some: no program"; continue; }
  make_ranks "$WORK/p$i" plain && "$WORK/p$i/rank0" --save "$WORK/s$i" > "$WORK/log" 2>&1 || { fail "$some: $(tail -n 2 "$WORK/log")"; continue; }
  saved+=("$WORK/s$i"/*.safetensors)
done
python3 tests/tools/check_rotary.py "$golden/configs/rotary.json" "${saved[@]}" || fail "other tables than transformers'"
finish "${#names[@]} variants of config.json"
