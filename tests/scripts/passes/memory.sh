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
