#!/usr/bin/env bash
# Sequences that are cut over ranks: plans/llama3.lua with -D cp has PyTorch's losses and norms of gradients
# (tests/golden/llama), by each method, with and without balance, with tensor parallel, fully sharded, and on stages; on
# the CPU, on the stand-in for CUDA and in bfloat16. Packed documents are those of tests/golden/documents. The order of
# balanced sequences is PyTorch's (tests/golden/context). Under a ring no rank has keys of a whole sequence, and what travels has the closed form. What does
# not go with it is refused.
. "$(dirname "$0")/common.sh"
local_mpi=yes
. "$root/tests/programs.sh"
steps=${SOAK:+20}
steps=${steps:-3}
export OMP_NUM_THREADS=1

# context KIND NAME ARGUMENTS...
context() { check_golden "$@"; }

# One rank's losses within 5e-7.
as_one_rank() {
  local name
  for name; do same_losses "$name, one rank" "$WORK/$name.losses" "$WORK/one.losses" 5e-7; done
}

# order RANKS: the rows of the table for so many ranks, each of another length; by one program.
order() {
  local ranks=$1 to=$WORK/order$1 lengths expected got header n first
  lengths=$(awk -F'\t' -v r="$ranks" '$2 == r { print $1 }' "$golden/context/head_tail.tsv" | sort -n | paste -sd,)
  "$TPGEN" tests/context/order.lua -o "$to" -D ranks="$ranks" -D lengths="'$lengths'" && make_ranks "$to" plain &&
    start "$to" "$to" || fail "order of $ranks: no places"
  header=$(od -An -td8 -N8 "$to.saved/outputs.safetensors" | tr -d ' ')
  for n in ${lengths//,/ }; do
    expected=$(awk -F'\t' -v r="$ranks" -v n="$n" '$1 == n && $2 == r { print $3 }' "$golden/context/head_tail.tsv")
    first=$(head -c $((8 + header)) "$to.saved/outputs.safetensors" | grep -ao "\"of_$n\":{[^}]*}" | sed 's/.*data_offsets":\[\([0-9]*\),.*/\1/')
    got=$(od -An -v -td4 -w$((4 * n)) -j$((8 + header + first)) -N$((4 * n)) "$to.saved/outputs.safetensors" | sed 's/^ *//; s/  */,/g')
    [ "$got" = "$expected" ] || fail "order of $n over $ranks: $got, not $expected"
  done
  echo "  order, $ranks ranks   lengths $lengths"
}

facts=$root/tests/golden/documents/losses.json
pytorch() { sed "s/.*\"losses\": \\[\\([^]]*\\)\\].*/\\1/" "$facts" | tr -d ' ' | tr , '\n' | sed -n "1,$1p"; }
documents() {
  local name=$1 to=$WORK/$1
  shift
  "$TPGEN" plans/llama3.lua -o "$to" "${golden_shape[@]}" -D documents=10 "$@" && make_ranks "$to" plain ||
    fail "$name: no program"
  from_golden "$to" || fail "$name: it ended with status $?"
  same_losses "$name" "$to.losses" <(pytorch "$steps") 2e-6
}

# Under a ring what is in memory for one layer is as much as one rank has, over the ranks: no rank has all keys. And
# what travels is the block of keys and that of values, in the forward and in the backward, and their gradients, from
# each rank to the next but from the last.
check_memory() {
  local cp bytes whole=0 each to=$WORK/memory
  for cp in 1 2 4 8; do
    "$TPGEN" plans/llama3.lua -o "$to" -D seq=65536 -D batch=1 -D n_layers=1 -D cp=$cp -D context=ring || fail "no ring of $cp"
    bytes=$(awk '$1 == "activations" { gsub(",", "", $2); print $2 }' "$to/plan.txt")
    [ $cp -gt 1 ] || whole=$bytes
    awk -v n="$bytes" -v of="$whole" -v cp=$cp 'BEGIN { exit !(n * cp <= 1.02 * of) }' ||
      fail "a ring of $cp has $bytes bytes of activations, one rank $whole"
    each=$((4 * 65536 / cp * 16 * 4))
    "$TOOLS/collectives" "$to/plan.json" traffic | awk -v each=$each -v n=$((6 * (cp - 1))) '
      $1 == "permute" { times += $3; wrong += $5 != each || $6 != each }
      END { exit !(times == n && !wrong) }' || fail "a ring of $cp moves other bytes than 6 ($cp - 1) times $each"
  done
  echo "  memory           as 1 / cp, and bytes by the closed form"
}

refused() {
  local words=$1
  cat > "$WORK/refused.lua"
  ! "$TPGEN" "$WORK/refused.lua" -o "$WORK/refused" 2> "$WORK/refused.err" && grep -q "$words" "$WORK/refused.err" ||
    fail "not refused with '$words': $(cat "$WORK/refused.err")"
}

runtime_plan=tests/pipeline/plan.lua make_runtimes plain
make_runtimes cuda
beside "$WORK/one.log" context plain one
for cp in 2 3 4; do
  for method in ring allgather ulysses; do
    balance=(-D balance=headtail)
    [ $(((cp + ${#method}) % 2)) -eq 0 ] || balance=()
    beside "$WORK/$method$cp.log" context plain $method$cp -D cp=$cp -D context=$method "${balance[@]}"
  done
done
beside "$WORK/ring2_balanced.log" context plain ring2_balanced -D cp=2 -D balance=headtail
beside "$WORK/ring3_balanced.log" context plain ring3_balanced -D cp=3 -D balance=headtail
beside "$WORK/ring_tp.log" context plain ring_tp -D cp=2 -D tp=2 -D balance=headtail
beside "$WORK/ulysses_tp.log" context plain ulysses_tp -D cp=2 -D tp=2 -D context=ulysses
beside "$WORK/ring_fsdp.log" context plain ring_fsdp -D cp=2 -D dp_shard=2

beside "$WORK/ring_cuda.log" context cuda ring_cuda -D cp=2 -D balance=headtail
beside "$WORK/documents_ring.log" documents documents_ring -D cp=3
beside "$WORK/documents_balanced.log" documents documents_balanced -D cp=2 -D balance=headtail
beside "$WORK/documents_ulysses.log" documents documents_ulysses -D cp=2 -D context=ulysses -D balance=headtail
beside "$WORK/memory.log" check_memory
for ranks in $(cut -f2 "$golden/context/head_tail.tsv" | grep -v '#\|ranks' | sort -nu); do
  beside "$WORK/order$ranks.log" order "$ranks"
done
all_are_done
cat "$WORK"/*.log
as_one_rank ring2 ring3 ring4 allgather2 allgather3 ulysses2 ulysses3 ring2_balanced ring3_balanced ring_tp ulysses_tp ring_fsdp
refused 'method is "ring", "allgather" or "ulysses"' << 'END'
context_parallel(nn.Linear(4, 4), device_mesh{ {"cp", 2} }.cp, {method = "spiral"})
END
refused "does not go with context_parallel's method = \"ring\"" << 'END'
local mesh = device_mesh{ {"cp", 2} }
local M = nn.module("M", function(self)
  function self:forward(x) return F.scaled_dot_product_attention(x, x, x, {attn_mask = F.zeros{8, 8}}) end end)
return infer{model = context_parallel(M(), mesh.cp), batch = distribute({input = randn{1, 2, 8, 4}}, mesh.cp, Shard(2))}
END
finish "sequences in parts train as whole ones"
