#!/usr/bin/env bash
# train{overlap = true}: collectives of programs for the CPU that run beside arithmetic. On two ranks whose MPI takes the
# time of an artificial link (LOCAL_MPI_LINK), the least step of several hides at least 0.4 of what the link takes, with
# the bits of a program without overlap. That MPI does such a collective as late as it may, within its wait; ranks that
# share memory do it at once: plans of tests/equal have the numbers of one rank either way. A checkpoint of one kind of
# program goes on in the other. In CI also programs by run.sh on this machine's MPI, whose thread goes on with collectives.
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

# least_step NAME: the least seconds of its steps but the first.
least_step() { numbers seconds "$WORK/$1.jsonl" | sed 1d | sort -g | head -n 1; }

# run_over RESULT PROGRAM LINK: over a link of so many bytes a second; 0: without one.
run_over() { LOCAL_MPI_LINK=$3 start "$WORK/$2" "$WORK/$1" --steps 8 || fail "$1"; }

# The link takes about 0.6 of the time of the arithmetic, however fast this machine is.
received=$(python3 -c '
import json, sys
plan = json.load(open(sys.argv[1]))
print(sum(c["received"] * c["times"] for c in plan["collectives"]))' "$WORK/wide.true/plan.json")
run_over free wide.false 0
link=$(awk -v bytes="$received" -v step="$(least_step free)" 'BEGIN { printf "%.0f", bytes / (0.6 * step) }')
run_over waits wide.false "$link"
run_over beside wide.true "$link"
awk -v bytes="$received" -v link="$link" -v waits="$(least_step waits)" -v beside="$(least_step beside)" '
  BEGIN {
    wire = bytes / link
    hidden = (waits - beside) / wire
    printf "  %.0f ms of the link in a step: %.0f ms, with overlap %.0f ms: %.2f of it is hidden\n",
      1000 * wire, 1000 * waits, 1000 * beside, hidden
    exit !(waits > wire && hidden >= 0.4)
  }' || fail "the link is not hidden"
for result in waits beside; do
  cmp "$WORK/free.losses" "$WORK/$result.losses" || fail "$result: other losses"
  "$TOOLS/compare_safetensors" "$WORK"/{free,"$result"}.saved/model.safetensors 0 || fail "$result: other tensors"
done

# ---- from one kind to the other --------------------------------------------------------------------

start "$WORK/wide.true" "$WORK/first" --steps 3 &&
  start "$WORK/wide.false" "$WORK/second" --load "$WORK/first.saved" --steps 5 &&
  start "$WORK/wide.true" "$WORK/third" --load "$WORK/second.saved" --steps 8 || fail "checkpoints"
"$TOOLS/compare_safetensors" "$WORK"/{free,third}.saved/model.safetensors 0 || fail "other tensors after two checkpoints"

# ---- whole programs --------------------------------------------------------------------------------

equal() {
  EQUAL_OVERLAP=1 EQUAL_TRANSPORT=$1 EQUAL_PLANS=$2 EQUAL_RANDOM=0 EQUAL_AUTO=0 EQUAL_CUDA=none WORK="$WORK/equal.$1" \
    bash tests/scripts/programs/equal.sh > "$WORK/equal.$1.log" 2>&1 || { cat "$WORK/equal.$1.log"; fail "tests/equal, $1"; }
  tail -n 1 "$WORK/equal.$1.log"
}
equal mpi "sharded microbatches llama awaited_leader"
equal shared "sharded led_last_round"

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
