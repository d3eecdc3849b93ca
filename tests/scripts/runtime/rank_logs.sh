#!/usr/bin/env bash
# run.sh --logs and --stragglers: a file of each rank, which has what the rank printed last however it ends, and the rank that
# works longest, where all wait for it.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
export OMP_NUM_THREADS=1
plan=tests/plans/rank_logs.lua
make_runtimes plain cuda
make by_mpi plain $plan && make on_stand_in cuda $plan || exit 1
(transport=shared WORK=$WORK/memory && mkdir -p "$WORK" && make_runtimes plain && make shared plain $plan && as_built "$WORK/shared") || exit 1
mv "$WORK/memory/shared" "$WORK/shared"

# The lines of a rank's file that say how long it worked in a step.
worked() { grep -Ec '^step: [0-9]+  seconds: [0-9.e+-]+  work: [0-9.e+-]+$' "$1" || true; }

# logs NAME STEPS: two jobs, whose files have the lines of both, of so many steps each.
logs() {
  local name=$1 steps=$2 to=$WORK/$1.logs/of/job r times
  for times in 1 2; do
    start "$WORK/$name" "$WORK/$name" --logs "$to" --stragglers --overwrite || { fail "$name"; return; }
    for r in 0 1; do
      [ "$(worked "$to/rank$r.log")" -eq $((times * steps)) ] || fail "$name: rank $r has not $times times $steps steps"
      [ "$(grep -c "^rank $r on .*, process [0-9]*, 20..-..-..T..:..:..Z$" "$to/rank$r.log")" -eq $times ] || fail "$name: rank $r: no head"
    done
  done
  diff <(grep loss "$WORK/$name.out") <(grep loss "$to/rank0.log" | tail -n 8) > "$WORK/$name.diff" || fail "$name: rank 0's file lacks its output"
  ! finds loss < "$to/rank1.log" || fail "$name: rank 1's file has rank 0's lines"
  # Most steps name rank 0; other work of this machine may make rank 1 slow in some.
  [ "$(grep -c '"slowest_rank":0' "$WORK/$name.jsonl")" -ge $((steps / 2)) ] ||
    fail "$name: rank 0 is not the slowest: $(grep -o '"work".*' "$WORK/$name.jsonl" | tr '\n' ' ')"
  python3 - "$WORK/$name.jsonl" $((2 * steps)) << 'END' || fail "$name: times of work"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
lines = [line for line in lines if "work" in line]
assert len(lines) in (int(sys.argv[2]), int(sys.argv[2]) // 2), lines
for line in lines:
    assert 0 < line["work"] <= line["slowest_work"] * 1.00001 and line["slowest_work"] <= 2 * line["work"] + 2e-6, line
    assert line["work"] < line["seconds"], line
END
}
logs shared 8
logs by_mpi 8
logs on_stand_in 6 # the first two are not measured there

# ---- a rank that ends -----------------------------------------------------------------------------------------------

# The message of a rank that is not the first is on the terminal, and in its file: it cannot read the weights.
python3 - "$WORK" << 'END'
import json, struct, sys
head = json.dumps({"0.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
open(sys.argv[1] + "/wrong.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + bytes(8))
END
! start "$WORK/shared" "$WORK/shared" --logs "$WORK/ends" --weights "$WORK/wrong.safetensors" > "$WORK/ends.out" || fail "wrong weights: status 0"
grep -q 'error: .*0.weight' "$WORK/ends.out" || fail "wrong weights: no message"
grep -q 'error: .*0.weight' "$WORK/ends"/rank?.log || fail "wrong weights: in no file"
# Killed while it trains: what it printed is there, and who lost it says so in its file.
"$WORK/shared/run.sh" --steps 1000000 --logs "$WORK/killed" > "$WORK/killed.out" 2>&1 < /dev/null &
job=$!
await() { # SECONDS COMMAND...
  local i
  for ((i = 0; i < 20 * $1; i++)); do ! "${@:2}" > /dev/null 2>&1 || return 0; sleep 0.05; done
  return 1
}
await 60 grep -q '^step: 3 ' "$WORK/killed/rank1.log" || fail "killed: it does not train"
pid=$(sed -n 's/.*process \([0-9]*\),.*/\1/p' "$WORK/killed/rank1.log")
kill -KILL "$pid"
wait $job && fail "killed: status 0"
await 10 grep -q 'rank 1 is gone' "$WORK/killed/rank0.log" || fail "killed: rank 0's file does not say so: $(tail -n 3 "$WORK/killed/rank0.log")"
await 10 finds 'rank 1 is gone' < "$WORK/killed.out" || fail "killed: no message: $(tail -n 3 "$WORK/killed.out")"

# ---- what cannot be -------------------------------------------------------------------------------------------------

touch "$WORK/file"
! start "$WORK/shared" "$WORK/shared" --logs "$WORK/file" > "$WORK/no.out" || fail "--logs of a file: status 0"
grep -q "error: $WORK/file: cannot make the directory" "$WORK/no.out" || fail "--logs of a file: $(cat "$WORK/no.out")"
! start "$WORK/on_stand_in" "$WORK/on_stand_in" --graph --stragglers > "$WORK/no.out" || fail "--graph --stragglers: status 0"
grep -qF -- "--graph makes it one" "$WORK/no.out" || fail "--graph --stragglers: $(cat "$WORK/no.out")"

finish "files of ranks that share memory, talk by MPI, and run on the stand-in"
