#!/usr/bin/env bash
# Weights that a file has in fewer bits, with scales (tests/golden/packed): float8 in blocks, MXFP4. A program that reads them,
# on one rank and cut over two and three in every dimension, has what PyTorch makes of them, to the bit. Scales of other shapes
# are refused.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
make_runtimes plain sanitized
of=$golden/packed

# reads NAME KIND TP CUT
reads() {
  make "$1" "$2" tests/plans/packed/plan.lua -D tp="$3" ${4:+-D cut="$4"} || return 0
  "$WORK/$1/ranks" --weights "$of/packed.safetensors" --steps 0 --export "$WORK/$1.exported" > "$WORK/$1.out" 2>&1 ||
    { tail -n 3 "$WORK/$1.out"; fail "$1: status $?"; return 0; }
  "$TOOLS/compare_safetensors" "$of/widened.safetensors" "$WORK/$1.exported/model.safetensors" 0 > "$WORK/$1.difference" 2>&1 ||
    { cat "$WORK/$1.difference"; fail "$1: other numbers"; }
}
reads one plain 1 ""
reads experts sanitized 2 0
reads rows plain 3 1
reads columns sanitized 2 2

# refused WORDS EDIT...: of a copy, beside the same config.json.
mkdir "$WORK/other"
cp "$of/config.json" "$WORK/other"
refused() {
  local status=0
  python3 tests/tools/edit_safetensors.py "$of/packed.safetensors" "$WORK/other/model.safetensors" "${@:2}" || fail "${*:2}"
  "$WORK/columns/ranks" --weights "$WORK/other" --steps 0 > "$WORK/refused" 2>&1 || status=$?
  [ $status -eq 1 ] && grep -qF -- "$1" "$WORK/refused" || { cat "$WORK/refused"; fail "${*:2}: not refused with $1"; }
}
up=model.up.weight mixed=model.mixed.gate_up_proj
for shape in F32:3x4 F32:4x3 F32 F32:9 F32:1x3x3 F16:3x3 F32:1x1 I64:3x3; do
  refused "a float32 or bfloat16 scale for each block of 16 x 32 of $up: 3 rows of 3" drop=${up}_scale_inv "add=${up}_scale_inv:$shape"
done
for shape in U8:3x20x3 U8:3x20 U8:20x3x2 U8:3x20x2x1 U8; do
  refused "$mixed""_scales a byte for each 16 of them" drop=${mixed}_scales "add=${mixed}_scales:$shape"
done
refused "is to be bytes" drop=${mixed}_blocks "add=${mixed}_blocks:U8:3x20x2x17"
refused "quantized (MXFP4)" drop=${mixed}_scales
refused "F8_E4M3 [40, 70] in the file" drop=${up}_scale_inv
refused "twice, once with scales" "add=$mixed:F32:3x64x20"
refused "quantized (float8 in blocks with scales)" drop=$up
refused "F32 [40, 70] in the file, but F32 [70, 40]" "rename=$up:t" "rename=${up}_scale_inv:t_scale_inv" drop=model.down.weight \
  drop=model.down.weight_scale_inv "rename=t:model.down.weight" "rename=t_scale_inv:model.down.weight_scale_inv"
for sizes in '[16]' '[0, 32]' '"x"' '[16, 32, 1]' '[16.5, 32]' '[128, 128]' '[1e30, 1]'; do
  echo "{\"quantization_config\": {\"weight_block_size\": $sizes}}" > "$WORK/other/config.json"
  refused "$([[ $sizes == *128* ]] && echo 'block of 128 x 128' || echo 'weight_block_size is not two whole numbers')"
done
finish "float8 in blocks and MXFP4 are what PyTorch makes of them; 29 files are refused"
