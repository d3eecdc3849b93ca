#!/usr/bin/env bash
# A step of a Llama on this machine, tpgen's (CPU, MPI) beside PyTorch's (CPU, gloo): from the same
# weights, on the same tokens, in turn, some rounds; in float32 and in bfloat16, by one process and by two,
# tensor parallel, data parallel with copies (DDP), fully sharded (FSDP), and as two stages of a pipeline (1F1B,
# a micro-batch a sequence). Medians of the steps' seconds, the peak memory of the largest process (a rank), and
# the last step's loss, which must agree.
#   ROUNDS   (3)
#   STEPS    in a run, of which the first two are not counted   (8)
#   BATCH    sequences in a batch   (4)
#   ONLY     a regular expression: these rows alone, as in fsdp or bf16   (all)
set -euo pipefail
. "$(dirname "$0")/common.sh"
rounds=${ROUNDS:-$(short_or 1 3)}
steps=${STEPS:-$(short_or 3 8)}
export BATCH=${BATCH:-4}
has_modules torch && peer=yes || peer=

# name, ranks, what PyTorch is asked for, the plan's settings
all_rows=(
  "one            1  compiled  tp=1"
  "tp             2  tp        tp=2"
  "ddp            2  ddp       dp_replicate=2"
  "fsdp           2  fsdp      dp_shard=2"
  "pp             2  pp        pp=2 microbatches=$BATCH schedule=1f1b"
  "one_bf16       1  compiled  tp=1"
  "tp_bf16        2  tp        tp=2"
  "fsdp_bf16      2  fsdp      dp_shard=2"
)
declare -A meaning=([one]="one process" [tp]="tensor parallel" [ddp]="data parallel, copies" [fsdp]="fully sharded" [pp]="two stages")
rows=()
for row in "${all_rows[@]}"; do
  read -r name _ <<< "$row"
  [[ ! $name =~ ${ONLY:-$(short_or "^(one|pp|tp_bf16)$" .)} ]] || rows+=("$row")
done
type_of() { case $1 in *_bf16) echo bfloat16 ;; *) echo float32 ;; esac; }

sizes=(n_heads=8 n_kv_heads=4 batch=$BATCH theta=10000 eps=1e-5 lr=1e-3 beta1=0.9 beta2=0.95 weight_decay=0.1 clip=1.0)
weights=$work/weights.safetensors data=$work/tokens.uint16
start=(--weights "$weights" --data "$data")
if [ -n "$peer" ]; then
  sizes+=(dim=512 n_layers=8 hidden=1408 vocab=8192 seq=256)
  "$PYTHON" "$here/llama_torch.py" write "$weights" "$data"
else
  start=() sizes+=(dim=64 n_layers=2 hidden=96 vocab=256 seq=32)
fi
for row in "${rows[@]}"; do
  read -r name _ _ settings <<< "$row"
  read -ra settings <<< "$settings"
  (cd "$root" && "$TPGEN" plans/llama3.lua "${sizes[@]/#/-D}" "${settings[@]/#/-D}" "-Ddtype=$(type_of "$name")" -o "$work/$name")
  "$work/$name/run.sh" --steps 1 "${start[@]}" > /dev/null 2>&1
done

# run NAME RANKS COMMAND...: its memory in $work/memory, its steps' seconds and last loss beside the others'.
run() {
  local name=$1 ranks=$2 threads=$(($(nproc) / $2))
  shift 2
  local measured=("$PYTHON" "$here/llama_torch.py" peak "$work/memory")
  [ -n "$peer" ] || { measured=() && echo 0 > "$work/memory"; }
  OMP_NUM_THREADS=$((threads > 0 ? threads : 1)) "${measured[@]}" "$@" > "$work/output" 2>&1 || { cat "$work/output" >&2; exit 1; }
  field seconds | tail -n +3 | tee -a "$work/$name.seconds" > "$work/now"
  cat "$work/memory" >> "$work/$name.memory"
  [ "${name%.tpgen}" = "$name" ] || tell_memory "$work/${name%.tpgen}" "$work/lines" > "$work/$name.planned"
  field loss | tail -n 1 > "$work/$name.loss"
  echo "round $round  $name  $(median "$work/now") s"
}
run_torch() { # NAME RANKS HOW
  local start=("$PYTHON")
  [ "$2" = 1 ] || start+=(-m torch.distributed.run --standalone --nproc-per-node="$2")
  run "$1.$3" "$2" "${start[@]}" "$here/llama_torch.py" "$3" "$(type_of "$1")" "$weights" "$data" "$steps" "$work/lines"
}
run_tpgen() { # NAME RANKS
  run "$1.tpgen" "$2" "$work/$1/run.sh" "${start[@]}" --steps "$steps" --metrics "$work/lines"
}
field() { sed -n "s/.*\"$1\": *\([-+.e0-9]*\).*/\1/p" "$work/lines"; }

for ((round = 1; round <= rounds; round++)); do
  for row in "${rows[@]}"; do
    read -r name ranks how _ <<< "$row"
    [ -z "$peer" ] || [ "$how" != compiled ] || run_torch "$name" "$ranks" eager
    [ -z "$peer" ] || run_torch "$name" "$ranks" "$how"
    run_tpgen "$name" "$ranks"
  done
done

printf '%-42s %9s %8s %12s %9s %9s\n' "" "s a step" "MiB" "loss" "quicker" "smaller"
tell() { # NAME WHO LABEL
  local file=$work/$1.$2 mine=$work/$1.tpgen
  printf '%-42s %9.3f %8.0f %12s' "$3" "$(median "$file.seconds")" "$(median "$file.memory")" "$(cat "$file.loss")"
  # How many times tpgen's figure this one is.
  [ "$2" = tpgen ] && echo || awk -v a="$(median "$file.seconds")" -v b="$(median "$mine.seconds")" \
    -v m="$(median "$file.memory")" -v n="$(median "$mine.memory")" 'BEGIN { printf " %8.2fx %8.2fx\n", a / b, m / n }'
}
for row in "${rows[@]}"; do
  read -r name ranks how _ <<< "$row"
  label="$(type_of "$name"), ${meaning[${name%_bf16}]}"
  tell "$name" tpgen "tpgen, $label"
  cat "$work/$name.tpgen.planned"
  [ -n "$peer" ] || continue
  [ "$how" != compiled ] || tell "$name" eager "  PyTorch"
  tell "$name" "$how" "  PyTorch$([ "$how" != compiled ] || echo ", compiled")"
done
for type in float32 bfloat16; do
  for row in "${rows[@]}"; do
    read -r name _ <<< "$row"
    [ "$(type_of "$name")" != $type ] || cat "$work/$name".*.loss
  done | awk -v most="$([ $type = float32 ] && echo 1e-3 || echo 2e-2)" '
    { if (NR == 1 || $1 < a) a = $1; if (NR == 1 || $1 > b) b = $1 }
    END { if (b - a > most * b) { print "the losses differ: " a " to " b; exit 1 } }'
done
