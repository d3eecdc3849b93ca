#!/usr/bin/env bash
# Adapters beside frozen weights that are stored narrower: as bfloat16, in blocks of 8 bits, and as QLoRA's NF4 with double
# quantization. Losses are those of tests/golden/qlora, by PyTorch, PEFT and bitsandbytes, on meshes and on the stand-in; a
# checkpoint, which has the blocks, goes on on another mesh; an export has the adapters merged into the weights' numbers.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
make_runtimes plain cuda
from=$golden/qlora
seq 1 1000 | tr '\n' ' ' > "$WORK/text"
plan=(plans/causal_lm.lua -D "config=$from/config.json" -D lora=4 -D batch=4 -D seq=32 -D lr=0.01 -D steps=8)

# The weights and adapters of the golden losses: those before the first step.
make whole plain "${plan[@]}" && start "$WORK/whole" "$WORK/whole" --steps 0 --export "$WORK/start" --export-adapter "$WORK/adapter" || fail whole

# losses WAY NAME: the program has the golden ones.
losses() {
  awk -v way="$1" '$1 == way { for (i = 2; i <= NF; i++) print $i }' "$from/losses.tsv" > "$WORK/$2.golden"
  same_losses "$2" "$WORK/$2.losses" "$WORK/$2.golden" 2e-6
}

# learns NAME KIND WAY ARGUMENTS...
learns() {
  make "$1" "$2" "${plan[@]}" -D "weight_dtype=$3" "${@:4}" &&
    start "$WORK/$1" "$WORK/$1" --weights "$WORK/start" --adapter "$WORK/adapter" --data "$WORK/text" --export "$WORK/$1.merged" || { fail "$1"; return; }
  losses "$3" "$1"
}
learns nf4 plain nf4
learns nf4_tp plain nf4 -D tp=2 -D dp_shard=2
learns nf4_cuda cuda nf4 -D tp=2
learns int8 plain int8 -D dp_shard=2 -D checkpoint=layer
learns bfloat16 plain bfloat16 -D dp_shard=2
in_ci learns int8_cuda cuda int8 -D dp_shard=2
in_ci learns nf4_layers plain nf4 -D cp=2 -D checkpoint=selective

# In stages, whose ranks lack the tables of others: as on one rank.
stages=(plans/llama3.lua -D lora=4 -D weight_dtype=nf4 -D vocab=256 -D dim=64 -D n_heads=4 -D n_layers=2 -D batch=4 -D seq=32 -D steps=4 -D lr=0.01)
make layers plain "${stages[@]}" && start "$WORK/layers" "$WORK/layers" --data "$WORK/text" || fail layers
make stages plain "${stages[@]}" -D pp=2 -D microbatches=2 && start "$WORK/stages" "$WORK/stages" --data "$WORK/text" || fail stages
same_losses stages "$WORK/stages.losses" "$WORK/layers.losses" 5e-7

# Matrices that files hold as one, in parts of three ranks: no rank has a part of a block.
joined=(plans/causal_lm.lua -D "config=$from/joined.json" -D lora=4 -D batch=6 -D seq=32 -D lr=0.01 -D steps=4)
for type in nf4 int8; do
  make "joined_$type" plain "${joined[@]}" -D "weight_dtype=$type" && start "$WORK/joined_$type" "$WORK/joined_$type" --data "$WORK/text" || fail "joined $type"
  grep -q '14 of .* parameters are stored as' "$WORK/joined_$type/plan.txt" || fail "joined $type: other parameters: $(grep 'stored as' "$WORK/joined_$type/plan.txt")"
  make "uneven_$type" plain "${joined[@]}" -D "weight_dtype=$type" -D dp_shard=3 -D tp=2 &&
    start "$WORK/uneven_$type" "$WORK/uneven_$type" --data "$WORK/text" || fail "uneven $type"
  same_losses "uneven $type" "$WORK/uneven_$type.losses" "$WORK/joined_$type.losses" 5e-7
done

# A matrix [in, out] in parts, of which each block is in one.
parts=(plans/gpt2.lua -D lora=4 -D weight_dtype=int8 -D batch=6 -D seq=32 -D steps=4)
make parts plain "${parts[@]}" && start "$WORK/parts" "$WORK/parts_whole" --data "$WORK/text" || fail parts
make parts_tp plain "${parts[@]}" -D tp=2 && start "$WORK/parts_tp" "$WORK/parts_tp" --data "$WORK/text" || fail "parts, tp=2"
same_losses "parts of [in, out]" "$WORK/parts_tp.losses" "$WORK/parts_whole.losses" 5e-7

# What PEFT merges is the numbers of the weights as they are stored, and the adapters'.
for name in nf4 nf4_tp nf4_cuda; do
  python3 - "$WORK/$name.merged/model.safetensors" "$from/merged.tsv" <<'PYTHON' || fail "$name: other merged weights"
import array, json, sys
with open(sys.argv[1], "rb") as file:
    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    data = file.read()
header.pop("__metadata__", None)
for line in open(sys.argv[2]):
    name, golden = line.split("\t")
    entry = header.pop(name)
    numbers = array.array("f", data[slice(*entry["data_offsets"])])
    found = sum(x * x for x in numbers)
    if entry["dtype"] != "F32" or abs(found - float(golden)) > 2e-6 * float(golden):
        sys.exit(f"{name}: {found}, not {golden}")
sys.exit(f"more tensors: {list(header)}" if header else 0)
PYTHON
done

# Of a weight of 64 numbers a block takes 33 bytes; memory for the frozen ones is that.
frozen=$(sed -n '/"memory_of_rank"/,/}/s/.*"frozen": *\([0-9]*\).*/\1/p' "$WORK/nf4/plan.json")
matrices=$((2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 320 * 64))) others=$((4 * (2 * 256 * 64 + 5 * 64)))
tables=$((frozen - others - matrices / 64 * 33))
[ "$tables" -gt 0 ] && [ "$tables" -lt $((14 * 4 * 280)) ] || fail "nf4: $frozen bytes of frozen weights"

# A run in two parts, the second on another mesh: the checkpoint has the blocks.
start "$WORK/nf4_tp" "$WORK/first" --weights "$WORK/start" --adapter "$WORK/adapter" --data "$WORK/text" --steps 5 &&
  start "$WORK/nf4" "$WORK/second" --load "$WORK/first.saved" --data "$WORK/text" --steps 8 || fail "the second part"
cat "$WORK/first.losses" "$WORK/second.losses" > "$WORK/parts.losses"
losses nf4 parts
python3 - "$WORK/first.saved/model.safetensors" "$WORK/second.saved/model.safetensors" <<'PYTHON' || fail "the blocks of the two parts"
import json, sys
def blocks(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    return {n: (e["shape"], data[slice(*e["data_offsets"])]) for n, e in header.items() if e.get("dtype") == "U8"}
first, second = map(blocks, sys.argv[1:])
sys.exit(len(first) != 14 or first != second)
PYTHON
# Tables of a hostile file lead no kernel out of them.
python3 - "$WORK/first.saved/model.safetensors" <<'PYTHON'
import json, sys
with open(sys.argv[1], "r+b") as file:
    size = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(size))
    name = next(n for n in header if n.endswith("_nested"))
    file.seek(8 + size + header[name]["data_offsets"][0] + 4)
    file.write(b"\x00\x00\x80\x4e") # the shift: 2^30
PYTHON
! start "$WORK/nf4" "$WORK/hostile" --load "$WORK/first.saved" --no-verify --data "$WORK/text" --steps 8 || fail "hostile tables are taken"
grep -q 'no tables of NF4 blocks: the place of the first block is 1.07374e+09, not 0 to 255' "$WORK/hostile.out" || fail "hostile tables: $(tail -n 2 "$WORK/hostile.out")"
finish "frozen weights are stored as QLoRA stores them"
