#!/usr/bin/env bash
# No wrong number in silence: what labels and masks leave out counts for nothing, on meshes, on the
# stand-in and in bfloat16; every token of a file is read once before any comes again, whatever size
# the batches have.
. "$(dirname "$0")/common.sh"
. "$root/tests/programs.sh"
optimized=-O1
plans=tests/numbers
for kind in plain cuda; do
  make_runtime $kind > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime of $kind programs"; }
done

# make NAME KIND PLAN ARGUMENTS...
make() {
  local to=$WORK/$1 kind=$2
  shift 2
  [ "$kind" != cuda ] || set -- "$@" --target cuda
  "$TPGEN" "$@" -o "$to" && make_ranks "$to" "$kind" || { fail "$to: no program"; return 1; }
}

# ---- labels of -100, and queries that see nothing ----------------------------------------------------

# ignored NAME KIND ARGUMENTS...: it leaves what the program that says it by other operations does.
ignored() {
  local name=$1 kind=$2
  shift 2
  make "$name" "$kind" $plans/ignored.lua "$@" && start "$WORK/$name" "$WORK/$name" || { fail "$name"; return; }
  [ "$name" = spelled ] && return
  same_losses "$name" "$WORK/$name.losses" "$WORK/spelled.losses" ${within:-2e-6}
  "$TOOLS/compare_safetensors" "$WORK/spelled.saved/model.safetensors" "$WORK/$name.saved/model.safetensors" \
    ${within:-1e-5} || fail "$name: other weights"
}
ignored spelled plain -D how=spelled
beside "$WORK/one.log" ignored one plain
beside "$WORK/loss_parallel.log" ignored loss_parallel plain -D tp=3
beside "$WORK/both.log" ignored both plain -D dp=2 -D tp=2
beside "$WORK/on_stand_in.log" ignored on_stand_in cuda -D dp=2 -D tp=2
within=2e-3 beside "$WORK/bfloat16.log" ignored bfloat16 plain -D dtype=bfloat16
all_are_done
cat "$WORK"/{one,loss_parallel,both,on_stand_in,bfloat16}.log

# ---- which tokens a step reads ------------------------------------------------------------------------

# Ten windows of eight tokens, and the last one's last target.
awk 'BEGIN { for (i = 0; i < 81; i++) printf "%c%c", (i * 31 + int(i * i / 7)) % 49 + 1, 0 }' > "$WORK/windows.u16"
[ "$(stat -c %s "$WORK/windows.u16")" -eq 162 ] || fail "awk wrote other bytes than 81 tokens"

# follows NAME WINDOWS FIRST COUNT: the run's losses are those of so many windows each, from window FIRST
# on, round and round.
follows() {
  awk -v each="$2" -v first="$3" -v count="$4" '
    NR == FNR { loss[n++] = $1; next }
    {
      for (sum = i = 0; i < each; i++) sum += loss[(first + steps * each + i) % n] / each
      steps++
      if (sum - $1 > 1e-5 || $1 - sum > 1e-5) { print "  step " steps ": " $1 ", not " sum; bad = 1 }
    }
    END { exit bad || n != 10 || steps != count }' "$WORK/windows.losses" "$WORK/$1.losses" ||
    fail "$1: it does not read $2 windows a step, from window $3 on"
}
# read_windows PROGRAM RESULT ARGUMENTS...
read_windows() { start "$WORK/$1" "$WORK/$2" --data "$WORK/windows.u16" "${@:3}" || fail "$2"; }

make one_window plain $plans/place.lua -D batch=1
make three_windows plain $plans/place.lua -D batch=3 -D dp=2
make four_windows plain $plans/place.lua -D batch=2 -D accumulate=2
read_windows one_window windows --steps 10
read_windows one_window again --steps 23
follows again 1 0 23
read_windows three_windows threes --steps 7
follows threes 3 0 7
# After 7 steps of 3 windows one of 4 begins with window 21, and after step 9, one of 3 with window 29.
read_windows four_windows fours --steps 9 --load "$WORK/threes.saved"
follows fours 4 21 2
read_windows three_windows threes_again --steps 12 --load "$WORK/fours.saved"
follows threes_again 3 29 3

finish "what counts for nothing does so, and data goes on where it stopped"
