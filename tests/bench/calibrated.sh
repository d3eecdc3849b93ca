#!/usr/bin/env bash
# The simulated step beside the measured one, on this machine: it is measured (tpgen --calibrate), then CPU programs are
# simulated by its device.json, built and run in turn. The measured step is the least of all steps: other work of the
# machine only adds to it. Prints a line for each program, the mean and the worst of |log(simulated / measured)|, and
# whether pairs more than 20 % apart are in the right order. It fails where they miss 0.10, 0.20 and "all".
#   DEVICE   a device.json; by default the machine is measured
#   ROUNDS   (3)      STEPS   steps of a run (12)
#   ONLY     a pattern: these programs
#   KEEP     a folder for the programs
#   FIRST    a command before each run, as in "chrt -f 10", ahead of other work of the machine
set -euo pipefail
. "$(dirname "$0")/common.sh"
rounds=${ROUNDS:-$(short_or 1 3)} steps=${STEPS:-$(short_or 2 12)}
if [ -n "${KEEP:-}" ]; then
  rm -rf "$work" && trap - EXIT
  work=$KEEP && mkdir -p "$work"
fi
read -ra first <<< "${FIRST:-}"
cd "$root"

# name, plan, tokens of a step, settings
llama="n_heads=8 vocab=4096"
programs=(
  "llama-small         llama3  512 dim=256 n_layers=2 n_heads=4 vocab=2048 seq=128 batch=4"
  "llama               llama3 1024 dim=512 n_layers=4 $llama seq=256 batch=4"
  "llama-bf16          llama3 1024 dim=512 n_layers=4 $llama seq=256 batch=4 dtype=bfloat16"
  "llama-long          llama3 2048 dim=256 n_layers=3 n_heads=4 vocab=2048 seq=1024 batch=2"
  "llama-micro         llama3 1024 dim=384 n_layers=3 n_heads=6 n_kv_heads=6 vocab=2048 seq=128 batch=8 microbatches=4"
  "llama-tp            llama3 1024 dim=512 n_layers=4 $llama seq=256 batch=4 tp=2"
  "llama-tp-bf16       llama3 1024 dim=512 n_layers=4 $llama seq=256 batch=4 tp=2 dtype=bfloat16"
  "llama-dp            llama3 1024 dim=384 n_layers=4 n_heads=6 n_kv_heads=6 vocab=4096 seq=256 batch=4 dp=2"
  "llama-dp-bf16       llama3 1024 dim=384 n_layers=4 n_heads=6 n_kv_heads=6 vocab=4096 seq=256 batch=4 dp=2 dtype=bfloat16"
  "llama-shard         llama3  512 dim=512 n_layers=4 $llama seq=128 batch=4 dp_shard=2"
  "llama-shard-bf16    llama3  512 dim=512 n_layers=4 $llama seq=128 batch=4 dp_shard=2 dtype=bfloat16"
  "llama-cp            llama3 1024 dim=384 n_layers=3 n_heads=6 n_kv_heads=6 vocab=2048 seq=512 batch=2 cp=2"
  "llama-pp            llama3 1024 dim=384 n_layers=4 n_heads=6 n_kv_heads=6 vocab=1024 seq=128 batch=8 pp=2 microbatches=4"
  "llama-pp-bf16       llama3 1024 dim=384 n_layers=4 n_heads=6 n_kv_heads=6 vocab=1024 seq=128 batch=8 pp=2 microbatches=8 dtype=bfloat16"
  "gpt2                gpt2   1024 dim=384 n_layers=4 n_heads=6 vocab=4096 positions=256 batch=4"
  "gpt2-bf16           gpt2   1024 dim=512 n_layers=3 $llama positions=256 batch=4 dtype=bfloat16"
  "gpt2-tp             gpt2    512 dim=512 n_layers=4 $llama positions=128 batch=4 tp=2"
  "gpt2-dp             gpt2    512 dim=384 n_layers=3 n_heads=6 vocab=2048 positions=128 batch=4 dp=2"
  "gpt2-shard-bf16     gpt2   1024 dim=512 n_layers=4 $llama positions=256 batch=4 dp_shard=2 dtype=bfloat16"
  "gpt2-micro          gpt2   1024 dim=384 n_layers=3 n_heads=6 vocab=2048 positions=128 batch=8 microbatches=2"
  "moe                 moe     512 dim=256 hidden=512 n_heads=8 n_kv_heads=4 head_dim=32 vocab=2048 seq=128 batch=4"
  "moe-bf16            moe    1024 dim=384 hidden=512 n_heads=6 n_kv_heads=6 head_dim=64 vocab=2048 seq=256 batch=4 dtype=bfloat16"
  "moe-ep              moe    1024 dim=256 hidden=512 n_heads=8 n_kv_heads=4 head_dim=32 vocab=2048 seq=256 batch=4 dp=2 ep=2"
  "moe-tp              moe    1024 dim=256 hidden=512 n_heads=8 n_kv_heads=4 head_dim=32 vocab=2048 seq=256 batch=4 tp=2"
)
is_short && programs=("${programs[0]}" "llama-small-tp llama3 512 dim=256 n_layers=2 n_heads=4 vocab=2048 seq=128 batch=4 tp=2")

device=${DEVICE:-}
if [ -z "$device" ]; then
  "$TPGEN" --calibrate -o "$work/machine" > "$work/log"
  "${first[@]}" "$work/machine/run.sh" $(short_or --short "") > "$work/log" 2>&1 || { cat "$work/log" && exit 1; }
  device=$work/machine/device.json
fi

# simulated FOLDER: the seconds of a step.
simulated() {
  if ls "$1"/plan_stage*.txt > /dev/null 2>&1; then
    awk '/^  in all/ { n = $3; u = $4; print n * (u == "s" ? 1 : u == "ms" ? 1e-3 : 1e-6); exit }' "$1/plan.txt"
  else
    sed -n '/"simulated_step"/,/}/s/.*"seconds": *\([0-9.e-]*\).*/\1/p' "$1/plan.json"
  fi
}

# measure NAME TOKENS: runs it, and notes the seconds of its quickest step.
measure() {
  "${first[@]}" "$work/$1/run.sh" --steps "$steps" --log-every 1 > "$work/$1.log" 2> "$work/$1.err" ||
    { cat "$work/$1.err" && exit 1; }
  local ranks # the tokens a second are a rank's
  ranks=$(sed -n '1s/.*: \([0-9]*\) rank.*/\1/p' "$work/$1.log")
  sed -n 's/.* tps: \([0-9,]*\) .*/\1/p' "$work/$1.log" | tr -d , |
    awk -v tokens="$2" -v ranks="$ranks" '{ print tokens / ranks / $1 }' >> "$work/$1.times"
}

for program in "${programs[@]}"; do
  read -r name plan tokens settings <<< "$program"
  [[ -z ${ONLY:-} || $name =~ ${ONLY} ]] || continue
  "$TPGEN" "plans/$plan.lua" -o "$work/$name" $(printf -- '-D %s ' $settings) -D "device=$device" > "$work/log"
  rm -f "$work/$name.times"
  "$work/$name/run.sh" --steps 1 > "$work/$name.log" 2>&1 || { cat "$work/$name.log" && exit 1; }
done
for ((i = 0; i < rounds; i++)); do
  for program in "${programs[@]}"; do
    read -r name plan tokens settings <<< "$program"
    [[ -z ${ONLY:-} || $name =~ ${ONLY} ]] || continue
    measure "$name" "$tokens"
  done
done
for program in "${programs[@]}"; do
  read -r name plan tokens settings <<< "$program"
  [[ -z ${ONLY:-} || $name =~ ${ONLY} ]] || continue
  echo "$name $(simulated "$work/$name") $(sort -g "$work/$name.times" | head -n 1) $(sort -g "$work/$name.times" |
    awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }')"
done > "$work/figures"
printf '%-20s %12s %12s %12s %8s\n' program "simulated ms" "measured ms" "median ms" "log"
awk -v short="$(is_short && echo 1 || echo 0)" '
  { s[NR] = $2; m[NR] = $3; log_[NR] = log($2 / $3)
    printf "%-20s %12.2f %12.2f %12.2f %8.3f\n", $1, 1e3 * $2, 1e3 * $3, 1e3 * $4, log_[NR]
    x = log_[NR] < 0 ? -log_[NR] : log_[NR]; sum += x; if (x > worst) worst = x }
  END {
    for (i = 1; i <= NR; i++) for (k = i + 1; k <= NR; k++) {
      apart = m[i] > m[k] ? m[i] / m[k] : m[k] / m[i]
      if (apart < 1.2) continue
      pairs++; right += (m[i] > m[k]) == (s[i] > s[k])
    }
    printf "mean of |log| %.3f, worst %.3f; %d of %d pairs more than 20 %% apart are in the right order\n", sum / NR, worst, right, pairs
    exit !short && (sum / NR > 0.10 || worst > 0.20 || right < pairs)
  }' "$work/figures"
