#!/usr/bin/env bash
# The collectives in plan.json are those of the running program: tests/tools/count_calls.c wraps MPI and counts each
# rank's calls in one step. The k-th statement with a collective that the ranks reach must match the k-th of the
# list, in kind, group and times; the most that a rank sends, and receives, must equal the list's, to the byte,
# and so must rank 0's share. The same holds for the most that a rank sends, and receives, in all steps of a
# redistribution.
#
# A rank leaves out an all-reduce of no elements; here no rank has such a part.
#   COUNTED="reshard"    only programs that match this extended regular expression
#   COUNTED_TRANSPORT=shared  ranks share memory, instead of MPI
. "$(dirname "$0")/../common.sh"
transport=${COUNTED_TRANSPORT:-mpi}
. "$root/tests/scripts/programs.sh"

# Over three ranks (dp=3) the parts of a bucket of gradients are not those of each gradient.
programs=(
  "plans/toy.lua tp=2"
  "plans/toy.lua tp=3"
  "plans/toy.lua dp=3"
  "plans/reshard.lua a=2 b=4 rows=64 columns=32"
  "plans/reshard.lua a=2 b=4 rows=70 columns=45"
  "tests/equal/transformer.lua dp=2 tp=2"
  "tests/equal/training.lua dp=2 tp=2"
  "tests/equal/llama.lua tp=2"
  "plans/llama3.lua dp=3 tp=2 batch=6"
  "plans/llama3.lua dp=2 tp=2"
  "plans/llama3.lua dp=2 tp=2 async_tp=2"
  "plans/llama3.lua dp=4 reshard_after_forward=2 bucket_mb=0.2 accumulate=2"
  "plans/llama3.lua dp=2"
  "tests/equal/transformer.lua dp=3 tp=2"
  "tests/equal/moves_greedy.lua a=2 b=2 c=2"
  "tests/plans/redistributions/pairs.lua mesh=2x3 shape=7x5 every=13 first=4"
  "tests/plans/redistributions/pairs.lua mesh=2x2 shape=4x6 every=11"
  "tests/plans/redistributions/pairs.lua mesh=2x2x2 shape=7x5 every=401 first=7"
)
calls="Allreduce Allgather Allgatherv Reduce_scatter Reduce_scatter_block Alltoall Alltoallv Sendrecv"
calls+=" reduce_scatter gather_segments reduce_segments"
# Counts the runtime's own collectives, and not the calls inside them.
libraries+=(-Wl,--wrap={reduce_scatter,gather_segments,reduce_segments})

# compare NAME RANKS...: the list of plan.json in NAME.stated, the redistributions in NAME.moves, and each rank's
# counts, rank 0 first.
compare() {
  local name=$1
  shift
  awk '
    BEGIN {
      calls["all_reduce"] = "Allreduce"
      calls["all_gather"] = "Allgather Allgatherv gather_segments"
      calls["reduce_scatter"] = "Reduce_scatter Reduce_scatter_block reduce_scatter reduce_segments"
      calls["all_to_all"] = "Alltoall Alltoallv"
      calls["exchange"] = "Alltoallv"
      calls["permute"] = "Sendrecv"
    }
    function wrong(what, stated, counted) {
      if (stated == counted) return
      print "  " what ": stated: " stated "; counted: " counted
      bad = 1
    }
    function most(a, b) { return a > b ? a : b }
    function moved(sent, received) { return sent + 0 " bytes sent, " received + 0 " received" }
    # The bytes that the busiest rank sends, and receives, in these: "3 4".
    function busiest(list,    k, n, of, r, s, g, sent, received) {
      n = split(list, of)
      for (r = 3; r < ARGC; r++) {
        s = g = 0
        for (k = 1; k <= n; k++) { s += sends[r, of[k]]; g += receives[r, of[k]] }
        sent = most(sent, s); received = most(received, g)
      }
      return moved(sent, received)
    }
    FILENAME == ARGV[1] { stated[++n] = $0; next }
    FILENAME == ARGV[2] { move[++nmove] = $0; next }
    FNR == 1 { r = 3; while (ARGV[r] != FILENAME) r++ }
    {
      counted[r] = FNR; call[r, FNR] = $1; called[r, FNR] = $2 " " $3; brought[r, FNR] = $4
      sends[r, FNR] = $5; receives[r, FNR] = $6
    }
    END {
      for (r = 3; r < ARGC; r++) wrong("collectives of rank " r - 3, n, counted[r] + 0)
      if (bad) exit bad
      for (k = 1; k <= n; k++) {
        split(stated[k], t)
        what = "collective " k ", " t[1]
        for (r = 3; r < ARGC; r++) {
          if (!index(" " calls[t[1]] " ", " " call[r, k] " ")) wrong(what, calls[t[1]], call[r, k])
          wrong(what " over, times", t[2] " " t[3], called[r, k])
        }
        wrong(what, moved(t[5], t[6]), busiest(k))
        wrong(what " of bytes", t[4], t[1] ~ /exchange|permute/ ? t[5] : brought[3, k])
      }
      for (k = 1; k <= nmove; k++) {
        split(move[k], t)
        list = move[k]
        sub(/^[0-9]+ [0-9]+ /, "", list)
        wrong("redistribution of collectives " list, moved(t[1], t[2]), busiest(list))
      }
      exit bad
    }' "$name.stated" "$name.moves" "$@"
}

# check PLAN DEFINITIONS...: makes the program, runs one step of it, and compares.
check() {
  local plan=$1 name value arguments=() ranks=() rank other
  name=$(basename "$plan" .lua)
  shift
  for value; do
    arguments+=(-D "$value")
    name+=.$value
  done
  local to=$WORK/$name
  "$TPGEN" "$plan" -o "$to" "${arguments[@]}" || { fail "$name: tpgen ended with status $?"; return; }
  make_ranks "$to" plain || { fail "$name does not compile"; return; }
  [ "$transport" = mpi ] || as_built "$to"
  other=$(cat "$to"/step*.c | grep -oE '\bMPI_[A-Z][a-z_]+\(' | tr -d '(' | sort -u |
    grep -vxE "MPI_(${calls// /|})" || true)
  [ -z "$other" ] || fail "$name calls what is not counted: $other"
  COUNT_CALLS=$to.counted start "$to" "$to" --steps 1 || { fail "$name ended with status $?"; return; }
  for ((rank = 0; rank < $(find "$to" -name 'rank*.o' | wc -l); rank++)); do
    ranks+=("$to.counted.$rank")
  done
  "$TOOLS/collectives" "$to/plan.json" traffic > "$to.stated"
  "$TOOLS/collectives" "$to/plan.json" moves > "$to.moves" || fail "$name: its redistributions"
  [ -s "$to.stated" ] || fail "$name: plan.json tells of no collective"
  compare "$to" "${ranks[@]}" || fail "$name: plan.json tells of other collectives"
  printf '  %-64s %4d collectives\n' "$name" "$(wc -l < "$to.stated")"
  rm -rf "$to" "$to.saved"
}

make_runtime plain && objects "$WORK/plain" plain "$root/tests/tools/count_calls.c" ||
  { fail "the runtime does not compile"; exit 1; }
count=0
for program in "${programs[@]}"; do
  [[ "$program" =~ ${COUNTED:-.} ]] || continue
  count=$((count + 1))
  # shellcheck disable=SC2086
  beside "$WORK/$count.log" check $program
done
all_are_done
[ $count -gt 0 ] || fail "no program is asked for"
[ -n "${COUNTED:-}" ] || for call in $calls; do
  grep -qs "^$call " "$WORK"/*.counted.* || fail "no program has called $call"
done
cat "$WORK"/*.log
finish "$count programs: $(cat "$WORK"/*.stated | wc -l) collectives are as the plan says"
