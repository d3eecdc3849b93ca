#!/usr/bin/env bash
# Frozen parameters, adapters, label smoothing and z-loss have the losses of PyTorch and PEFT, on meshes and on
# the stand-in. Adapters are read from PEFT's files and written as such; an export has them merged. Memory for
# gradients and states is that of the trained parameters.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
plan=tests/plans/lora/plan.lua
data=$golden/lora
from=$data # the weights and adapters
make_runtimes plain cuda

# make NAME KIND ARGUMENTS...
make() {
  local to=$WORK/$1 kind=$2
  shift 2
  [ "$kind" != cuda ] || set -- "$@" --target cuda
  "$TPGEN" $plan "$@" -o "$to" && make_ranks "$to" "$kind" || { fail "$to: no program"; return 1; }
}

# bytes NAME PART: of a rank's memory, by plan.json.
bytes() { sed -n "/\"memory_of_rank\"/,/}/s/.*\"$2\": *\([0-9]*\).*/\1/p" "$WORK/$1/plan.json"; }

# counts NAME: gradients and states are those of the trained parameters.
counts() {
  local trained
  trained=$(bytes "$1" trained)
  [ "$(bytes "$1" gradients)" = "$trained" ] && [ "$(bytes "$1" optimizer)" = $((2 * trained)) ] &&
    [ "$(bytes "$1" parameters)" = $((trained + $(bytes "$1" frozen))) ] ||
    fail "$1: gradients, states and trained parameters do not go together"
}

# trains NAME KIND WAY ARGUMENTS...: its losses are PyTorch's for that way. files: more for the command line.
trains() {
  local name=$1 kind=$2 way=$3
  make "$name" "$kind" "${@:4}" || return
  start "$WORK/$name" "$WORK/$name" --weights "$from/model.safetensors" --data "$data/data.safetensors" "${files[@]}" ||
    { fail "$name"; return; }
  awk -v way="$way" '$1 == way { for (i = 3; i <= NF; i++) print $i }' "$data/losses.tsv" > "$WORK/$name.golden"
  same_losses "$name" "$WORK/$name.losses" "$WORK/$name.golden" 1e-5
  case $way in lora | bias | projections) counts "$name" ;; esac
}

# adapts NAME KIND WAY ARGUMENTS...: trains PEFT's adapters. Those that it writes, and what it merges, are PEFT's.
adapts() {
  local name=$1 files=(--adapter "$from/adapter" --export "$WORK/$1.merged" --export-adapter "$WORK/$1.adapter")
  trains "$@"
  "$TOOLS/compare_safetensors" "$from/trained.safetensors" "$WORK/$name.adapter/adapter_model.safetensors" 2e-5 "$from"/like[1-3].safetensors ||
    fail "$name: other adapters"
  "$TOOLS/compare_safetensors" "$from/merged.safetensors" "$WORK/$name.merged/model.safetensors" 2e-5 ||
    fail "$name: other merged weights"
}

files=()
logs=()
run() {
  logs+=("$WORK/$2.log")
  beside "$WORK/$2.log" "$@"
}
run adapts adapters plain lora -D how=lora
run adapts adapters_tp plain lora -D how=lora -D tp=2
run adapts adapters_dp plain lora -D how=lora -D dp=2
run adapts adapters_dp_tp plain lora -D how=lora -D dp=2 -D tp=2
run adapts adapters_tp3 plain lora -D how=lora -D tp=3
run adapts adapters_cuda cuda lora -D how=lora -D dp=2 -D tp=2
plan=tests/plans/lora/projections.lua from=$data/projections
run adapts parts plain projections
run adapts parts_tp plain projections -D tp=2
run adapts parts_tp3 plain projections -D tp=3 -D first=true -D rows=true
run adapts parts_dp_tp plain projections -D dp=2 -D tp=2 -D rows=true
in_ci run adapts parts_cuda cuda projections -D dp=2 -D tp=2 -D first=true
plan=tests/plans/lora/plan.lua from=$data
run trains bias plain bias -D how=bias
run trains bias_dp_tp plain bias -D how=bias -D dp=2 -D tp=2
run trains bias_cuda cuda bias -D how=bias -D dp=2
run trains smooth plain smooth -D smooth=0.1
run trains smooth_tp plain smooth -D smooth=0.1 -D tp=2
run trains z plain z -D smooth=0.1 -D z=1e-2
run trains z_dp_tp plain z -D smooth=0.1 -D z=1e-2 -D dp=2 -D tp=2
run trains z_cuda cuda z -D smooth=0.1 -D z=1e-2 -D tp=2
all_are_done
cat "${logs[@]}"
for way in lora bias projections; do
  name=${way/lora/adapters}
  name=${name/projections/parts}
  [ "$(bytes $name trained)" = "$(awk -v way=$way '$1 == way { print $2 }' "$data/losses.tsv")" ] ||
    fail "$name: not PyTorch's number of trained bytes"
done

# ---- files ------------------------------------------------------------------------------------------------

config=$WORK/adapters.adapter/adapter_config.json
for line in '"peft_type": "LORA"' '"r": 3' '"lora_alpha": 6' '"bias": "none"' '"up_proj"' '"down_proj"' '"lm_head"' \
  "\"base_model_name_or_path\": \"$data/model.safetensors\""; do
  grep -qF "$line" "$config" || fail "adapter_config.json lacks $line"
done

# A forward takes the adapters that a training wrote; and a checkpoint goes on, on another mesh.
make forward plain -D how=lora -D infer=true -D tp=2 &&
  start "$WORK/forward" "$WORK/forward" --weights "$data/model.safetensors" --adapter "$WORK/adapters_dp.adapter" \
    --data "$data/data.safetensors" || fail "a forward with adapters"
"$TOOLS/compare_safetensors" "$data/outputs.safetensors" "$WORK/forward.saved/outputs.safetensors" 2e-5 ||
  fail "a forward with adapters: other outputs"
start "$WORK/adapters" "$WORK/first" --weights "$data/model.safetensors" --adapter "$data/adapter/adapter_model.safetensors" \
  --data "$data/data.safetensors" --steps 9 &&
  start "$WORK/adapters_dp_tp" "$WORK/rest" --load "$WORK/first.saved" --data "$data/data.safetensors" || fail "going on"
tail -n 11 "$WORK/adapters.golden" > "$WORK/rest.golden"
same_losses "going on" "$WORK/rest.losses" "$WORK/rest.golden" 1e-5

# refuses MESSAGE NAME ARGUMENTS...
refuses() {
  local message=$1 name=$2
  shift 2
  ! start "$WORK/$name" "$WORK/refused" --data "$data/data.safetensors" "$@" > "$WORK/refused.log" 2>&1 ||
    fail "not refused: $*"
  grep -qF -e "$message" "$WORK/refused.log" "$WORK/refused.out" || { cat "$WORK/refused.log"; fail "no '$message'"; }
}
make other plain -D how=lora -D alpha=3
refuses "its lora_alpha is 6, and the program's is 3" other --weights "$data/model.safetensors" --adapter "$data/adapter"
refuses "this program has no adapters" bias --adapter "$data/adapter"
refuses "this program has no adapters" bias --export-adapter "$WORK/none"
refuses "which is not an adapter of the program" adapters --adapter "$data/model.safetensors"
# with_base FROM TO: a copy whose first name is one of a layer that PEFT has wrapped.
with_base() {
  python3 - "$@" << 'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = {k: v for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
first = min(header)
header["base_model.model.up_proj.base_layer.weight"] = header.pop(first)
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
END
}
for file in model trained; do with_base "$data/$file.safetensors" "$WORK/$file.based.safetensors"; done
based="it holds base_model.model.up_proj.base_layer.weight, the base layer of a PEFT model: save the base by model.unload()"
refuses "$based" adapters --weights "$WORK/model.based.safetensors"
refuses "$based" adapters --weights "$data/model.safetensors" --adapter "$WORK/trained.based.safetensors"
mkdir -p "$WORK/foreign" && cp "$data/trained.safetensors" "$WORK/foreign/adapter_model.safetensors"
refuses "which this job would replace" adapters --export-adapter "$WORK/foreign"
finish "frozen parameters and adapters train as in PyTorch and PEFT"
