#!/usr/bin/env bash
# Programs of archives that torch.export saved: outputs, losses and norms of gradients are PyTorch's, on one rank and
# on meshes, as exported and decomposed to core ATen, on both targets; damaged archives are refused.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
plan=plans/torch_export.lua
data=$golden/torch_export
cp -r plans/lib "$WORK" # for plans that are made here
for kind in plain cuda; do
  make_runtime $kind > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime of $kind programs"; }
done

# make NAME KIND ARGUMENTS...
make() {
  local to=$WORK/$1 kind=$2
  shift 2
  [ "$kind" != cuda ] || set -- "$@" --target cuda
  "$TPGEN" $plan "$@" -o "$to" > "$to.made" && make_ranks "$to" "$kind" || { fail "$to: no program"; return 1; }
}

# trains NAME KIND MODEL FORM ARGUMENTS...: its losses and norms are PyTorch's, with weights from the archive.
steps=10
within=(2e-5 2e-4)
trains() {
  local name=$1 kind=$2 model=$3 form=$4 key
  make "$name" "$kind" -D "model=$data/$model$form.pt2" -D beta2=0.95 -D weight_decay=0.1 -D clip=1.0 "${@:5}" || return
  start "$WORK/$name" "$WORK/$name" --data "$data/$model.batch.safetensors" || { fail "$name"; return; }
  for key in loss grad_norm; do
    numbers $key "$WORK/$name.jsonl" > "$WORK/$name.$key"
    awk -v key=$key 'NR > 1 { print key == "loss" ? $1 : $2 }' "$data/$model.tsv" > "$WORK/$name.$key.golden"
    near "$name $key" "$WORK/$name.$key" "$WORK/$name.$key.golden"
  done
}

# gives NAME MODEL FORM ARGUMENTS...: its output is PyTorch's.
gives() {
  local name=$1 model=$2 form=$3
  make "$name" plain -D "model=$data/$model$form.pt2" -D loss=none "${@:4}" || return
  start "$WORK/$name" "$WORK/$name" --data "$data/$model.input.safetensors" || { fail "$name"; return; }
  "$TOOLS/compare_safetensors" "$data/$model.output.safetensors" "$(find "$WORK/$name.saved" -name '*.safetensors')" 1e-5 ||
    fail "$name: another output"
}

# adapts NAME KIND ARCHIVE MATCH ARGUMENTS...: adapters beside its weights have the losses of W + 2 B A.
adapts() {
  local name=$1 from=$data/adapters/$3
  make "$name" "$2" -D "model=$data/$3.pt2" -D lora=3 -D "lora_match=$4" -D lr=0.01 -D steps=6 "${@:5}" || return
  start "$WORK/$name" "$WORK/$name" --data "$from/data.safetensors" --adapter "$from" || { fail "$name"; return; }
  numbers loss "$WORK/$name.jsonl" > "$WORK/$name.loss"
  same_losses "$name" "$WORK/$name.loss" "$from/losses.tsv" 1e-6
}

# Frozen matrices in 4 bits, or in bfloat16 where rows are no whole blocks: ranks have the losses of one.
packs() {
  local name packed=(-D "model=$data/llama.pt2" -D lora=3 -D 'lora_match=q_proj|v_proj|down_proj' -D weight_dtype=nf4 -D steps=6)
  make packed_one plain "${packed[@]}" && make packed plain "${packed[@]}" -D tp=2 -D dp=2 -D dp_shard=2 || return
  for name in packed_one packed; do
    start "$WORK/$name" "$WORK/$name" --data "$data/adapters/llama/data.safetensors" --adapter "$data/adapters/llama" || { fail "$name"; return; }
  done
  same_losses packed "$WORK/packed.losses" "$WORK/packed_one.losses" 1e-6
}

# Families of operators: each archive has some dozens, and its output the numbers of all. CASES=all: decomposed, too.
for family in elementwise reductions shapes indices composed everyday ordered whole drawn special matrices decompositions signals images images_train recurrent storages attention views places; do
  for form in '' .core; do
    [ -e "$data/$family$form.pt2" ] || continue
    [ -z "$form" ] || all_cases || continue
    families+=("$family$form")
    beside "$WORK/of_$family$form.log" trains "of_$family$form" plain "$family" "$form" -D loss=mse
  done
done
more beside "$WORK/projections_core.log" trains projections_core plain projections .core -D loss=mse -D tp=2
beside "$WORK/decomposed.log" trains decomposed plain decomposed .core -D loss=mse
beside "$WORK/drawn_tp.log" trains drawn_tp plain drawn "" -D loss=mse -D tp=2
beside "$WORK/adapted.log" adapts adapted plain llama 'q_proj|v_proj|down_proj' -D tp=2 -D dp=2 -D dp_shard=2
beside "$WORK/adapted_core.log" adapts adapted_core cuda llama.core 'q_proj|v_proj|down_proj' -D tp=2
beside "$WORK/adapted_gpt2.log" adapts adapted_gpt2 plain gpt2 'c_attn|c_fc|wpe' -D dp=2
beside "$WORK/packs.log" packs
beside "$WORK/lossy.log" trains lossy plain lossy "" -D loss=output -D dp=2
beside "$WORK/mixtral.log" trains mixtral plain mixtral "" -D tp=2
beside "$WORK/projections.log" trains projections plain projections "" -D loss=mse -D tp=2
beside "$WORK/bags.log" trains bags plain bags "" -D loss=mse -D dp=2
beside "$WORK/crossed.log" trains crossed plain crossed "" -D loss=mse -D tp=2
mkdir "$WORK/copies" && cp "$data"/mlp.* "$WORK/copies"
data=$WORK/copies beside "$WORK/mlp.log" trains mlp plain mlp "" -D tp=3
beside "$WORK/mlp_core.log" trains mlp_core plain mlp .core -D tp=2 -D dp_shard=2
beside "$WORK/llama.log" trains llama plain llama ""
beside "$WORK/llama_tp.log" trains llama_tp plain llama "" -D tp=2
more beside "$WORK/llama_fsdp.log" trains llama_fsdp plain llama .core -D dp_shard=2
beside "$WORK/llama_cuda.log" trains llama_cuda cuda llama "" -D tp=2 -D dp_shard=2
beside "$WORK/gpt2.log" trains gpt2 plain gpt2 "" -D tp=2 -D dp_shard=2
more beside "$WORK/gpt2_eager.log" trains gpt2_eager plain gpt2_eager .core -D tp=2
beside "$WORK/qwen3.log" trains qwen3 plain qwen3 "" -D tp=2
more beside "$WORK/qwen3_core.log" trains qwen3_core plain qwen3 .core -D dp_shard=3
beside "$WORK/vit.log" trains vit plain vit "" -D tp=2 -D dp_shard=2
more beside "$WORK/vit_cuda.log" trains vit_cuda cuda vit .core -D tp=2
beside "$WORK/bags_behind.log" gives bags_behind bags_behind ""
beside "$WORK/llama_output.log" gives llama_output llama ""
more beside "$WORK/gpt2_output.log" gives gpt2_output gpt2 "" -D tp=2
more beside "$WORK/vit_output.log" gives vit_output vit .core -D tp=2
beside "$WORK/norm_twice.log" trains norm_twice plain norm_twice "" -D loss=mse
beside "$WORK/unplaced.log" trains unplaced plain unplaced "" -D loss=mse -D tp=2
# One of its convolutions shows what GCC 12 makes wrong code of.
optimized=$released beside "$WORK/numbers.log" trains numbers plain numbers "" -D loss=mse -D dp=2
beside "$WORK/named.log" trains named plain named "" -D loss=mse -D tp=2 -D dp_shard=2
beside "$WORK/own_changes.log" gives own_changes own_changes ""
all_are_done
for family in "${families[@]}"; do cat "$WORK/of_$family.log"; done
for name in adapted{,_core,_gpt2} packs decomposed lossy mixtral projections{,_core} bags crossed mlp{,_core} llama{,_tp,_fsdp,_cuda,_output} gpt2{,_eager,_output} qwen3{,_core} vit{,_cuda,_output} own_changes unplaced numbers named norm_twice; do
  [ ! -e "$WORK/$name.log" ] || cat "$WORK/$name.log"
done

"$TOOLS/compare_safetensors" "$data/norm_twice.saved.safetensors" "$(find "$WORK/norm_twice.saved" -name '*.safetensors')" 1e-5 ||
  fail "norm_twice: other statistics"

# Another export has the same names and shapes: a note tells of it, and it is refused where it has taken the place
# of the archive that the program was made from.
to_mlp=(--steps 11 --data "$data/mlp.batch.safetensors")
start "$WORK/mlp" "$WORK/other" "${to_mlp[@]}" --weights "$data/mlp.core.pt2" && grep -q 'note: .* is another export than' "$WORK/other.out" ||
  fail "mlp: another export's weights without a note"
start "$WORK/mlp_core" "$WORK/other" "${to_mlp[@]}" --load "$WORK/mlp.saved" && grep -q 'note: .* made from another export' "$WORK/other.out" ||
  fail "mlp: another export's checkpoint without a note"
start "$WORK/mlp" "$WORK/same" "${to_mlp[@]}" --load "$WORK/mlp.saved" && ! grep 'another export' "$WORK/same.out" || fail "mlp: its own checkpoint"
cp "$data/mlp.core.pt2" "$WORK/copies/mlp.pt2"
! start "$WORK/mlp" "$WORK/other" "${to_mlp[@]}" > "$WORK/other.log" && grep -q 'another export than.*tpgen' "$WORK/other.log" ||
  fail "mlp: another export in the place of its own"

# The layers of one list are one function, which a loop calls.
grep -q 'for (int l = 0; l < 2; l++)' "$WORK/llama_tp/step.c" || fail "llama: its layers are no loop"

# What makes several things at once is cut part by part: a block has four sums over the ranks, forward and backward,
# and the step one for the norm; the first block's input has no gradient.
grep -q '^  16 collectives of 19,592 bytes' "$WORK/projections/plan.txt" || fail "projections: other collectives"
! all_cases || finds '^  16 collectives of 19,592 bytes' "$WORK/projections_core/plan.txt" || fail "projections, decomposed: other collectives"
! grep 'qkv\|query_key_value\|attn' "$WORK/projections.made" || fail "projections: they are whole"
# So is a weight of which the graph takes parts before it multiplies with them.
grep -q '^  13 collectives of 13,256 bytes' "$WORK/crossed/plan.txt" || fail "crossed: other collectives"
! grep attn "$WORK/crossed.made" || fail "crossed: its attention is whole"

# Attention that was written out, or decomposed, is one operator that knows its mask; so is the rotary embedding.
"$TPGEN" $plan -D "model=$data/gpt2_eager.core.pt2" --dump=lua > "$WORK/gpt2_eager.dump"
[ "$(grep -c ' = attention(.*numbers 1 ' "$WORK/gpt2_eager.dump")" = 2 ] || fail "gpt2_eager: its attention was not recognized"
grep -q '= rotary(self_attn.q_proj' "$WORK/llama_tp/step.c" || fail "llama: its rotary embedding was not recognized"

# ---- an exported Llama under the plan of llama3.lua ----------------------------------------------------------

# The collectives of a program: kind, group, bytes, times and phase of each.
collectives_of() {
  tr -d '\n' < "$1/plan.json" | sed 's/.*"collectives": *\[//; s/\].*//; s/}/}\n/g' |
    sed -n 's/.*\("kind": *"[a-z_]*"\).*\("group": *"[a-z]*"\).*\("bytes": *[0-9]*\).*\("times": *[0-9]*\).*\("phase": *"[a-z]*"\).*/\1 \2 \3 \4 \5/p' |
    LC_ALL=C sort
}
sizes=(dim=32 n_layers=2 n_heads=4 n_kv_heads=2 hidden=80 vocab=300 seq=24 batch=2 lr=1e-3 clip=1.0)
for mesh in "tp=2" "dp_shard=2" "tp=2 dp_shard=2"; do
  read -ra on <<< "$mesh"
  "$TPGEN" plans/llama3.lua "${sizes[@]/#/-D}" "${on[@]/#/-D}" -o "$WORK/written" > "$WORK/written.made" &&
    "$TPGEN" tests/plans/torch_export/llama.lua -D model="$data/llama.pt2" "${on[@]/#/-D}" -o "$WORK/exported" > "$WORK/exported.made" ||
    fail "a Llama, $mesh: no program"
  collectives_of "$WORK/written" > "$WORK/written.collectives"
  collectives_of "$WORK/exported" > "$WORK/exported.collectives"
  [ -s "$WORK/written.collectives" ] || fail "a Llama, $mesh: no collectives"
  diff "$WORK/written.collectives" "$WORK/exported.collectives" || fail "an exported Llama, $mesh: other collectives than plans/llama3.lua"
done

# ---- an exported MLP, as PyTorch's tensor_parallel_transformation transforms it ------------------------------

# parts_of DIRECTORY RANKS: the golden table's rows, of a program: each rank's part of each parameter, and its
# collectives, with the shape of what they bring.
parts_of() {
  local json name shape ranks first last rank
  json=$(tr -d ' \n' < "$1/plan.json")
  sed 's/.*"parameters":\[//; s/\],"collectives".*//; s/{"name":/\n/g' <<< "$json" | while read -r row; do
    name=$(sed -n 's/^"\([^"]*\)".*/\1/p' <<< "$row")
    sed 's/.*"local"://; s/{/\n/g' <<< "$row" | sed -n 's/^"ranks":"\([0-9-]*\)","shape":\[\([0-9,]*\)\].*/\1 \2/p' |
      while read -r ranks shape; do
        first=${ranks%-*} last=${ranks#*-}
        for ((rank = first; rank <= last; rank++)); do printf '%s\t%s\tparameter\t%s\t%s\n' "$2" "$rank" "$name" "${shape//,/, }"; done
      done
  done
  for ((rank = 0; rank < $2; rank++)); do
    sed -n 's/^      [a-z_]* f32\[\(.*\)\]: P(sum) -> R: .*/\1/p' "$1/plan.txt" |
      while read -r shape; do printf '%s\t%s\tcollective\tall_reduce\t%s\n' "$2" "$rank" "$shape"; done
  done
}
# PyTorch's transformation cuts the weights, where auto() cuts the rows, which moves nothing.
sed 's/auto()/{in_proj = Colwise(), out_proj = Rowwise()}/' $plan > "$WORK/cut.lua"
for ranks in 2 3; do
  "$TPGEN" "$WORK/cut.lua" -D "model=$data/mlp.core.pt2" -D loss=none -D tp=$ranks -o "$WORK/cut.$ranks" > "$WORK/cut.made" || fail "mlp on $ranks ranks"
  parts_of "$WORK/cut.$ranks" $ranks | LC_ALL=C sort > "$WORK/cut.$ranks.tsv"
  awk -v n=$ranks '$1 == n' "$data/tensor_parallel_transformation.tsv" | LC_ALL=C sort | diff - "$WORK/cut.$ranks.tsv" ||
    fail "mlp on $ranks ranks: other parts or collectives than PyTorch's"
  grep -q '^  1 collective of 400 bytes' "$WORK/cut.$ranks/plan.txt" || fail "mlp on $ranks ranks: more than one collective"
done

# ---- 32 layers, and 16 GiB of weights, which are nowhere on the disk ------------------------------------------

# deep LAYERS: the least processor time, in milliseconds, of three runs of tpgen on a Llama of so many layers.
deep() {
  local status kib worked least
  "$TOOLS/deepen_archive" "$data/llama.pt2" "$WORK/deep.pt2" "$1" $((1 << 34)) || fail "deep: no archive of $1 layers"
  for _ in 1 2 3; do
    "$TOOLS/run_measured" 60 "$WORK/deep.report" "$TPGEN" $plan -D "model=$WORK/deep.pt2" -D tp=2 -o "$WORK/deep" > "$WORK/deep.made" 2>&1
    read -r status _ kib worked < "$WORK/deep.report"
    [ "$status" = 0 ] || { cat "$WORK/deep.made"; fail "deep: status $status"; }
    [ -z "${least:-}" ] || [ "$worked" -lt "$least" ] && least=$worked
  done
  [ "$kib" -le $((256 * 1024)) ] || fail "deep: $kib KiB are above 256 MiB"
  worked_ms=$least
}
deep 8
few=$worked_ms
deep 32
echo "  deep: tpgen worked $few ms for 8 layers, $worked_ms ms for 32"
grep -q 'for (int l = 0; l < 32; l++)' "$WORK/deep/step.c" || fail "deep: its layers are no loop"
# Four times the layers may take four times as long, plus a constant. A quadratic pass would take sixteen times as long.
[ "$worked_ms" -le $((4 * few + 100)) ] || fail "deep: 8 layers take $few ms, 32 take $worked_ms ms"
rm "$WORK/deep.pt2"

# ---- sizes that were exported as symbols -----------------------------------------------------------------

for batch in "" "-D batch=6"; do
  # shellcheck disable=SC2086
  "$TPGEN" $plan -o "$WORK/dynamic" -D "model=$data/dynamic.pt2" -D loss=none $batch > "$WORK/dynamic.made" ||
    fail "dynamic $batch"
done

# ---- archives that are damaged -----------------------------------------------------------------------------

# refuses NAME FILE TEXT: one message, with this text.
refuses() {
  ! "$TPGEN" $plan -o "$WORK/refused" -D "model=$2" > "$WORK/$1.out" 2> "$WORK/$1.err" || fail "$1: taken"
  grep -q "torch_export\( (-D model)\)\?: .*$3" "$WORK/$1.err" || { cat "$WORK/$1.err"; fail "$1: another message"; }
  [ ! -e "$WORK/refused" ] || fail "$1: it left a program"
}
head -c 20000 "$data/llama.pt2" > "$WORK/short.pt2"
refuses short "$WORK/short.pt2" 'is not an archive'
cp "$data/llama.tsv" "$WORK/text.pt2"
refuses text "$WORK/text.pt2" 'is not an archive'
: > "$WORK/empty.pt2"
refuses empty "$WORK/empty.pt2" 'it is empty'
sed 's/"major":8/"major":9/; s/"major": 8/"major": 9/' "$data/mlp.pt2" > "$WORK/version.pt2"
refuses version "$WORK/version.pt2" 'damaged\|version 9'
sed 's/aten\.relu\.default/aten.rilu.default/' "$data/mlp.pt2" > "$WORK/crc.pt2"
refuses crc "$WORK/crc.pt2" 'damaged'
# In the ZIP's directory: an entry with a length that leads out of the file.
cp "$data/gpt2.pt2" "$WORK/length.pt2"
printf '\273' | dd of="$WORK/length.pt2" bs=1 seek=408482 conv=notrunc status=none
printf '\207' | dd of="$WORK/length.pt2" bs=1 seek=408940 conv=notrunc status=none
refuses length "$WORK/length.pt2" 'has no models/model.json'
refuses changed "$data/changed.pt2" 'changes its parameter a.weight in place'
refuses changed_einsum "$data/changed_einsum.pt2" 'changes in place what .*einsum.* gave, and it cannot be known'
refuses changed_windows "$data/changed_windows.pt2" 'changes in place a view by .*unfold.* several elements at one place in memory'
refuses changed_each "$data/changed_each.pt2" 'needs operators that tpgen does not have: .*_foreach_add_'
refuses decomposed "$data/decomposed.pt2" 'nanquantile.*run_decompositions() has others in their place, .*drops detach()'
refuses kept "$data/kept.pt2" 'linalg_householder_product.*run_decompositions() does not help'
# What would have no effect, as the graph does not call its modules.
printf '%s\n' 'local model = torch_export(args.model)' 'float8(model)' 'return train{model = model}' > "$WORK/float8.lua"
! "$TPGEN" "$WORK/float8.lua" -o "$WORK/refused" -D "model=$data/mlp.pt2" 2> "$WORK/float8.err" || fail "float8 of an archive: taken"
grep -q "float8.lua:2: error: float8: the Linear of line 1 is a module of an archive" "$WORK/float8.err" || fail "float8 of an archive: $(cat "$WORK/float8.err")"
! "$TPGEN" $plan -o "$WORK/refused" -D "model=$data/decompositions.pt2" --target cuda 2> "$WORK/lapack.err" || fail "eigh on CUDA: taken"
grep -q 'error: eigh is computed by LAPACK, on CPUs only: it has no kernel for CUDA' "$WORK/lapack.err" || fail "$(cat "$WORK/lapack.err")"
refuses renormed "$data/own_changes.pt2" 'scales rows of its parameter words.weight .*max_norm'
# Mutants: tpgen makes a program of each or refuses it in one line, and so does the runtime that reads it.
mutants=${MUTANTS:-${SOAK:+100000}}
for archive in storages mlp; do
  "$TOOLS/fuzz_archive" "$data/$archive.pt2" "$WORK/mutant.pt2" 0 "${mutants:-300}" mse > "$WORK/mutants.log" || { cat "$WORK/mutants.log"; fail "mutants of $archive"; }
  "$TOOLS/fuzz_archive_reader" "$data/$archive.pt2" "$WORK/mutant.pt2" 0 "${mutants:-1000}" > "$WORK/mutants.log" || { cat "$WORK/mutants.log"; fail "mutants of $archive, read"; }
done
# Each literal argument of the operators in these archives is taken or refused (tests/golden/torch_export/schemas.tsv).
arguments() {
  python3 tests/tools/export_arguments.py "$TPGEN" "$data" "$WORK" "$at_once" > "$WORK/arguments.silent" 2> "$WORK/arguments" ||
    { cat "$WORK/arguments"; fail "export_arguments.py"; }
  cat "$WORK/arguments"
  [ ! -s "$WORK/arguments.silent" ] || { cat "$WORK/arguments.silent"; fail "arguments that change nothing"; }
}
in_ci arguments
finish "archives as exported and as decomposed, on meshes, with PyTorch's losses; damaged ones refused"
