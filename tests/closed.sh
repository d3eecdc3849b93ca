#!/usr/bin/env bash
# What data parallel training moves in a step, and holds, by the closed forms: of the parameters' bytes P, over
# n ranks, each rank sends
#   copies of all there is (DDP)                         2 (n-1)/n P    one all-reduce of the gradients
#   fully sharded, gathered anew for the backward        3 (n-1)/n P    two gathers, one reduce-scatter
#                                                        less one gather of what the backward does not need:
#                                                        the embedding's weight, E bytes
#   fully sharded, kept from the forward                 2 (n-1)/n P    one of each
# and holds P/n of parameters, gradients and each of AdamW's two states where these are sharded. Read off
# plan.json, to the byte; the loss and the gradients' norm, 8 bytes at most, are no parameters.
. "$(dirname "$0")/common.sh"

# numbers FILE: what the busiest rank sends of parameters and gradients in a step, how many such collectives
# there are, and what a rank holds: parameters, gradients, optimizer.
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

# holds NAME RANKS BYTES SHARE ARGUMENTS...: (n-1)/n BYTES are sent, P/SHARE held.
holds() {
  local name=$1 n=$2 bytes=$3 share=$4 moved count held wanted
  shift 4
  read -r moved count held < <(program "$name" "$@")
  wanted=$((bytes * (n - 1) / n))
  [ "$moved" = "$wanted" ] || fail "$name over $n ranks sends $moved bytes in $count collectives, not $wanted"
  wanted="$((parameters / share)) $((gradients / share)) $((optimizer / share))"
  [ "$held" = "$wanted" ] || fail "$name over $n ranks holds $held bytes, not $wanted"
}

embedding=$((512 * 128 * 4))
for n in 2 4 8; do
  holds copies $n $((2 * parameters)) 1 -D dp_replicate=$n
  holds gathered-again $n $((3 * parameters - embedding)) $n -D dp_shard=$n -D reshard_after_forward=always
  holds kept $n $((2 * parameters)) $n -D dp_shard=$n -D reshard_after_forward=never
done
finish "what is sent and held is the closed form's, over 2, 4 and 8 ranks"
