#!/usr/bin/env bash
# The collectives of a step of plans/llama3.lua are as few as a careful person would write: with L layers
# and more than one rank along tp, 4 L + 2 all-gathers and as many reduce-scatters (one all-gather more
# where the plan asks for whole logits), and at most 5 all-reduces, of which L adds none. Where parameters are
# cut over dp each unit adds its own, one for all its parameters.
. "$(dirname "$0")/common.sh"

# count NAME DEFINITIONS...: "all_gather reduce_scatter all_reduce others", and how many statements there
# are, in $counted and $statements.
count() {
  local name=$1 arguments=() value
  shift
  for value; do arguments+=(-D "$value"); done
  "$TPGEN" "$root/plans/llama3.lua" -o "$WORK/$name" "${arguments[@]}" ||
    { fail "$name: tpgen ended with status $?"; return 1; }
  counted=$("$TOOLS/collectives" "$WORK/$name/plan.json" traffic | awk '
    { n[$1] += $3; all += $3 }
    END {
      g = n["all_gather"] + 0; s = n["reduce_scatter"] + 0; r = n["all_reduce"] + 0
      print g, s, r, all - g - s - r
    }')
}

# check LAYERS MORE BEYOND REDUCES DEFINITIONS...: all-gathers and reduce-scatters beyond 4 L + 2, and
# all-reduces.
check() {
  local layers=$1 more=$2 beyond=$3 reduces=$4 each=$((4 * $1 + 2)) name
  shift 4
  name=$(printf '%s.' "llama3" "layers=$layers" "$@")
  count "$name" "n_layers=$layers" "$@" || return 0
  [ "$counted" = "$((each + more)) $((each + beyond)) $reduces 0" ] ||
    fail "$name: gathers, scatters, reductions, others: $counted, not $((each + more)) $((each + beyond)) $reduces 0"
  checked=$((checked + 1))
}

checked=0
for layers in 1 2 5; do
  for tp in 2 4; do
    # The maxima; the sums and targets; the norms' gradients.
    check $layers 0 0 3 "tp=$tp"
    check $layers 1 0 1 "tp=$tp" "loss_parallel=false"
    # And the norm of all gradients; in the update where batches are added up.
    check $layers 0 0 4 "tp=$tp" "clip=1"
    # The loss over dp; the gradients that are whole over tp, and those that are not.
    check $layers 0 0 5 "tp=$tp" "dp_replicate=2"
    # Fully sharded: each unit is gathered once, a layer again for its backward; and reduced once.
    check $layers $((2 * layers + 2)) $((layers + 2)) 4 "tp=$tp" "dp_shard=2"
  done
done
# Classes and a sequence that do not divide, ranks without classes: the same.
check 2 0 0 3 tp=4 vocab=9 seq=9
finish "$checked programs: their collectives are as few as can be"
