#!/usr/bin/env bash
# The kernels of large plans, as nvcc compiles them with a release's flags for sm_80, sm_90 and sm_100: none spills registers,
# and each has room for a block at least. Prints how many kernels there are, and of those with 128 registers or more: the
# registers of a thread, the shared memory of a block (KiB, with what the launch adds), the threads of a block, the blocks that
# a multiprocessor has room for, and how much of its 64 warps they are.
# Needs the toolkit, no GPU; skipped with a message if it is missing.
#   REGISTERS="8b moe"   these plans alone
#   ARCHITECTURES="90"   these architectures alone
. "$(dirname "$0")/../common.sh"

nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || {
  echo "registers: SKIPPED: no nvcc in PATH or /usr/local/cuda/bin"
  exit 77
}
read -ra architectures <<< "${ARCHITECTURES:-80 90 100}"

# kernels_of FILE: what ptxas says of each kernel, a line: name, registers, bytes of static shared memory, bytes that it spills.
kernels_of() {
  c++filt < "$1" | awk '
    /Function properties for/ { sub(/.*properties for /, ""); sub(/\(.*/, ""); sub(/^void /, ""); name = $0 }
    /bytes spill stores/ { spilled = 0; for (i = 4; i <= NF; i++) if ($i == "spill") spilled += $(i - 2) }
    /: Used [0-9]+ registers/ {
      shared = 0
      for (i = 1; i <= NF; i++) { if ($i == "Used") used = $(i + 1); if ($i == "smem" || $i == "smem,") shared = $(i - 2) }
      print name, used, shared, spilled
    }'
}

# launches_of FILE: each launch with numbers: kernel, threads of a block, bytes of dynamic shared memory.
launches_of() {
  perl -0777 -ne 'while (/\bLAUNCH(_SHARED)?\((\w+),([^;]*?),\s*(\d+),\s*(?:(\d+),\s*)?\w+\)\(/g) {
    print "$2 $4 ", ($1 ? $5 : 0), "\n" }' "$1" | sort -u
}

# inspect NAME PLAN DEFINITIONS...
inspect() (
  name=$1 plan=$2 arguments=() to=$WORK/$1
  for value in "${@:3}"; do arguments+=(-D "$value"); done
  "$TPGEN" "$plan" -o "$to" --target cuda --ranks 0-0 "${arguments[@]}" && cd "$to" || exit 1
  launches_of step.cu > launches
  for sm in "${architectures[@]}"; do
    "$nvcc" -std=c++20 -O3 -D_GNU_SOURCE -DTPGEN_CUDA -I. -Iruntime ${NCCL_HOME:+"-I$NCCL_HOME/include"} -Xptxas=-v "-arch=sm_$sm" \
      -cubin -o kernels.cubin kernels.cu 2> "ptxas$sm" || { cat "ptxas$sm"; exit 1; }
    kernels_of "ptxas$sm" > "kernels$sm"
    awk -v plan="$name" -v sm="$sm" '
      function least(a, b) { return a < b ? a : b }
      # Registers come in units of 256 for a warp; each block takes a KiB of shared memory more.
      function blocks(registers, shared, threads,   warps, n) {
        warps = int((threads + 31) / 32)
        n = least(32, int(64 / warps))
        n = least(n, int(int(65536 / (256 * int((32 * registers + 255) / 256))) / warps))
        return least(n, int((sm == 80 ? 164 : 228) * 1024 / (shared + 1024)))
      }
      NR == FNR { if (!($1 in threads) || $2 + 0 > threads[$1]) threads[$1] = $2 + 0; if ($3 + 0 > more[$1] + 0) more[$1] = $3; next }
      {
        kernels++
        if ($2 > most) most = $2
        if ($4 > 0) { printf "  %s sm_%d: %s spills %d bytes\n", plan, sm, $1, $4; bad = 1 }
        if (!($1 in threads)) next
        known++
        shared = $3 + more[$1]
        n = blocks($2, shared, threads[$1])
        if (n < 1) { printf "  %s sm_%d: a block of %s has no room\n", plan, sm, $1; bad = 1 }
        if ($2 >= 128)
          row[++rows] = sprintf("  %-8s sm_%-3d %-44s %3d registers %6.1f KiB %4d threads %3d blocks %4.0f %%", plan, sm, $1, $2,
            shared / 1024, threads[$1], n, 100 * n * int((threads[$1] + 31) / 32) / 64)
      }
      END {
        printf "  %-8s sm_%-3d %d kernels, at most %d registers\n", plan, sm, kernels, most
        for (i = 1; i <= rows; i++) print row[i]
        if (!kernels || 2 * known < kernels) { printf "  %s: %d launches of %d kernels are known\n", plan, known, kernels; bad = 1 }
        exit bad
      }' launches "kernels$sm" || exit 1
  done
)
wanted=" ${REGISTERS:-} "
names=()
large() {
  [ -z "${REGISTERS:-}" ] || [[ $wanted == *" $1 "* ]] || return 0
  names+=("$1")
  beside "$WORK/$1.log" or_fail "$@"
}
or_fail() { inspect "$@" || fail "$1"; }

large 8b plans/llama3.lua preset=8b dp=4 tp=8 seq=4096 dtype=bfloat16 checkpoint=layer
large 8b_f32 plans/llama3.lua preset=8b tp=8 seq=4096
large 8b_tf32 plans/llama3.lua preset=8b tp=8 seq=4096 dtype=tf32
large 8b_f8 plans/llama3.lua preset=8b tp=8 seq=4096 dtype=float8
large ring plans/llama3.lua preset=8b cp=8 seq=8192 dtype=bfloat16 documents=2
large wide plans/llama3.lua dim=2048 n_heads=8 head_dim=256 hidden=8192 vocab=32000 seq=4096 tp=2 dtype=bfloat16
large mixtral plans/moe.lua preset=8x7b dp=8 ep=8 seq=4096 dtype=bfloat16
large deepseek plans/moe.lua preset=deepseek-v3 dp=64 ep=64 seq=4096 dtype=bfloat16
large resnet plans/resnet.lua dp=2 dtype=bfloat16
all_are_done
for name in "${names[@]}"; do cat "$WORK/$name.log"; done
finish "${#names[@]} plans for ${#architectures[@]} architectures: no kernel spills"
