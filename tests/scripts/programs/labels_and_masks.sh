#!/usr/bin/env bash
# No silent wrong numbers: ignored labels and masked positions do not contribute, on meshes, on the stand-in and
# in bfloat16; every token of a file is read once before any is read again, whatever the size of the batches.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
plans=tests/plans/labels_and_masks
make_runtimes plain cuda

# ---- labels of -100, and queries that see nothing ----------------------------------------------------

# ignored NAME KIND ARGUMENTS...: its results equal those of the program that expresses it by other operations.
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

# follows NAME WINDOWS FIRST COUNT: the run's losses are those of WINDOWS windows each, from window FIRST on,
# cyclically.
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

# ---- indices out of range ------------------------------------------------------------------------------

indices=(embedding gather index_select index_add one_hot scatter scatter_add cross_entropy nll_loss)
# write_indices FILE [NAME VALUE]: a file of data for indices.lua: all indices are valid except that of sample
# 4, in all functions' inputs or in the named one's; elements that the program does not use are 77. It has every
# integer type.
write_indices() {
  awk -v name="${2:-}" -v value="${3:-}" -v names="${indices[*]}" '
    function bytes(n, width,   low) {
      for (; width > 0; width--) {
        low = (n % 256 + 256) % 256
        printf "%c", low
        n = (n - low) / 256
      }
    }
    BEGIN {
      n = split(names, list, " ")
      split("I64 I32 I16 U8 I8 U16 U32 I64 I64", dtype, " ")
      split("8 4 2 1 1 2 4 8 8", width, " ")
      for (k = 1; k <= n; k++) {
        if (list[k] == name) { dtype[k] = "I64"; width[k] = 8 }
        head = head sprintf("%s\"%s\":{\"dtype\":\"%s\",\"shape\":[6,3],\"data_offsets\":[%d,%d]}",
          k > 1 ? "," : "{", list[k], dtype[k], at, at + 18 * width[k])
        at += 18 * width[k]
      }
      head = head sprintf(",\"x\":{\"dtype\":\"F32\",\"shape\":[6,5],\"data_offsets\":[%d,%d]}}", at, at + 120)
      bytes(length(head), 8)
      printf "%s", head
      for (k = 1; k <= n; k++)
        for (i = 0; i < 6; i++)
          for (j = 0; j < 3; j++) bytes(j != 1 ? 77 : list[k] == name && i == 4 ? value : (i + k) % 5, width[k])
      for (i = 0; i < 30; i++) bytes(int(i * 7 % 11) * 2 ^ 20 + 2 ^ 29 + 2 ^ 28, 4)
    }' > "$WORK/$1"
}
# ends_with NAME WORDS ARGUMENTS...: the job ends with a non-zero status and one message that contains these
# words, and saves nothing.
ends_with() {
  local name=$1 words=$2
  rm -rf "$WORK/$name.bad.saved"
  ! start "$WORK/$name" "$WORK/$name.bad" "${@:3}" > /dev/null || fail "$name ${*:3}: status 0"
  grep -qF -- "$words" "$WORK/$name.bad.out" || fail "$name ${*:3}: not '$words': $(tail -n 3 "$WORK/$name.bad.out")"
  [ "$(grep -c 'error' "$WORK/$name.bad.out")" -eq 1 ] || fail "$name ${*:3}: other messages: $(cat "$WORK/$name.bad.out")"
  [ -z "$(find "$WORK/$name.bad.saved" -type f)" ] || fail "$name ${*:3}: it saves what is wrong"
}
# out_of_range NAME KIND HOW ARGUMENTS...
out_of_range() {
  local name=$1 kind=$2 how=$3 function value words
  make "$name" "$kind" $plans/indices.lua -D how="$how" "${@:4}" || return
  start "$WORK/$name" "$WORK/$name" --data "$WORK/right.safetensors" || fail "$name: right indices"
  # The head of the step lists the checks in the program.
  words=
  for word in index_uses noted; do ! sed '/^#include/q' "$WORK/$name"/step.c* | finds -F "$word[]" || words+=" $word"; done
  [ "$words" = " index_uses$([ "$how" = given ] || echo " noted")" ] || fail "$name: the head of the step speaks of$words"
  for function in ${functions:-${indices[*]}}; do
    for value in 5 -1 5000000000; do
      [ "$value" = 5 ] || [ "$function" = gather ] || [ "$function" = nll_loss ] || continue
      if [ "$function" = gather ] && [ "$value" = 5000000000 ]; then
        words=": gather[4, 1] (sample 4) is 5000000000, which is not an int32"
      elif [ "$how" = computed ]; then
        words=": $function takes indices from 0 to 4"
        [[ $function != @(nll_loss|cross_entropy) ]] || words+=", or -100"
        words+=", but by step 1 it was given $value"
      else
        words="$function.$value.safetensors: $function[4, 1] (sample 4) is $value, but $function at $plans/indices.lua:"
      fi
      ends_with "$name" "$words" --data "$WORK/$function.$value.safetensors"
    done
  done
}
write_indices right.safetensors
for function in "${indices[@]}"; do
  for value in 5 -1 5000000000; do
    write_indices "$function.$value.safetensors" "$function" "$value"
  done
done
beside "$WORK/given.log" out_of_range given plain given -D dp=2
functions="embedding cross_entropy" beside "$WORK/given_tp.log" out_of_range given_tp plain given -D tp=2 -D mode=infer
beside "$WORK/computed.log" out_of_range computed plain computed -D dp=2
beside "$WORK/computed_cuda.log" out_of_range computed_cuda cuda computed -D tp=2
all_are_done
cat "$WORK"/{given,given_tp,computed,computed_cuda}.log

finish "what counts for nothing does so, data goes on where it stopped, and what is no index ends a job"
