#!/usr/bin/env bash
# Files of weights as people have them: buffers, heads that are embeddings, stale indices and layers that no model runs are left
# out; what is quantized is named so; --ignore, --allow-missing and several --weights. Nothing else is left out.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
make_runtime plain > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime does not compile"; }

"$TPGEN" plans/gpt2.lua -o "$WORK/gpt2" -D n_layers=2 -D dim=32 -D n_heads=2 -D vocab=64 -D positions=16 -D batch=2 &&
  make_ranks "$WORK/gpt2" plain || fail "no program"
edit() { python3 tests/tools/edit_safetensors.py "$@" || fail "edit_safetensors.py $*"; }
# losses NAME ARGUMENTS...: those of three steps.
losses() {
  "$WORK/gpt2/rank0" --steps 3 --metrics "$WORK/$1.jsonl" "${@:2}" > "$WORK/$1.out" 2>&1 || { fail "$1: status $?: $(tail -n 2 "$WORK/$1.out")"; return; }
  losses_of "$WORK/$1.jsonl"
}
"$WORK/gpt2/rank0" --steps 0 --export "$WORK/plain" > "$WORK/log" 2>&1 || fail "--export: $(tail -n 2 "$WORK/log")"
own=$WORK/plain/model.safetensors
prefix=$(python3 -c 'import json, sys; f = open(sys.argv[1], "rb"); n = int.from_bytes(f.read(8), "little")
print(next(k for k in json.loads(f.read(n)) if k.endswith("wte.weight"))[: -len("wte.weight")])' "$own")
# Other weights than those without --weights, so that a file that is not read shows.
edit "$own" "$WORK/own.safetensors" "rename=${prefix}h.0.ln_1.weight:t" "rename=${prefix}h.1.ln_2.bias:${prefix}h.0.ln_1.weight" "rename=t:${prefix}h.1.ln_2.bias"
own=$WORK/own.safetensors
losses plain --weights "$own" > "$WORK/plain.losses"
losses drawn > "$WORK/drawn.losses"
! cmp -s "$WORK/plain.losses" "$WORK/drawn.losses" || fail "the weights of the file make no difference"

# taken NAME EDIT...: the file, so changed, gives the same losses. With NOTE the program says it.
taken() {
  edit "$own" "$WORK/$1.safetensors" "${@:2}"
  losses "$1" --weights "$WORK/$1.safetensors" > "$WORK/$1.losses"
  cmp "$WORK/$1.losses" "$WORK/plain.losses" || fail "$1: other losses"
  if [ -n "${NOTE:-}" ]; then
    grep -q "^note: .*$NOTE" "$WORK/$1.out" || fail "$1: no note of '$NOTE'"
  else
    ! grep '^note: ' "$WORK/$1.out" | grep -v 'without --data' || fail "$1: a note without need"
  fi
}
taken masks "add=${prefix}h.0.attn.bias:F32:1x1x16x16" "add=${prefix}h.1.attn.bias:BOOL:1x1x16x16" "add=${prefix}h.0.attn.masked_bias:F32"
taken inv_freq "add=model.layers.0.self_attn.rotary_emb.inv_freq:F32:4" "add=embeddings.position_ids:I64:1x16"
taken tied "copy=${prefix}wte.weight:lm_head.weight"
taken head_only "rename=${prefix}wte.weight:lm_head.weight"
NOTE="3 tensors of layers that predict" taken prediction "add=mtp.fc.weight:F32:4x4" "add=model.layers.2.eh_proj.weight:F32:4x4" "add=model.layers.2.enorm.weight:F32:4"

# refused WORDS NAME EDIT...
refused() {
  local status=0
  edit "$own" "$WORK/$2.safetensors" "${@:3}"
  "$WORK/gpt2/rank0" --steps 1 --weights "$WORK/$2.safetensors" > "$WORK/$2.out" 2>&1 || status=$?
  [ "$status" -eq 1 ] && grep -qF -- "$1" "$WORK/$2.out" || fail "$2: status $status, $(tail -n 2 "$WORK/$2.out")"
}
refused "is another tensor than" other_head "copy=${prefix}wte.weight:lm_head.weight" change=lm_head.weight
refused "does not know; --ignore 'new.weight'" unknown add=new.weight:F32:4
refused "does not know" bias "add=${prefix}h.0.attn.bias:F32:32"
refused "does not know" deeper "add=${prefix}h.2.ln_1.weight:F32:32"
refused "it has no ln_f.bias (${prefix}ln_f.bias)" lacks "drop=${prefix}ln_f.bias"
refused "quantized (float8 in blocks with scales)" fp8 "add=${prefix}h.0.mlp.c_fc.weight_scale_inv:F32:1x1"
refused "quantized (AWQ or GPTQ)" awq "rename=${prefix}h.0.mlp.c_fc.weight:${prefix}h.0.mlp.c_fc.qweight" "add=${prefix}h.0.mlp.c_fc.scales:F16:1x4"
refused "quantized (bitsandbytes in 4 bits)" bnb "add=${prefix}h.0.mlp.c_fc.weight.absmax:F32:4"
refused "quantized (compressed-tensors" int8 "add=${prefix}h.0.mlp.c_fc.weight_scale:F32:4x1"

# ---- what the user says
losses ignored --weights "$WORK/unknown.safetensors" --ignore 'visual.*' --ignore 'new.*' > "$WORK/ignored.losses"
cmp "$WORK/ignored.losses" "$WORK/plain.losses" || fail "--ignore: other losses"
losses lacking --weights "$WORK/lacks.safetensors" --allow-missing '*ln_f.bias' > "$WORK/lacking.losses"
cmp "$WORK/lacking.losses" "$WORK/plain.losses" || fail "--allow-missing: other losses than with the same zeros"
edit "$own" "$WORK/part1.safetensors" "drop=${prefix}wte.weight"
python3 - "$own" "$WORK/part2.safetensors" "${prefix}wte.weight" <<'PYTHON'
import json, struct, sys
f = open(sys.argv[1], "rb"); n = struct.unpack("<Q", f.read(8))[0]; t = json.loads(f.read(n))[sys.argv[3]]
f.seek(8 + n + t["data_offsets"][0]); data = f.read(t["data_offsets"][1] - t["data_offsets"][0])
t["data_offsets"] = [0, len(data)]; head = json.dumps({sys.argv[3]: t}).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(head)) + head + data)
PYTHON
losses parts --weights "$WORK/part1.safetensors" --weights "$WORK/part2.safetensors" > "$WORK/parts.losses"
cmp "$WORK/parts.losses" "$WORK/plain.losses" || fail "two --weights: other losses"
"$WORK/gpt2/rank0" --steps 1 --weights "$own" --weights "$WORK/part2.safetensors" > "$WORK/twice.out" 2>&1 && fail "a tensor in two files is taken"
grep -q 'wte.weight is in .*, too' "$WORK/twice.out" || fail "two files with one tensor: $(tail -n 1 "$WORK/twice.out")"
"$WORK/gpt2/rank0" --steps 1 --ignore 'x' > "$WORK/alone.out" 2>&1 && fail "--ignore without --weights is taken"

# ---- a stale index
mkdir "$WORK/folder"
cp "$own" "$WORK/folder/model-00001-of-00001.safetensors"
index() { # EXTRA
  python3 - "$own" "$WORK/folder/model.safetensors.index.json" "$@" <<'PYTHON'
import json, struct, sys
f = open(sys.argv[1], "rb"); names = [k for k in json.loads(f.read(struct.unpack("<Q", f.read(8))[0])) if k != "__metadata__"]
json.dump({"weight_map": {n: "model-00001-of-00001.safetensors" for n in names + sys.argv[3:]}}, open(sys.argv[2], "w"))
PYTHON
}
index mtp.fc.weight
losses stale --weights "$WORK/folder" > "$WORK/stale.losses"
cmp "$WORK/stale.losses" "$WORK/plain.losses" || fail "a stale index: other losses"
finish "7 files are taken, 9 refused"
