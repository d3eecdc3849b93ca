#!/usr/bin/env bash
# The traffic of a data parallel step, and the memory of a rank, by the closed forms: of the parameters' bytes
# P, over n ranks, each rank sends
#   replicated (DDP)                                     2 (n-1)/n P    one all-reduce of the gradients
#   fully sharded, gathered again for the backward       3 (n-1)/n P    two gathers, one reduce-scatter
#                                                        less one gather of what the backward does not need:
#                                                        the embedding's weight, E bytes
#   fully sharded, kept from the forward                 2 (n-1)/n P    one of each
# and holds P/n of parameters, gradients and each of AdamW's two states if these are sharded. Read from
# plan.json, to the byte, without the loss and the gradients' norm, 8 bytes at most.
. "$(dirname "$0")/../common.sh"

# numbers FILE: the bytes of parameters and gradients that the busiest rank sends in a step, the number of such
# collectives, and a rank's memory: parameters, gradients, optimizer.
numbers() {
  awk -F'[:,]' '
    /"redistributions": / { listed = 1 }
    /"bytes": / { bytes = $2 } /"sent": / { sent = $2 } /"times": / { times = $2 }
    /"why": / && !listed && bytes > 8 { all += sent * times; count += times; bytes = 0 }
    /"(parameters|gradients|optimizer)": [0-9]/ { held = held " " $2 + 0 }
    END { print all + 0, count + 0 held }' "$1"
}

# program NAME ARGUMENTS...
program() {
  local name=$1
  shift
  "$TPGEN" plans/llama3.lua -o "$WORK/$name" -D batch=8 "$@" || fail "$name: tpgen ended with status $?"
  numbers "$WORK/$name/plan.json"
}

read -r sent count parameters gradients optimizer < <(program one)
[ "$sent $count" = "0 0" ] || fail "one rank moves $sent bytes in $count collectives"

# holds NAME RANKS BYTES SHARE CALLS ARGUMENTS...: CALLS collectives send (n-1)/n BYTES, and a rank holds
# P/SHARE.
holds() {
  local name=$1 n=$2 bytes=$3 share=$4 calls=$5 moved count held expected
  shift 5
  read -r moved count held < <(program "$name" "$@")
  expected=$((bytes * (n - 1) / n))
  [ "$moved in $count" = "$expected in $calls" ] ||
    fail "$name over $n ranks sends $moved bytes in $count collectives, not $expected in $calls"
  expected="$((parameters / share)) $((gradients / share)) $((optimizer / share))"
  [ "$held" = "$expected" ] || fail "$name over $n ranks holds $held bytes, not $expected"
}

# The units: the embedding, two layers, the norm with the output. Each is moved by one collective.
embedding=$((512 * 128 * 4)) units=4
for n in 2 4 8; do
  holds copies $n $((2 * parameters)) 1 1 -D dp_replicate=$n
  holds again $n $((3 * parameters - embedding)) $n $((3 * units - 1)) -D dp_shard=$n -D reshard_after_forward=always
  holds kept $n $((2 * parameters)) $n $((2 * units)) -D dp_shard=$n -D reshard_after_forward=never
done
finish "what is sent and held is the closed form's, over 2, 4 and 8 ranks"
