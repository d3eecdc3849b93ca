#!/usr/bin/env bash
# The CUDA target on a GPU: one table of all that is to be known of it. It takes ten minutes at most: what is left then is left out.
#   machine   tpgen --calibrate's program measures the GPUs, and leaves device.json; the simulated steps of "speed" by it
#             stand beside the measured ones
#   losses    the toy's and the golden Llama's, at tp=1 and at tp=2 (two processes on the one GPU), against
#             PyTorch's (tests/golden); a captured graph's, too; in bfloat16 within 2 % of float32's
#   clean     compute-sanitizer's memcheck, racecheck and initcheck over two steps of both
#   speed     a Llama of 1.1 billion parameters in bfloat16 (dim 2048, 16 layers, 32 heads, 8 key-value heads,
#             hidden 8192, vocabulary 32768, sequences of 2048): tpgen, and as a graph, beside PyTorch's, in
#             turn: tokens a second, MFU, memory
#   profile   where the time of a step goes, kernel by kernel, of both
# From the environment:
#   PYTHON    a python with torch                (python3)
#   TPGEN     the compiler                       (build/tpgen)
#   PROGRAMS  a folder with the programs' text: with `gpu.sh generate` they are written there, and a machine
#             where tpgen does not run builds them from it
#   BATCH     sequences in a step of the large Llama   (8)
#   STEPS     of a run, of which the first five are not counted   (25)
#   ROUNDS    of each contestant   (2)
#   OUT       where logs and profiles, and device.json, stay   (gpu-bench)
#   LIMIT     seconds for all of it   (600)
# NCCL_HOME, CUDACXX, CMAKE_ARGS: as for any generated program.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
TPGEN=${TPGEN:-$root/build/tpgen}
PYTHON=${PYTHON:-python3}
batch=${BATCH:-8}
steps=${STEPS:-25}
rounds=${ROUNDS:-2}
out=$(realpath -m "${OUT:-gpu-bench}")
programs=$(realpath -m "${PROGRAMS:-$out/programs}")
golden=$root/tests/golden
table=$out/table.txt

golden_shape=(dim=128 n_layers=2 n_heads=8 n_kv_heads=4 hidden=352 vocab=512 seq=64 batch=4 lr=1e-3 beta1=0.9
  beta2=0.95 weight_decay=0.1 clip=1.0)
large=(dim=2048 n_layers=16 n_heads=32 n_kv_heads=8 hidden=8192 vocab=32768 seq=2048 theta=500000 batch="$batch"
  lr=3e-4 beta1=0.9 beta2=0.95 weight_decay=0.1 clip=1.0 dtype=bfloat16)

limit=${LIMIT:-600}
# left MOST: the seconds that a part may take. has_time LEAST WHAT: or it is left out.
left() { echo $((limit - SECONDS < $1 ? (limit > SECONDS ? limit - SECONDS : 1) : $1)); }
has_time() { ((limit - SECONDS >= $1)) || { say "  $2: left out, for its time is over" && return 1; }; }

say() { echo "$*" | tee -a "$table"; }
failures=0
wrong() {
  say "  WRONG: $*"
  failures=$((failures + 1))
}

# ---- the programs' text -------------------------------------------------------------------------

# write NAME PLAN VALUES...
write() {
  local name=$1 plan=$2
  shift 2
  (cd "$root" && "$TPGEN" "plans/$plan.lua" "${@/#/-D}" --target cuda -o "$programs/$name") || exit 1
}
write_all() {
  local tp
  mkdir -p "$programs"
  for tp in 1 2; do
    write toy$tp toy tp=$tp
    write llama$tp llama3 "${golden_shape[@]}" tp=$tp
    write bf$tp llama3 "${golden_shape[@]}" dtype=bfloat16 tp=$tp
  done
  write large llama3 "${large[@]}"
  (cd "$root" && "$TPGEN" --calibrate --target cuda -o "$programs/machine") || exit 1
}
if [ "${1:-}" = generate ]; then
  write_all
  exit
fi

# ---- the machine --------------------------------------------------------------------------------

mkdir -p "$out"
: > "$table"
gpu=$(nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader 2> /dev/null | head -n 1)
[ -n "$gpu" ] || { echo "gpu.sh: nvidia-smi tells of no GPU" >&2; exit 1; }
say "GPU: $gpu; $(nvcc --version 2> /dev/null | sed -n 's/.*release \([^,]*\),.*/nvcc \1/p')"
capability=$(cut -d , -f 2 <<< "$gpu" | tr -d ' .')
export CMAKE_ARGS="${CMAKE_ARGS:-} -DCMAKE_CUDA_ARCHITECTURES=$capability"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ -d "$programs" ] || write_all

# ---- the GPUs' figures --------------------------------------------------------------------------

device=$out/device.json
say "tpgen --calibrate"
if timeout "$(left 300)" "$programs/machine/run.sh" --output "$device" > "$out/machine.log" 2>&1; then
  say "  $(wc -c < "$device") bytes of figures in $device, after $SECONDS s"
else
  wrong "the program that measures ended with status $?"
  tail -n 5 "$out/machine.log" | tee -a "$table"
fi

# run NAME RESULT ARGUMENTS...: its metrics in RESULT.jsonl, what it says in RESULT.log.
run() {
  local name=$1 result=$out/$2
  shift 2
  rm -f "$result.jsonl"
  has_time 10 "$name $*" || return 1
  timeout "$(left 900)" "$programs/$name/run.sh" --metrics "$result.jsonl" "$@" > "$result.log" 2>&1 || {
    wrong "$name $* ended with status $?"
    tail -n 5 "$result.log" | tee -a "$table"
    return 1
  }
}
numbers() { sed -n "s/.*\"$1\": *\\([-+.0-9eE]*\\)[,}].*/\\1/p" "$2"; }
listed() { sed "s/.*\"$1\": *\\[\\([^]]*\\)\\].*/\\1/" "$2" | tr -d ' ' | tr , '\n'; }

# compare WHAT RESULT GOLDEN WITHIN: the losses, step by step.
compare() {
  local most
  most=$(paste <(numbers loss "$out/$2.jsonl") <(listed losses "$3") | awk '
    function abs(x) { return x < 0 ? -x : x }
    NF == 2 { d = abs($1 - $2) / abs($2); if (!(d <= most)) most = d }
    NF != 2 { bad = 1 }
    END { if (bad || NR == 0) print "nan"; else print most + 0 }')
  say "$(printf '  %-34s losses at most %8s apart, of %s' "$1" "$most" "$4")"
  awk -v a="$most" -v b="$4" 'BEGIN { exit !(a != "nan" && a <= b) }' || wrong "$1"
}

# ---- losses -------------------------------------------------------------------------------------

say "losses against PyTorch's"
toy=$golden/toy/toy.safetensors llama=$golden/llama
from=(--weights "$llama/llama.safetensors" --data "$llama/text.txt" --steps 20)
for tp in 1 2; do
  run toy$tp toy$tp --weights "$toy" --data "$toy" && compare "toy tp=$tp" toy$tp "$golden/toy/losses.json" 1e-5
  run llama$tp llama$tp "${from[@]}" && compare "Llama tp=$tp" llama$tp "$llama/losses.json" 2e-4
  run llama$tp graph$tp "${from[@]}" --graph && compare "Llama tp=$tp, a graph" graph$tp "$llama/losses.json" 2e-4
  run bf$tp bf$tp "${from[@]}" && compare "Llama tp=$tp, bfloat16" bf$tp "$llama/losses.json" 2e-2
done

# ---- speed --------------------------------------------------------------------------------------

# The peak of dense bfloat16 products that the name stands for, in TFLOP/s.
case $gpu in
*H100* | *H200* | *GH200*) peak=989 ;;
*A100*) peak=312 ;;
*B200* | *GB200*) peak=2250 ;;
*) peak=0 ;;
esac
# What a token costs, as MFU counts it: 6 for each weight but the embedding's, and attention's products.
flops=$(awk 'BEGIN { d = 2048; l = 16; print 6 * (l * (2 * d * d + 2 * d * 512 + 3 * d * 8192) + 32768 * d) + 6 * l * 32 * 128 * 2048 }')

# contend NAME: one run of it; steps' seconds to NAME.seconds, memory in MiB to NAME.memory.
contend() {
  local name=$1 lines=$out/$1.jsonl
  rm -f "$lines"
  has_time 30 "$name" || return 1
  case $name in
  tpgen) run large tpgen --steps "$steps" ;;
  graph) run large graph --steps "$steps" --graph ;;
  *) timeout "$(left 900)" "$PYTHON" "$here/gpu_torch.py" "$name" "$batch" "$steps" "$lines" "$out/$name.trace" \
    > "$out/$name.log" 2>&1 ;;
  esac || { wrong "$name: no run"; tail -n 5 "$out/$name.log"; return 1; }
  numbers seconds "$lines" | tail -n +6 >> "$out/$name.seconds"
  numbers memory "$lines" | tail -n 1 > "$out/$name.memory"
}
contestants=(tpgen graph compiled)
[ -z "${EAGER:-}" ] || contestants+=(eager)
rm -f "$out"/*.seconds
for ((round = 1; round <= rounds; round++)); do
  for name in "${contestants[@]}"; do contend "$name"; done
done
tokens=$((batch * 2048))
say "a step of $tokens tokens           s a step   tokens a second      MFU   memory, MiB"
for name in "${contestants[@]}"; do
  [ -s "$out/$name.seconds" ] || continue
  sort -g "$out/$name.seconds" | awk -v tokens=$tokens -v flops="$flops" -v peak=$peak -v memory="$(<"$out/$name.memory")" \
    -v name="$name" '
    { s[NR] = $1 }
    END {
      m = s[int((NR + 1) / 2)]
      mfu = peak ? sprintf("%.1f %%", 100 * tokens / m * flops / peak / 1e12) : "-"
      printf "  %-28s %8.4f   %15.0f   %6s   %11.0f\n", name, m, tokens / m, mfu, memory / 1048576
    }' | tee -a "$table"
done

# ---- simulated ----------------------------------------------------------------------------------

# simulated KEY: of the step of the large Llama, by the figures of these GPUs.
simulated() { sed -n '/"simulated_step"/,/}/s/^ *"'"$1"'": *\([0-9.e+-]*\),*$/\1/p' "$out/simulated/plan.json"; }
if [ -s "$device" ] && [ -x "$TPGEN" ]; then
  (cd "$root" && "$TPGEN" plans/llama3.lua "${large[@]/#/-D}" "-Ddevice=$device" --target cuda -o "$out/simulated" > "$out/simulated.log" 2>&1) ||
    wrong "no program with the figures of $device: $(tail -n 1 "$out/simulated.log")"
  for name in tpgen graph; do
    [ -s "$out/$name.seconds" ] && [ -s "$out/simulated/plan.json" ] || continue
    key=$([ $name = graph ] && echo in_graph || echo seconds)
    sort -g "$out/$name.seconds" | awk -v simulated="$(simulated $key)" -v name="$name" '{ s[NR] = $1 }
      END { m = s[int((NR + 1) / 2)]; printf "  %-28s %8.4f s simulated, %.3f of the measured step\n", name, simulated, simulated / m }' | tee -a "$table"
  done
fi

# ---- profile ------------------------------------------------------------------------------------

run large profile --steps 10 --profile && sed -n '/^where a step/,$p' "$out/profile.log" > "$out/tpgen.profile" &&
  { say "tpgen's (all of it in $out/tpgen.profile)"; head -n 24 "$out/tpgen.profile" | tee -a "$table"; }
[ ! -s "$out/compiled.trace" ] || { say "PyTorch's (all of it in $out/compiled.trace)"; head -n 20 "$out/compiled.trace" | cut -c 1-150 | tee -a "$table"; }

# ---- compute-sanitizer --------------------------------------------------------------------------

# One rank: its binary by itself is the whole job.
sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
if [ -n "$sanitizer" ]; then
  say "compute-sanitizer, two steps"
  for name in toy1 llama1 bf1; do
    for tool in memcheck racecheck initcheck; do
      has_time 60 "$name under $tool" || continue
      arguments=("${from[@]:0:4}")
      [ $name != toy1 ] || arguments=(--weights "$toy" --data "$toy")
      timeout "$(left 600)" "$sanitizer" --tool $tool --error-exitcode 9 "$programs/$name/build/rank0" "${arguments[@]}" \
        --steps 2 > "$out/$name.$tool.log" 2>&1
      status=$?
      say "$(printf '  %-10s %-10s %s' $name $tool "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$name.$tool.log" | tail -n 1)")"
      [ $status -eq 0 ] || wrong "$name under $tool: status $status"
    done
  done
else
  say "compute-sanitizer is not here"
fi

[ $failures -eq 0 ] || { say "$failures wrong"; exit 1; }
say "all as it should be"
