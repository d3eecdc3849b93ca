#!/usr/bin/env bash
# Stages of a pipeline: a Llama of 8 layers has PyTorch's losses and norms of gradients (tests/golden/llama8) on
# several meshes, by all schedules, with tensor parallelism, fully sharded, and with layers that are computed
# again. With a tied output, and in bfloat16, it equals the program without stages. A checkpoint moves between
# pipelines without a changed bit. What cannot be is the plan's error.
local_mpi=yes
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
optimized=-O1 # attention takes longer than the optimizer
steps=${SOAK:+20}
steps=${steps:-5}
export OMP_NUM_THREADS=1
text=$golden/llama/text.txt
llama=$golden/llama8 within=(2e-6 2e-6)
model=(-D dim=64 -D n_layers=8 -D n_heads=8 -D n_kv_heads=4 -D hidden=176 -D vocab=256 -D seq=32 -D batch=8
  -D theta=10000 -D eps=1e-5 -D lr=1e-3 -D beta1=0.9 -D beta2=0.95 -D weight_decay=0.1 -D clip=1)
make_runtimes plain sanitized cuda

# make NAME KIND ARGUMENTS...
make() {
  local to=$WORK/$1 kind=$2 target=cpu arguments
  [ "$kind" != cuda ] || target=cuda
  with_defaults model "${@:3}"
  "$TPGEN" plans/llama3.lua -o "$to" --target $target "${arguments[@]}" && make_ranks "$to" "$kind" || fail "$1: no program"
}

# check NAME KIND ARGUMENTS...
check() {
  make "$@"
  start "$WORK/$1" "$WORK/$1" --weights "$llama/llama.safetensors" --data "$text" --steps "$steps" || fail "$1: no run"
  near_golden "$1"
}
# A schedule of no name: the order is none of PyTorch's.
cat > "$WORK/mine.csv" <<'CSV'
0F0,0F1,3F0,,0F2,3I0,3F1,0F3,3W0,0I0,3B1,3F2,0B1,3B2,3F3,0W0,3B3,0B2,0B3
,1F0,1F1,2F0,2F1,1F2,,2I0,1I0,2B1,1B1,2W0,2F2,1W0,1F3,2F3,2B2,1B2,2B3,1B3
CSV
# by_mpirun NAME ARGUMENTS...: with the machine's MPI, whose ranks are programs of their own.
by_mpirun() {
  local local_mpi='' WORK=$WORK/mpi
  mkdir "$WORK"
  make_runtimes plain
  check "$1" plain "${@:2}"
}
beside "$WORK/mpirun.log" by_mpirun dual -D pp=2 -D tp=2 -D stages=2 -D schedule=dualpipe_v -D microbatches=8
beside "$WORK/pp1.log" check pp1 plain
beside "$WORK/pp2.log" check pp2 plain -D pp=2 -D microbatches=4
more beside "$WORK/pp3.log" check pp3 sanitized -D pp=3 -D microbatches=8
more beside "$WORK/pp4.log" check pp4 plain -D pp=4 -D microbatches=8 -D schedule=gpipe
more beside "$WORK/pp8.log" check pp8 plain -D pp=8 -D microbatches=8 -D schedule=looped_bfs
beside "$WORK/tp.log" check tp plain -D pp=2 -D tp=2 -D microbatches=2
beside "$WORK/fsdp.log" check fsdp plain -D pp=2 -D dp_shard=2 -D microbatches=2 -D checkpoint=layer
more beside "$WORK/hsdp.log" check hsdp plain -D pp=2 -D dp_replicate=2 -D dp_shard=2 -D microbatches=2

# Several stages of a rank, and backwards in two parts.
more beside "$WORK/loop.log" check loop plain -D pp=2 -D stages=2 -D schedule=interleaved_1f1b -D microbatches=8
more beside "$WORK/bfs.log" check bfs plain -D pp=3 -D stages=2 -D schedule=looped_bfs -D microbatches=4
more beside "$WORK/zb1p.log" check zb1p plain -D pp=4 -D schedule=interleaved_zero_bubble -D microbatches=8
more beside "$WORK/zb2p.log" check zb2p plain -D pp=2 -D stages=2 -D schedule=interleaved_zero_bubble -D microbatches=4 \
  -D checkpoint=layer
more beside "$WORK/zbv.log" check zbv sanitized -D pp=2 -D stages=2 -D schedule=zbv_zero_bubble -D microbatches=8
beside "$WORK/dual.log" check dual plain -D pp=3 -D stages=2 -D schedule=dualpipe_v -D microbatches=8
more beside "$WORK/zb_fsdp.log" check zb_fsdp plain -D pp=2 -D dp_shard=2 -D stages=2 -D schedule=zbv_zero_bubble \
  -D microbatches=4
beside "$WORK/csv.log" check csv plain -D pp=2 -D schedule="$WORK/mine.csv"
# equal NAME WITHIN ARGUMENTS...: two stages train like one rank.
equal() {
  local name=$1 within=$2 pp
  for pp in 1 2; do
    make "$name.$pp" plain -D microbatches=4 "${@:3}" -D pp=$pp
    start "$WORK/$name.$pp" "$WORK/$name.$pp" --data "$text" --steps "$steps" || fail "$name: no run"
  done
  same_losses "$name" "$WORK/$name.2.losses" "$WORK/$name.1.losses" "$within"
}
beside "$WORK/tied.log" equal tied 2e-6 -D tied=true
beside "$WORK/bf16.log" equal bf16 2e-4 -D dtype=bfloat16
# like_one NAME ONE ARGUMENTS...: it trains like the program ONE, of one rank.
like_one() {
  if [ "$2" = pp1 ]; then
    check "$1" plain "${@:3}"
  else
    make "$1" plain "${@:3}"
    start "$WORK/$1" "$WORK/$1" --data "$text" --steps "$steps" || fail "$1: no run"
  fi
  same_losses "$1" "$WORK/$1.losses" "$WORK/$2.losses" 5e-7
}
if [ -n "${SOAK:-}" ]; then
  make tied1 plain -D tied=true && start "$WORK/tied1" "$WORK/tied1" --data "$text" --steps "$steps" || fail "tied1: no run"
  all_are_done # pp1
  for pp in 2 3 4; do
    for schedule in gpipe:1 1f1b:1 interleaved_1f1b:1 interleaved_1f1b:2 looped_bfs:1 looped_bfs:2 \
      interleaved_zero_bubble:1 interleaved_zero_bubble:2 zbv_zero_bubble:2 dualpipe_v:2; do
      name=soak.$pp.$schedule
      with=(-D pp=$pp -D schedule="${schedule%:*}" -D stages="${schedule#*:}" -D microbatches=8)
      beside "$WORK/$name.log" like_one "$name" pp1 "${with[@]}"
      beside "$WORK/$name.tied.log" like_one "$name.tied" tied1 "${with[@]}" -D tied=true
    done
  done
fi
all_are_done

# on_gpus NAME ONE WITHIN OPTION ARGUMENTS...: on the stand-in it trains like the program ONE, of one rank of the CPU.
# OPTION: --graph, or nothing.
on_gpus() {
  local from=()
  [ "$2" != pp1 ] || from=(--weights "$llama/llama.safetensors")
  make "$1" cuda "${@:5}"
  # shellcheck disable=SC2086
  start "$WORK/$1" "$WORK/$1" "${from[@]}" --data "$text" --steps "$steps" $4 || fail "$1: no run"
  same_losses "$1" "$WORK/$1.losses" "$WORK/$2.losses" "$3"
}
more beside "$WORK/cuda_pp3.log" on_gpus cuda_pp3 pp1 5e-7 '' -D pp=3 -D microbatches=8
more beside "$WORK/cuda_pp4.log" on_gpus cuda_pp4 pp1 5e-7 --graph -D pp=4 -D microbatches=8 -D schedule=gpipe
beside "$WORK/cuda_tp.log" on_gpus cuda_tp pp1 5e-7 --graph -D pp=2 -D tp=2 -D microbatches=2
more beside "$WORK/cuda_fsdp.log" on_gpus cuda_fsdp pp1 5e-7 '' -D pp=2 -D dp_shard=2 -D microbatches=2 -D checkpoint=layer
more beside "$WORK/cuda_csv.log" on_gpus cuda_csv pp1 5e-7 --graph -D pp=2 -D schedule="$WORK/mine.csv"
more beside "$WORK/cuda_tied.log" on_gpus cuda_tied tied.1 5e-7 --graph -D pp=2 -D microbatches=4 -D tied=true
in_ci beside "$WORK/cuda_bf16.log" on_gpus cuda_bf16 bf16.1 2e-4 --graph -D pp=2 -D microbatches=4 -D dtype=bfloat16
# validates NAME KIND ARGUMENTS...: its losses of a validation are in NAME.validated.
validated=(-D microbatches=5 -D batch=7 -D tied=true -D validate_every=2)
validates() {
  local arguments
  with_defaults validated "${@:3}"
  make "$1" "$2" "${arguments[@]}"
  start "$WORK/$1" "$WORK/$1" --data "$text" --steps 4 --validate "$text" --validate-steps 3 || fail "$1: no run"
  numbers validation_loss "$WORK/$1.jsonl" > "$WORK/$1.validated"
}
beside "$WORK/val1.log" validates val1 plain
beside "$WORK/val2.log" validates val2 plain -D pp=2 -D tp=2
more beside "$WORK/val_v.log" validates val_v plain -D pp=2 -D stages=2 -D schedule=zbv_zero_bubble
more beside "$WORK/val_fsdp.log" validates val_fsdp plain -D pp=2 -D dp_shard=2 -D microbatches=3
more beside "$WORK/val_cuda.log" validates val_cuda cuda -D pp=2
# accumulates NAME KIND ARGUMENTS...: steps of three batches, with ignored targets, which each batch counts anew.
accumulates() {
  make "$1" "$2" -D accumulate=3 -D documents=10 -D tied=true -D validate_every=2 "${@:3}"
  # shellcheck disable=SC2086
  start "$WORK/$1" "$WORK/$1" --data "$text" --steps 4 --validate "$text" --validate-steps 3 ${graph:-} || fail "$1: no run"
  numbers validation_loss "$WORK/$1.jsonl" > "$WORK/$1.validated"
}
beside "$WORK/acc1.log" accumulates acc1 plain
beside "$WORK/acc_pp.log" accumulates acc_pp plain -D pp=2 -D tp=2 -D microbatches=4
more beside "$WORK/acc_parts.log" accumulates acc_parts plain -D microbatches=4
more beside "$WORK/acc_v.log" accumulates acc_v sanitized -D pp=2 -D stages=2 -D schedule=zbv_zero_bubble -D microbatches=5
more beside "$WORK/acc_fsdp.log" accumulates acc_fsdp plain -D pp=2 -D dp_shard=2 -D microbatches=2
graph=--graph more beside "$WORK/acc_cuda.log" accumulates acc_cuda cuda -D pp=2 -D microbatches=4
# A pipeline of one micro-batch reads its batches, too.
beside "$WORK/whole.log" check whole plain -D pp=2 -D microbatches=1 -D schedule=gpipe
# Values with the names of what a program calls, and rows by expert on the first stage alone.
names() {
  "$TPGEN" tests/equal/called_names.lua -o "$WORK/names" -D pp=2 && make_ranks "$WORK/names" plain &&
    start "$WORK/names" "$WORK/names" || fail "names of functions"
}
beside "$WORK/names.log" names
# Micro-batches of 2, 2, 1, 1 and 1 samples; with copies, of 2, 1 and 1, and of 1, 1 and 1; with all-to-alls, of 4 and 3.
uneven() {
  make uneven.1 plain -D batch=7 -D microbatches=1
  start "$WORK/uneven.1" "$WORK/uneven.1" --data "$text" --steps "$steps" || fail "uneven: no run"
  local name
  for name in "uneven.pp -D pp=2 -D microbatches=5" "uneven.dp -D pp=2 -D dp=2 -D microbatches=3" \
    "uneven.exchange -D cp=2 -D context=ulysses -D microbatches=2"; do
    # shellcheck disable=SC2086
    make ${name%% *} plain -D batch=7 ${name#* }
    start "$WORK/${name%% *}" "$WORK/${name%% *}" --data "$text" --steps "$steps" || fail "${name%% *}: no run"
    same_losses "${name%% *}" "$WORK/${name%% *}.losses" "$WORK/uneven.1.losses" 5e-7
  done
}
beside "$WORK/uneven.log" uneven
more beside "$WORK/documents.log" equal documents 2e-6 -D documents=10
all_are_done
cat "$WORK"/*.log
for name in val2 $(more echo val_cuda val_v val_fsdp); do
  same_losses "$name, validated" "$WORK/$name.validated" "$WORK/val1.validated" 5e-7
done
for name in acc_pp $(more echo acc_parts acc_v acc_fsdp acc_cuda); do
  same_losses "$name" "$WORK/$name.losses" "$WORK/acc1.losses" 5e-7
  same_losses "$name, validated" "$WORK/$name.validated" "$WORK/acc1.validated" 5e-7
done

from=pp1
for name in pp2 $(more echo pp4) tp fsdp pp1; do
  start "$WORK/$name" "$WORK/moved_$name" --load "$WORK/$from.saved" --data "$text" --steps "$steps" &&
    "$TOOLS/compare_safetensors" "$WORK/moved_$name.saved/model.safetensors" "$WORK/pp1.saved/model.safetensors" 0 ||
    fail "from $from to $name: another checkpoint"
  from=moved_$name
done

# A file of a schedule that has a name gives its program.
same() { diff <(sed 's/[0-9a-f]\{16\}//' "$1") <(sed 's/[0-9a-f]\{16\}//' "$2") > /dev/null; }
for form in '' --lowered; do
  "$TPGEN" --schedule dualpipe_v --ranks-pp 3 --stages 2 --microbatches 8 $form > "$WORK/dual.csv" &&
    "$TPGEN" plans/llama3.lua -o "$WORK/dual_csv" "${model[@]}" -D pp=3 -D schedule="$WORK/dual.csv" || fail "dual.csv"
  for file in step_stage0.c step_stage2.c memory_stage1.h; do
    same "$WORK/dual/$file" "$WORK/dual_csv/$file" || fail "dual.csv $form: another $file"
  done
done

# refused MESSAGE ARGUMENTS...
refused() {
  local arguments
  with_defaults model "${@:2}"
  ! "$TPGEN" plans/llama3.lua -o "$WORK/refused" "${arguments[@]}" 2> "$WORK/refused.log" || fail "${*:2}: taken"
  grep -qF "$1" "$WORK/refused.log" || { cat "$WORK/refused.log"; fail "${*:2}: another message"; }
  [ ! -e "$WORK/refused" ] || fail "${*:2}: something is written"
}
refused '16 stages of 11 blocks' -D pp=16 -D microbatches=16
refused 'the schedules are gpipe' -D pp=2 -D schedule=fastest
refused 'it has two stages on each rank, not 1' -D pp=2 -D stages=1 -D schedule=zbv_zero_bubble
refused 'at least as many micro-batches as stages: 4, not 2' -D pp=2 -D stages=2 -D schedule=dualpipe_v
printf '0F0,0B0\n1F0,1F1,1B0,1B1\n' > "$WORK/short.csv"
refused 'short.csv: the forward of micro-batch 1 on stage 0 is missing' -D pp=2 -D schedule="$WORK/short.csv"
printf '0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n' > "$WORK/waits.csv"
refused 'waits.csv: its ranks wait for each other: rank 0 for what 0B0 needs, rank 1 for what 1F1 needs' \
  -D pp=2 -D schedule="$WORK/waits.csv"
refused 'has rows for 2 ranks; there are 3' -D pp=3 -D schedule="$WORK/mine.csv"
refused 'cannot read' -D pp=2 -D schedule="$WORK/none.csv"
refused 'rank 0 has 4 samples of a batch'"'"'s input, and each of 5 micro-batches needs one: say 4 or fewer' \
  -D pp=2 -D dp=2 -D microbatches=5

# The command that a user types: with ranks that the real mpirun starts, and in CI with those that share memory.
for transport in mpi $(in_ci echo shared); do
  CMAKE_ARGS=-DCMAKE_C_FLAGS=-O0 "$WORK/pp2/run.sh" --transport $transport --steps 2 --weights "$llama/llama.safetensors" --data "$text" \
    --metrics "$WORK/by_run_sh_$transport.jsonl" > "$WORK/by_run_sh.log" 2>&1 || { cat "$WORK/by_run_sh.log"; fail "run.sh"; }
  steps=2 near_golden by_run_sh_$transport
done
finish "a Llama in 2, 3, 4 and 8 stages"
