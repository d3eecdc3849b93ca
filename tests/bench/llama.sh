#!/usr/bin/env bash
# A step of a Llama on this machine, tpgen's (CPU, MPI) beside PyTorch's (CPU, gloo): from the same
# weights, on the same tokens, in turn, some rounds. Medians of the steps' seconds, the peak memory of
# the largest process (a rank), and the last step's loss, which must agree.
#   PYTHON   a python with torch   (python3)
#   TPGEN    the compiler          (build/tpgen)
#   ROUNDS   (3)
#   STEPS    in a run, of which the first two are not counted   (8)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
TPGEN=${TPGEN:-$root/build/tpgen}
PYTHON=${PYTHON:-python3}
rounds=${ROUNDS:-3}
steps=${STEPS:-8}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$PYTHON" -c 'import torch' 2> /dev/null || { echo "llama.sh: $PYTHON has no torch; set PYTHON" >&2; exit 1; }

sizes=(dim=512 n_layers=8 n_heads=8 n_kv_heads=4 hidden=1408 vocab=8192 seq=256 batch=4 theta=10000 eps=1e-5
  lr=1e-3 beta1=0.9 beta2=0.95 weight_decay=0.1 clip=1.0)
weights=$work/weights.safetensors data=$work/tokens.uint16
"$PYTHON" "$here/llama_torch.py" write "$weights" "$data"
for tp in 1 2; do
  (cd "$root" && "$TPGEN" plans/llama3.lua "${sizes[@]/#/-D}" -D tp=$tp -o "$work/tpgen$tp")
  "$work/tpgen$tp/run.sh" --steps 1 --weights "$weights" --data "$data" > /dev/null 2>&1
done

# One run of a contestant; its steps as lines of JSON in $work/lines, its memory in $work/memory.
run() {
  local torch=("$PYTHON" "$here/llama_torch.py") both=("$weights" "$data" "$steps") command
  local start=("$PYTHON" -m torch.distributed.run --standalone --nproc-per-node=2)
  local given=(--weights "$weights" --data "$data" --steps "$steps" --metrics "$work/lines")
  case $1 in
  eager | compiled) command=("${torch[@]}" "$1" "${both[@]}" "$work/lines") ;;
  torch2) command=("${start[@]}" "$here/llama_torch.py" parallel "${both[@]}" "$work/lines") ;;
  tpgen*) command=("$work/$1/run.sh" "${given[@]}") ;;
  esac
  local threads=$(nproc)
  case $1 in *2) threads=$(((threads + 1) / 2)) ;; esac
  OMP_NUM_THREADS=$threads "$PYTHON" "$here/llama_torch.py" peak "$work/memory" "${command[@]}" \
    > "$work/output" 2>&1 || { cat "$work/output" >&2; exit 1; }
}

field() { sed -n "s/.*\"$1\": *\([-+.e0-9]*\).*/\1/p" "$work/lines"; }
median() { sort -g "$1" | awk '{ a[NR] = $1 } END { print (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'; }

contestants=(eager compiled tpgen1 torch2 tpgen2)
for ((i = 1; i <= rounds; i++)); do
  for who in "${contestants[@]}"; do
    run "$who"
    field seconds | tail -n +3 | tee -a "$work/$who.seconds" > "$work/now"
    cat "$work/memory" >> "$work/$who.memory"
    field loss | tail -n 1 > "$work/$who.loss"
    echo "round $i  $who  $(median "$work/now") s"
  done
done

declare -A seconds memory
printf '%-36s %9s %8s %12s\n' "" "s a step" "MiB" "loss"
row() { # contestant, what it is
  seconds[$1]=$(median "$work/$1.seconds") memory[$1]=$(median "$work/$1.memory")
  printf '%-36s %9.3f %8.0f %12s\n' "$2" "${seconds[$1]}" "${memory[$1]}" "$(cat "$work/$1.loss")"
}
row eager "PyTorch"
row compiled "PyTorch, compiled"
row tpgen1 "tpgen"
row torch2 "PyTorch, tensor parallel, 2 ranks"
row tpgen2 "tpgen, tensor parallel, 2 ranks"
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
echo "PyTorch compiled / tpgen: $(ratio "${seconds[compiled]}" "${seconds[tpgen1]}") in time," \
  "$(ratio "${memory[compiled]}" "${memory[tpgen1]}") in memory"
echo "on 2 ranks, PyTorch / tpgen: $(ratio "${seconds[torch2]}" "${seconds[tpgen2]}") in time," \
  "$(ratio "${memory[torch2]}" "${memory[tpgen2]}") in memory"
cat "$work"/*.loss | awk '{ if (NR == 1 || $1 < a) a = $1; if (NR == 1 || $1 > b) b = $1 }
  END { if (b - a > 1e-3 * b) { print "the losses differ: " a " to " b; exit 1 } }'
