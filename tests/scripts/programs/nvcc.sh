#!/usr/bin/env bash
# Plans of plans/, of each kind (CASES=all: each plan), for CUDA, compile with nvcc for sm_90 (SOAK=1: for sm_80 and
# sm_100, too), without a warning, and some link into a binary for each rank; the toy by its own CMakeLists.txt, and as a
# library. The kernels and steps of most cases of tests/operators, of many moves (tests/plans/redistributions), and of
# training, compile for sm_90.
# Needs the toolkit, no GPU; skipped with a message if it is missing.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"

nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || {
  echo "nvcc: SKIPPED: no nvcc in PATH or /usr/local/cuda/bin. The .cu text was only compiled for the stand-in."
  exit 77
}

unoptimized="-Xcicc=-O1 -Xptxas=-O0" # no optimizer takes its time

# ---- by CMakeLists.txt --------------------------------------------------------------------------

by_cmake() {
  generate toy --target cuda --emit library
  cmake -S "$WORK/toy" -B "$WORK/toy/build" -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES=90 \
    -DCMAKE_CUDA_FLAGS="-Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror $unoptimized" > "$WORK/cmake.out" 2>&1 &&
    cmake --build "$WORK/toy/build" --parallel 2 --target ranks library >> "$WORK/cmake.out" 2>&1 || {
    tail -n 40 "$WORK/cmake.out"
    fail "the toy does not build by its CMakeLists.txt"
  }
  [ -e "$WORK/toy/build/libmodel.a" ] || fail "no library"
  for rank in 0 1; do
    find "$WORK/toy/build" -type f -executable -name "*rank$rank" | finds . || fail "no binary for rank $rank"
  done
}

# ---- by hand ---------------------------------------------------------------------------------------

# shellcheck disable=SC2206
flags=(-std=c++20 -Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror $unoptimized -D_GNU_SOURCE
  -DTPGEN_CUDA -I. -Iruntime ${NCCL_HOME:+"-I$NCCL_HOME/include"})
one=(-arch=sm_90) all=()
for sm in ${SOAK:+80} 90 ${SOAK:+100}; do all+=(-gencode "arch=compute_$sm,code=sm_$sm"); done
# The libraries that a program's own CMakeLists.txt names.
mapfile -t linked < <(sed -n 's/.*INTERFACE \(CUDA::.*\) \${NCCL.*/\1/p' templates/program/CMakeLists.cuda.txt |
  tr ' ' '\n' | sed 's/CUDA::/-l/')
linked+=(-lnccl -ljansson -lminizip -lgomp -lpthread ${NCCL_HOME:+"-L$NCCL_HOME/lib"})

# The runtime, which is the same for all of them, in $WORK/runtime.
nvcc_runtime() (
  "$TPGEN" plans/toy.lua -o "$WORK/first" --target cuda && mkdir "$WORK/runtime" && cd "$WORK/first" || exit 1
  gcc "${strict[@]}" -O0 -DTPGEN_CUDA -I. -Iruntime "${includes[@]}" -isystem "${nvcc%/bin/nvcc}/include" \
    ${NCCL_HOME:+-isystem "$NCCL_HOME/include"} -c $(find runtime -name '*.c') && mv ./*.o "$WORK/runtime" || exit 1
  for file in $(find runtime -name '*.cu'); do
    "$nvcc" "${flags[@]}" "${all[@]}" -c "$file" -o "$WORK/runtime/cuda_$(basename "$file" .cu).o" || exit 1
  done
)

# generated NAME PLAN DEFINITIONS...
generated() {
  local to=$WORK/$1 plan=$2 value arguments=()
  shift 2
  for value; do arguments+=(-D "$value"); done
  "$TPGEN" "$plan" -o "$to" --target cuda "${arguments[@]}"
}

# links NAME PLAN DEFINITIONS...: links all its ranks. A rank's own file has constants, and no kernels.
links() (
  generated "$@" && cd "$WORK/$1" || exit 1
  for file in *.cu; do
    case $file in rank*) archs=("${one[@]}") ;; *) archs=("${all[@]}") ;; esac
    "$nvcc" "${flags[@]}" "${archs[@]}" -c "$file" || exit 1
  done
  for entry in $(sed -n 's/^set(RANKS \(.*\))$/\1/p' CMakeLists.txt); do
    objects=("rank${entry%:*}.o" "${entry#*:}.o" "$WORK"/runtime/*.o)
    [ ! -e kernels.o ] || objects+=(kernels.o)
    "$nvcc" "${all[@]}" --cudart shared -o "rank${entry%:*}" "${objects[@]}" "${linked[@]}" || exit 1
  done
)

# compiles NAME PLAN DEFINITIONS...: the files that differ between programs. Kernels and step are one for nvcc,
# which takes most of its time for headers. That each includes what it needs shows where programs are linked.
compiles() (
  generated "$@" && cd "$WORK/$1" || exit 1
  printf '#include "%s.cu"\n' kernels step > both.cu
  files=(both)
  [[ $1 != moves* ]] || files+=(rank0) # it has names of the step's
  for file in "${files[@]}"; do "$nvcc" "${flags[@]}" "${one[@]}" -c $file.cu || exit 1; done
)
# calibrates NAME: the program of tpgen --calibrate, with one of its six files of attention, and links it.
calibrates() (
  "$TPGEN" --calibrate --target cuda -o "$WORK/$1" && cd "$WORK/$1" || exit 1
  printf '#include "%s.cu"\n' calibrate calibrate_kernels calibrate_products calibrate_collectives calibrate_attention \
    calibrate_attention_bfloat16_64 > all.cu
  # The tables of the others have no kernels here.
  for table in bfloat16_128 {float32,tfloat32}_{64,128}; do echo "extern const struct attention attention_$table[6] = {};" >> all.cu; done
  "$nvcc" "${flags[@]}" "${one[@]}" -c all.cu && gcc "${strict[@]}" -O0 -c calibrate_output.c || exit 1
  "$nvcc" "${one[@]}" --cudart shared -o calibrate all.o calibrate_output.o \
    "$WORK"/runtime/{cuda_*,launch,local_ranks,open_input,program,rendezvous,watchdog}.o "${linked[@]}"
)
or_fail() { "$@" || fail "$* does not do so with nvcc"; }
with_nvcc() { beside "$WORK/$2.log" or_fail "$@"; }

nvcc_runtime > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime does not compile"; }
beside "$WORK/cmake.log" by_cmake
more with_nvcc links toy3 plans/toy.lua tp=3
with_nvcc links toy_infer plans/toy_infer.lua
with_nvcc links reshard plans/reshard.lua
more with_nvcc links llama plans/llama3.lua tp=2 clip=1 accumulate=2
with_nvcc links llama_bf16 plans/llama3.lua dp=2 tp=2 dtype=bfloat16 clip=1
with_nvcc compiles llama_tf32 plans/llama3.lua tp=4 dtype=tf32 checkpoint=layer
with_nvcc compiles llama_float8 plans/llama3.lua dp=2 tp=2 dtype=float8
for plan in gpt2 gemma bert resnet $(more echo causal_lm qwen phi3 gpt_neox falcon vit); do with_nvcc compiles $plan plans/$plan.lua dp=2 tp=2; done
more with_nvcc compiles dpo plans/dpo.lua dp=2 tp=2 lora=4
more with_nvcc compiles kto plans/kto.lua dp=2 tp=2 lora=4
more with_nvcc compiles reward plans/reward.lua dp=2 tp=2
more with_nvcc compiles distill plans/distill.lua lora=4 weight_dtype=nf4 teacher_dtype=int8 tp=2
more with_nvcc compiles moe plans/moe.lua dp=2 ep=2 tp=2
with_nvcc compiles moe_bf16 plans/moe.lua dp=2 ep=2 dtype=bfloat16 bound=1.5
with_nvcc calibrates machine
with_nvcc links pipeline plans/llama3.lua pp=2 microbatches=4
with_nvcc compiles ring plans/llama3.lua cp=2 dtype=bfloat16 documents=2 balance=headtail
with_nvcc compiles generate plans/generate.lua tp=2 cache_dtype=bfloat16
with_nvcc compiles torch_export plans/torch_export.lua model="$golden/torch_export/llama.pt2" tp=2
# The families whose kernels are more than plain loops over elements.
families=$(operator_plans | grep -xE 'attention|custom|images|indices|modules|products|reductions')
for family in $families; do
  with_nvcc compiles "$family" "$WORK/$family.lua" tp=2 place=mixed
done
with_nvcc compiles moves1 tests/plans/redistributions/pairs.lua mesh=3 shape=7x5
more with_nvcc compiles moves2 tests/plans/redistributions/pairs.lua mesh=2x2 shape=4x6 every=17 through=bfloat16
with_nvcc compiles bfloat16 tests/equal/bfloat16.lua dp=2 tp=2
all_are_done
[ "$(ls plans/*.lua | wc -l)" -eq 21 ] || fail "there are other plans in plans/ than this script compiles"
cat "$WORK"/*.log
finish "plans for $((${#all[@]} / 2)) architectures, $(wc -w <<< "$families") families of operators, and moves, with $nvcc"
