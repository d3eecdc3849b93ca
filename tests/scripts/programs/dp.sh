#!/usr/bin/env bash
# Data parallel training of the Llama, replicated (DDP), sharded (FSDP, ZeRO), both (HSDP), and with tensor
# parallelism: PyTorch's losses and norms of gradients, as CPU programs and, on the stand-in, as CUDA programs
# (SOAK=1: more of them; cuda.sh has one). A checkpoint goes from each to the next without a changed bit. A program with one
# changed line has other losses. Programs run five steps; two run twenty (SOAK=1: all). CASES=all: twelve programs, else six.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
optimized=-O1
patience=300
steps=${SOAK:+20}
steps=${steps:-5}
export OMP_NUM_THREADS=1
# Those of two dimensions have the collectives of those of one.
on_stand_in='^(hsdp2x2|fsdp2_tp2)$'
[ -z "${SOAK:-}" ] || on_stand_in='^(ddp2|fsdp2|fsdp4|hsdp2x2|fsdp2_tp2)$'

meshes=(
  "one"
  "fsdp2 dp_shard=2"
  "hsdp2x2 dp_replicate=2 dp_shard=2"
  "zero1 dp=2 zero=1"
)
! all_cases || meshes+=(
  "ddp2 dp_replicate=2"
  "fsdp3 dp_shard=3"
  "fsdp4 dp_shard=4"
  "fsdp2_tp2 dp_shard=2 tp=2"
  "zero2 dp=2 zero=2"
)
# golden KIND NAME SETTINGS...
golden() {
  local kind=$1 name=$2 setting arguments=()
  shift 2
  for setting; do arguments+=(-D "$setting"); done
  check_golden "$kind" "$name" "${arguments[@]}"
}
bfloat16() {
  local within=(2e-2 2e-2)
  golden "$@" dtype=bfloat16
}

make_runtimes plain cuda
for mesh in "${meshes[@]}"; do
  read -r name settings <<< "$mesh"
  # shellcheck disable=SC2086
  steps=$([ $name = zero1 ] && echo 20 || echo $steps) beside "$WORK/$name.log" golden plain $name $settings
  # shellcheck disable=SC2086
  [[ ! $name =~ $on_stand_in ]] || beside "$WORK/cuda_$name.log" golden cuda cuda_$name $settings
done
steps=20 more beside "$WORK/bf.log" bfloat16 plain bf dp_shard=2
# Prefetched a layer ahead, with chunked collectives over tp.
more beside "$WORK/cuda_bf.log" bfloat16 cuda cuda_bf dp_shard=2 tp=2 async_tp=2 prefetch=1
beside "$WORK/cuda_ahead.log" golden cuda cuda_ahead dp_shard=2 tp=2 async_tp=4 prefetch=1 checkpoint=layer
all_are_done

# planted WHAT CHANGE: the golden run detects this fault in the program fsdp2.
planted() {
  local what=$1 from=$WORK/fsdp2 change=$2 name=planted_${1// /_}
  cp -r "$from" "$WORK/$name"
  sed -i "$change" "$WORK/$name/step.c"
  ! cmp -s "$from/step.c" "$WORK/$name/step.c" || { fail "$what: no such line"; return; }
  objects "$WORK/$name" plain step.c && link_ranks "$WORK/$name" plain ||
    { fail "$what: the program does not compile"; return; }
  from_golden "$WORK/$name" > "$WORK/$name.end" || { fail "$what: the program does not end as it should"; return; }
  ! (failures=0; near_golden "$name"; [ $failures -eq 0 ]) > "$WORK/$name.near" || fail "$what is not seen"
}
while IFS=: read -r what change; do
  beside "$WORK/planted.${what// /_}" planted "$what" "$change"
done << 'end'
a gather left out:/gather_segments(.*m->w.norm/{/;$/!N;s/.*/(void)gathered, (void)segment;/}
gradients reduced by max:/reduce_segments(gradients,/{/;$/!N;/m->grad.norm/s/MPI_SUM/MPI_MAX/}
a loss that is not reduced:/MPI_Allreduce(MPI_IN_PLACE, bucket[_0-9]*, 2,/{/;$/!N;d}
a segment out of its place:s/{output_weight_whole, 4, 64,/{output_weight_whole, 4, 63,/
end
all_are_done
cat "$WORK"/planted.*

# carried FROM TO: loads the checkpoint of FROM, and saves it.
carried() {
  start "$WORK/$2" "$WORK/$2.carried" --load "$WORK/$1.saved" --data "$llama/text.txt" --steps "$steps" ||
    fail "$2 does not load $1's"
  "$TOOLS/compare_safetensors" "$WORK/$2.carried.saved/model.safetensors" "$WORK/$1.saved/model.safetensors" 0 ||
    fail "$2 does not save what it has loaded from $1"
}
chain=(one hsdp2x2 fsdp2 one)
! all_cases || chain=(one fsdp4 hsdp2x2 fsdp2_tp2 fsdp3 ddp2 one)
for ((i = 1; i < ${#chain[@]}; i++)); do carried "${chain[i - 1]}" "${chain[i]}"; done
carried fsdp2 cuda_hsdp2x2
cat "$WORK"/*.log
finish "PyTorch's losses on every mesh; checkpoints go from one to the next as they are"
