#!/usr/bin/env bash
# train{overlap = true}: collectives of programs for the CPU that run beside arithmetic. On two ranks whose MPI takes the
# time of an artificial link (LOCAL_MPI_LINK), at least 0.4 of what the link takes is hidden, with the bits of a program
# without overlap. That MPI does such a collective as late as it may, within its wait; ranks that share memory do it at
# once: plans of tests/equal have the numbers of one rank either way. A checkpoint of one kind of program goes on in the
# other. In CI also programs by run.sh on this machine's MPI, whose thread goes on with collectives.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
make_runtimes plain

# ---- what is hidden --------------------------------------------------------------------------------

wide=(-D dp_shard=2 -D dim=256 -D n_layers=6 -D n_heads=4 -D n_kv_heads=4 -D hidden=512 -D vocab=128 -D seq=64 -D batch=8)
optimized=-O1
for overlap in false true; do
  make wide.$overlap plain plans/llama3.lua "${wide[@]}" -D overlap=$overlap
done
optimized=-O0
begun() { cat "$1"/step*.c | grep -c 'begun(&done\[' || true; }
[ "$(begun "$WORK/wide.false")" = 0 ] || fail "a collective is begun without overlap"
[ "$(begun "$WORK/wide.true")" -ge 4 ] || fail "few collectives are begun with overlap"

# run_over RESULT PROGRAM LINK: over a link of so many bytes a second; 0: without one.
run_over() { LOCAL_MPI_LINK=$3 LOCAL_MPI_SLEPT=$WORK/$1.slept start "$WORK/$2" "$WORK/$1" --steps 6 || fail "$1"; }

# The link takes about 0.4 of the time of the arithmetic, however fast this machine is. How long ranks wait for it does
# not depend on what else this machine does: without overlap that is what the link takes.
received=$(python3 -c '
import json, sys
plan = json.load(open(sys.argv[1]))
print(sum(c["received"] * c["times"] for c in plan["collectives"]))' "$WORK/wide.true/plan.json")
run_over free wide.false 0
step=$(numbers seconds "$WORK/free.jsonl" | sort -g | head -n 1)
link=$(awk -v bytes="$received" -v step="$step" 'BEGIN { printf "%.0f", bytes / (0.4 * step) }')
run_over waits wide.false "$link"
run_over beside wide.true "$link"
paste <(sort "$WORK/waits.slept") <(sort "$WORK/beside.slept") | awk -v wire="$(awk -v bytes="$received" -v link="$link" 'BEGIN { print 6 * bytes / link }')" '
  {
    hidden = 1 - $4 / $2
    printf "  rank %d: the link takes %.2f s, it waits for %.2f s of it, with overlap for %.2f s: %.2f of it is hidden\n", $1, wire, $2, $4, hidden
    bad += !($1 == $3 && $2 > 0.8 * wire && hidden >= 0.4)
  }
  END { exit NR != 2 || bad }' || fail "the link is not hidden"
for result in waits beside; do
  cmp "$WORK/free.losses" "$WORK/$result.losses" || fail "$result: other losses"
  "$TOOLS/compare_safetensors" "$WORK"/{free,"$result"}.saved/model.safetensors 0 || fail "$result: other tensors"
done

# ---- from one kind to the other --------------------------------------------------------------------

start "$WORK/wide.true" "$WORK/first" --steps 2 &&
  start "$WORK/wide.false" "$WORK/second" --load "$WORK/first.saved" --steps 4 &&
  start "$WORK/wide.true" "$WORK/third" --load "$WORK/second.saved" --steps 6 || fail "checkpoints"
"$TOOLS/compare_safetensors" "$WORK"/{free,third}.saved/model.safetensors 0 || fail "other tensors after two checkpoints"

# ---- whole programs --------------------------------------------------------------------------------

equal() {
  EQUAL_OVERLAP=1 EQUAL_TRANSPORT=$1 EQUAL_PLANS=$2 EQUAL_RANDOM=0 EQUAL_AUTO=0 EQUAL_CUDA=none WORK="$WORK/equal.$1" \
    bash tests/scripts/programs/equal.sh > "$WORK/equal.$1.log" 2>&1 || { cat "$WORK/equal.$1.log"; fail "tests/equal, $1"; }
  tail -n 1 "$WORK/equal.$1.log"
}
equal mpi "sharded last_batch llama"
equal shared "led_last_round training"

# ---- what is refused -------------------------------------------------------------------------------

# refused MESSAGE PLAN ARGUMENTS...
refused() {
  ! "$TPGEN" "${@:2}" -o "$WORK/refused" 2> "$WORK/refused.log" && grep -qF "$1" "$WORK/refused.log" ||
    { cat "$WORK/refused.log"; fail "not refused: $1"; }
}
sed 's/return train{/&overlap = 1, /' plans/toy.lua > "$WORK/number.lua"
refused "number.lua:31: error: train's overlap must be a boolean, not a number" "$WORK/number.lua"
refused "prefetch = 4: no list has more than 2 modules" plans/llama3.lua -D dp_shard=2 -D overlap=true -D prefetch=4
# The other target overlaps anyhow: the same program but for the plan's hash.
for overlap in false true; do
  "$TPGEN" plans/llama3.lua -o "$WORK/cuda.$overlap" -D dp_shard=2 -D overlap=$overlap --target cuda || fail "cuda, overlap=$overlap"
done
cmp <(sed 's/[0-9a-f]\{16\}//' "$WORK/cuda.false/step.cu") <(sed 's/[0-9a-f]\{16\}//' "$WORK/cuda.true/step.cu") || fail "cuda: other programs"

# ---- this machine's MPI ----------------------------------------------------------------------------

by_run() {
  local overlap
  for overlap in false true; do
    "$TPGEN" plans/llama3.lua "${golden_shape[@]}" -D dp_shard=2 -D overlap=$overlap -o "$WORK/run.$overlap" &&
      OMP_NUM_THREADS=1 "$WORK/run.$overlap/run.sh" --transport mpi --steps 5 --metrics "$WORK/run.$overlap.jsonl" \
        < /dev/null > "$WORK/run.$overlap.out" 2>&1 || { tail -n 20 "$WORK/run.$overlap.out"; fail "run.$overlap"; return; }
    losses_of "$WORK/run.$overlap.jsonl" > "$WORK/run.$overlap.losses"
  done
  same_losses run "$WORK/run.true.losses" "$WORK/run.false.losses" 1e-6
}
in_ci by_run

finish "collectives run beside arithmetic"
