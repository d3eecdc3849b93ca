#!/usr/bin/env bash
# A rank's memory is what the plan says. Arenas of Llamas end at most 0.5 % above the largest sum of
# simultaneously live bytes; and the resident memory of a running program, built like a user's, is at most 16
# MiB more than plan.json's figure plus that of a program that only starts MPI and multiplies two matrices, by
# BLAS and by oneDNN, which generates code and allocates memory for each method.
#
# A plan that states a rank's memory is refused if it needs a byte more.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"

# figure NAME: a number of a rank's memory, in $WORK/DIRECTORY/plan.json.
figure() { sed -n "s/^ *\"$2\": *\([0-9]*\),\{0,1\}\$/\1/p" "$WORK/$1/plan.json" | tail -n 1; }

# near_the_bound ARGUMENTS...: of plans/llama3.lua.
arenas=0
near_the_bound() {
  "$TPGEN" plans/llama3.lua "$@" -o "$WORK/arena" || { fail "$*"; return; }
  local placed bound
  placed=$(figure arena activations) bound=$(figure arena activations_bound)
  [ $((placed * 1000)) -le $((bound * 1005)) ] || fail "$*: $placed bytes are placed for $bound"
  arenas=$((arenas + 1))
}
small=(-D dim=256 -D n_layers=6 -D n_heads=8 -D n_kv_heads=4 -D hidden=704 -D vocab=2048 -D seq=128)
wide=(-D dim=256 -D n_heads=8 -D n_kv_heads=4 -D hidden=704 -D vocab=2048 -D seq=128)
bench=(-D dim=512 -D n_layers=8 -D n_heads=8 -D n_kv_heads=4 -D hidden=1408 -D vocab=8192 -D seq=256)
for tp in 1 2 3 4; do
  near_the_bound -D tp=$tp
  near_the_bound "${small[@]}" -D tp=$tp
  near_the_bound "${bench[@]}" -D tp=$tp
  near_the_bound "${bench[@]}" -D tp=$tp -D checkpoint=layer
  near_the_bound "${small[@]}" -D tp=$tp -D dp=2 -D loss_parallel=false
done
near_the_bound -D preset=8b -D tp=8

# A plan is accepted if a rank has exactly the memory that plan.json asks for, and refused with a byte less.
cat > "$WORK/limit.lua" << 'END'
local mesh = device_mesh{ {"tp", 2}, memory = args.memory }
return train{
  model = parallelize(nn.Sequential(nn.Linear(64, 256), nn.ReLU()), mesh.tp, {["0"] = Colwise()}),
  batch = {input = randn{32, 64}}, loss = function(y) return y:var() end, optimizer = AdamW(), steps = 1,
}
END
"$TPGEN" "$WORK/limit.lua" -o "$WORK/limit" || fail "limit: tpgen ended with status $?"
needed=$(figure limit total)
"$TPGEN" "$WORK/limit.lua" -o "$WORK/limit" -D memory="${needed}B" || fail "$needed bytes are not enough for $needed"
! "$TPGEN" "$WORK/limit.lua" -o "$WORK/limit" -D memory="$((needed - 1))B" 2> "$WORK/limit.err" ||
  fail "$((needed - 1)) bytes are enough for $needed"
grep -q 'a rank needs .* of memory, and device_mesh gives it' "$WORK/limit.err" || fail "it says: $(< "$WORK/limit.err")"

# The stages of a rank share its slots. Of four ranks with five stages each and 16 micro-batches, the first one has 23
# in flight at once: these take all but 2 MB of the arena, within 5 %.
"$TPGEN" plans/llama3.lua "${wide[@]}" -D n_layers=40 -D pp=4 -D schedule=interleaved_1f1b -D stages=5 -D microbatches=16 \
  -D batch=16 --ranks 0 -o "$WORK/slots" || fail "slots: tpgen ended with status $?"
each=$(sed -n 's/.* in flight, \([0-9,]*\) bytes .*/\1/p' "$WORK/slots/plan_stage0.txt" | tr -d , | sort -n | tail -n 1)
taken=$(sed -n 's/^  activations *\([0-9,]*\) B.*/\1/p' "$WORK/slots/plan_stage0.txt" | tr -d ,)
[ $((taken - 2000000)) -le $((each * 23 * 105 / 100)) ] || fail "slots: $taken bytes for 23 times $each"

# ZeRO reduces the gradients of each micro-batch into the part that a rank keeps: an eighth of 8B in float32.
"$TPGEN" plans/llama3.lua -D preset=8b -D dp=8 -D zero=1 -D microbatches=4 -D batch=32 -D dtype=bfloat16 --target cuda --ranks 0 \
  -o "$WORK/zero" || fail "zero=1: tpgen ended with status $?"
[ "$(figure zero gradients)" -lt 4020000000 ] || fail "zero=1: gradients of $(figure zero gradients) bytes"

# step DIRECTORY: the simulated step in microseconds.
step() { sed -n 's/^ *"seconds": *\([0-9.e+-]*\),$/\1/p' "$WORK/$1/plan.json" | awk 'NR == 1 { printf "%d", $1 * 1e6 }'; }

# Within 78 GiB 70B is at least 8 % quicker than if it made all layers again.
large=(-D preset=70b -D tp=2 -D dp=32 -D batch=64 -D dtype=bfloat16 -D device=H100 --target cuda --ranks 0)
"$TPGEN" plans/llama3.lua "${large[@]}" -D checkpoint=layer -o "$WORK/layer" || fail "layer: tpgen ended with status $?"
"$TPGEN" plans/llama3.lua "${large[@]}" -D checkpoint=memory -D memory=78GiB -o "$WORK/within" ||
  fail "checkpoint=memory: tpgen ended with status $?"
[ "$(figure within total)" -le $((78 << 30)) ] || fail "within 78 GiB: $(figure within total) bytes"
[ $(($(step within) * 108)) -le $(($(step layer) * 100)) ] || fail "a step takes $(step within) us, $(step layer) with layer"
grep -q '^made again .* of 80 modules' "$WORK/within/plan.txt" || fail "plan.txt does not say what is made again"

# Each limit holds, down to the one that no place meets.
for limit in 1200KB 1100KB 1000KB 900KB 800KB 720KB; do
  "$TPGEN" tests/equal/within.lua -D within=$limit -o "$WORK/less" || { fail "$limit: status $?"; continue; }
  [ "$(figure less total)" -le $((${limit%KB} * 1000)) ] || fail "$limit: $(figure less total) bytes"
  grep -q "made again .*" "$WORK/less/plan.txt" || fail "$limit: plan.txt does not say what is made again"
done
! "$TPGEN" tests/equal/within.lua -D within=600KB -o "$WORK/less" 2> "$WORK/less.err" || fail "600 KB are enough"
grep -q 'a rank has 586.* KiB, and needs .* even if all that it can is made again' "$WORK/less.err" ||
  fail "it says: $(< "$WORK/less.err")"

cat > "$WORK/empty.c" <<'C'
#include <cblas.h>
#include <malloc.h>
#include <mpi.h>
#ifdef TPGEN_ONEDNN
#include <dnnl.h>
#endif

static float a[1024 * 1024], b[1024 * 1024], c[1024 * 1024];

int main(int argc, char **argv)
{
  mallopt(M_MMAP_THRESHOLD, 32 << 20); // as the runtime does
  MPI_Init(&argc, &argv);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1024, 1024, 1024, 1, a, 1024, b, 1024, 0, c,
              1024);
#ifdef TPGEN_ONEDNN
  for (int n = 256; n <= 1024; n *= 2) {
    dnnl_sgemm('N', 'T', 512, n, 512, 1, a, 1024, b, 1024, 0, c, 1024);
    dnnl_sgemm('N', 'N', 512, n, 512, 1, a, 1024, b, 1024, 0, c, 1024);
    dnnl_sgemm('T', 'N', 512, n, 512, 1, a, 1024, b, 1024, 0, c, 1024);
  }
#endif
  MPI_Allreduce(MPI_IN_PLACE, c, 1024, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return MPI_Finalize();
}
C
matrices=$((3 * 4 * 1024)) # KiB
onednn=()
! echo '#include <dnnl.h>' | gcc -E - > /dev/null 2>&1 || onednn=(-DTPGEN_ONEDNN -ldnnl)
gcc -O1 "${includes[@]}" "$WORK/empty.c" -o "$WORK/empty" "${onednn[@]}" "${libraries[@]}" || fail "empty.c"

# peaks NAME PROGRAM ARGUMENTS...: the peak memory of two ranks of it, in KiB.
peaks() {
  local name=$1 program=$2 rank ranks=()
  shift 2
  for rank in 0 1; do
    [ $rank = 0 ] || ranks+=(:)
    ranks+=(-n 1 "$TOOLS/peak_memory" "$WORK/$name.$rank" "${program/RANK/$rank}" "$@")
  done
  timeout 120 "${launch[@]}" "${ranks[@]}" < /dev/null > "$WORK/$name.out" 2>&1 ||
    { fail "$name: status $?"; tail -n 5 "$WORK/$name.out"; }
  sort -n "$WORK/$name.0" "$WORK/$name.1" | tail -n 1
}

for ((i = 0; i < 40000; i++)); do echo "$i squared is $((i * i))"; done > "$WORK/text"
export OMP_NUM_THREADS=1
empty=$(($(peaks empty "$WORK/empty") - matrices))
"$TPGEN" plans/llama3.lua "${small[@]}" -D tp=2 -o "$WORK/llama" &&
  cmake -S "$WORK/llama" -B "$WORK/llama/build" -DCMAKE_C_FLAGS=-O1 > "$WORK/llama.log" 2>&1 &&
  cmake --build "$WORK/llama/build" --parallel 2 >> "$WORK/llama.log" 2>&1 || {
  tail "$WORK/llama.log"
  fail "the Llama does not compile"
}
taken=$(peaks llama "$WORK/llama/build/rankRANK" --steps 2 --data "$WORK/text")
planned=$(($(figure llama total) / 1024))
beyond=$((taken - planned - empty))
echo "  KiB: $taken resident, $planned planned, $empty of MPI and products: $beyond beyond these"
[ $beyond -le $((16 * 1024)) ] || fail "$beyond KiB beyond what is planned"
finish "$arenas arenas within 0.5 % of their bounds; $((beyond / 1024)) MiB beyond the plan's figure"
