#!/usr/bin/env bash
# Sequences that are cut over ranks: plans/llama3.lua with -D cp has PyTorch's losses and norms of gradients
# (tests/golden/llama), by each method, by a ring of groups that exchange heads, with and without balance, with tensor
# parallel, fully sharded, and on stages; on the CPU, on the stand-in for CUDA and in bfloat16. Packed documents are
# those of tests/golden/documents. Each option of attention is kept or refused. The order of balanced sequences is
# PyTorch's (tests/golden/context). Under a ring no rank has keys of a whole sequence, and what travels has the closed
# form. What does not go with it is refused.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
steps=${SOAK:+20}
steps=${steps:-3}
export OMP_NUM_THREADS=1

# context KIND NAME ARGUMENTS...
context() { check_golden "$@"; }

# with NAME ARGUMENTS...: such a program beside others, to be compared with one rank's.
names=()
with() {
  names+=("$1")
  beside "$WORK/$1.log" context plain "$@"
}

# In bfloat16 losses are float32's but for its roundings.
bfloat16() {
  within=(1e-2 1e-2)
  check_golden "$@" -D dtype=bfloat16
}

# as_one_rank ONE NAMES...: the losses of that program, which runs on one rank, within 5e-7.
as_one_rank() {
  local name one=$1
  shift
  for name; do same_losses "$name, one rank" "$WORK/$name.losses" "$WORK/$one.losses" 5e-7; done
}

# options NAME HOW DEFINITIONS...: tests/plans/context/options.lua.
options() {
  local name=$1 how=$2 given=() each
  shift 2
  for each; do given+=(-D "$each"); done
  make "$name" plain tests/plans/context/options.lua -D how="$how" "${given[@]}" && start "$WORK/$name" "$WORK/$name" ||
    fail "$name: no losses"
}

# other NAME PLAN DEFINITIONS...: another plan, from its initial weights, on the Llama's text.
other() {
  local name=$1 plan=$2
  shift 2
  make "$name" plain "plans/$plan.lua" "$@" && start "$WORK/$name" "$WORK/$name" --data "$llama/text.txt" --steps "$steps" ||
    fail "$name: no losses"
}

# not_kept HOW WORDS DEFINITIONS...: that it does not go with what the words say is an error of the plan.
not_kept() {
  local how=$1 words=$2 given=() each
  shift 2
  for each; do given+=(-D "$each"); done
  ! "$TPGEN" tests/plans/context/options.lua -o "$WORK/refused" -D cp=2 -D how="$how" "${given[@]}" 2> "$WORK/refused.err" &&
    grep -q "does not go with context_parallel's $words" "$WORK/refused.err" ||
    fail "$how with $* is not refused: $(cat "$WORK/refused.err")"
}

# order RANKS: the rows of the table for so many ranks, each of another length; by one program.
order() {
  local ranks=$1 to=$WORK/order$1 lengths expected got header n first
  lengths=$(awk -F'\t' -v r="$ranks" '$2 == r { print $1 }' "$golden/context/head_tail.tsv" | sort -n | paste -sd,)
  "$TPGEN" tests/plans/context/order.lua -o "$to" -D ranks="$ranks" -D lengths="'$lengths'" && make_ranks "$to" plain &&
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
of_documents() { make "$1" "$2" plans/llama3.lua "${golden_shape[@]}" -D documents=10 "${@:3}"; }
documents() {
  local kind=$1 name=$2 to=$WORK/$2
  of_documents "$name" "$kind" "${@:3}"
  from_golden "$to" || fail "$name: it ended with status $?"
  same_losses "$name" "$to.losses" <(pytorch "$steps") 2e-6
}

# blocks DIRECTORY: how many blocks its ranks send in all of its exchanges, each of which several steps share.
blocks() { cat "$1"/rank*.c | grep -c '^static const counted give_[0-9]*\[\] = {[1-9]'; }

# Under a ring what is in memory for one layer is as much as one rank has, over the ranks: no rank has all keys. And
# what travels is the block of keys and that of values, in the forward and in the backward, and their gradients. With a
# causal mask a block goes to later ranks alone: in step s, and in the exchange that takes its gradients home, from
# cp - s ranks. With a balance from all.
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
    [ "$(blocks "$to")" = $((cp * (cp - 1))) ] || fail "a ring of $cp sends $(blocks "$to") blocks, not $cp ($cp - 1)"
    [ $cp = 4 ] || continue
    "$TPGEN" plans/llama3.lua -o "$to" -D seq=65536 -D batch=1 -D n_layers=1 -D cp=$cp -D balance=headtail || fail "no balance"
    [ "$(blocks "$to")" -gt $((cp * (cp - 1))) ] || fail "with a balance only $(blocks "$to") blocks are sent"
  done
  echo "  memory           as 1 / cp, and bytes by the closed form"
}

# The places of balanced tokens are computed by each rank: nothing of them is sent, neither around a ring nor gathered.
check_places() {
  local method
  for method in ring allgather ulysses; do
    "$TPGEN" plans/llama3.lua --dump=redistribute "${golden_shape[@]}" -D cp=3 -D context=$method -D balance=headtail \
      > "$WORK/$method.places" || fail "$method: no dump"
    ! grep -E ' = (all_gather|all_to_all|exchange|reduce_scatter|all_reduce)\(.* i32\[64\]' "$WORK/$method.places" ||
      fail "$method sends places"
  done
}

# longest TOKENS KIND NAME ARGUMENTS...: trains on documents of at most so many tokens.
longest() {
  local lines=$WORK/lines$1.txt kind=$2 name=$3 to=$WORK/$3
  shift 3
  of_documents "$name" "$kind" "$@" &&
    start "$to" "$to" --data "$lines" --steps "$steps" || fail "$name: no losses"
}
# sends_less NAME ARGUMENTS...: its program sends fewer blocks than without a longest document.
sends_less() {
  local to=$WORK/$1 all=$WORK/$1.all
  "$TPGEN" plans/llama3.lua -o "$all" "${golden_shape[@]}" -D documents=10 "${@:2}" || fail "$1: no program"
  [ "$(blocks "$to")" -gt 0 ] && [ "$(blocks "$to")" -lt "$(blocks "$all")" ] || fail "$1 sends $(blocks "$to") of $(blocks "$all") blocks"
}
# too_long KIND NAME ARGUMENTS...: a document of 20 tokens ends it.
too_long() {
  local kind=$1 name=$2 to=$WORK/$2
  of_documents "$name" "$kind" -D longest=19 "${@:3}"
  ! start "$to" "$to" --data "$WORK/lines20.txt" --steps 2 > /dev/null &&
    grep -qF 'documents (longest = 19) takes indices from 0 to 18, but by step 1 it was given 19' "$to.out" || fail "$name: no end"
}

refused() {
  local words=$1
  cat > "$WORK/refused.lua"
  ! "$TPGEN" "$WORK/refused.lua" -o "$WORK/refused" 2> "$WORK/refused.err" && grep -q "$words" "$WORK/refused.err" ||
    fail "not refused with '$words': $(cat "$WORK/refused.err")"
}

# told WORDS: the plan, which is read here, is taken, with a note that has the words.
told() {
  local words=$1
  cat > "$WORK/told.lua"
  "$TPGEN" "$WORK/told.lua" -o "$WORK/told" 2> "$WORK/told.err" && grep -q "note: .*$words" "$WORK/told.err" ||
    fail "no note with '$words': $(cat "$WORK/told.err")"
}

make_runtimes plain
make_runtimes cuda
with one
for cp in 2 3 4; do
  for method in ring allgather ulysses; do
    balance=(-D balance=headtail)
    [ $(((cp + ${#method}) % 2)) -eq 0 ] || balance=()
    [ $cp$method = 3ring ] || [ $cp$method = 3allgather ] || [ $cp$method = 2ulysses ] || all_cases || continue
    with $method$cp -D cp=$cp -D context=$method "${balance[@]}"
  done
done
with ring2_balanced -D cp=2 -D balance=headtail
more with ring3_balanced -D cp=3 -D balance=headtail
with ring_tp -D cp=2 -D tp=2 -D balance=headtail
more with ulysses_tp -D cp=2 -D tp=2 -D context=ulysses
with ring_fsdp -D cp=2 -D dp_shard=2

with ring_pp -D cp=2 -D pp=2 -D microbatches=2 -D balance=headtail
with both4 -D cp=4 -D ulysses=2 -D balance=headtail
more with both6 -D cp=6 -D ulysses=3
more with gather_heads -D cp=4 -D ulysses=2 -D context=allgather -D tp=2
beside "$WORK/bf16_one.log" bfloat16 plain bf16_one
beside "$WORK/bf16_ring.log" bfloat16 plain bf16_ring -D cp=2 -D balance=headtail

more beside "$WORK/bf16_cuda.log" bfloat16 cuda bf16_cuda -D cp=3
optimized=-O1 beside "$WORK/ring_cuda.log" context cuda ring_cuda -D cp=2 -D balance=headtail
beside "$WORK/documents_ring.log" documents plain documents_ring -D cp=3
more beside "$WORK/documents_balanced.log" documents plain documents_balanced -D cp=2 -D balance=headtail
more beside "$WORK/documents_ulysses.log" documents plain documents_ulysses -D cp=2 -D context=ulysses -D balance=headtail
more beside "$WORK/documents_cuda.log" documents cuda documents_cuda -D cp=2 -D balance=headtail
for n in 8 20; do
  fold -w $((n - 1)) "$llama/text.txt" > "$WORK/lines$n.txt"
  beside "$WORK/longest_one$n.log" longest $n plain longest_one$n
done
beside "$WORK/longest20.log" longest 20 plain longest20 -D cp=3 -D longest=20
beside "$WORK/longest8_balanced.log" longest 8 plain longest8_balanced -D cp=4 -D longest=8 -D balance=headtail
more beside "$WORK/longest20_cuda.log" longest 20 cuda longest20_cuda -D cp=3 -D longest=20
more beside "$WORK/longest20_tp.log" longest 20 plain longest20_tp -D tp=2 -D longest=20
beside "$WORK/too_long.log" too_long plain too_long -D cp=3
more beside "$WORK/too_long_cuda.log" too_long cuda too_long_cuda
beside "$WORK/memory.log" check_memory
beside "$WORK/places.log" check_places
for how in kept scores; do beside "$WORK/${how}_one.log" options ${how}_one $how cp=1; done
for method in ring allgather ulysses; do
  beside "$WORK/kept_$method.log" options kept_$method kept cp=3 context=$method
  beside "$WORK/kept_${method}_balanced.log" options kept_${method}_balanced kept cp=2 context=$method balance=headtail
  [ $method = ring ] || beside "$WORK/scores_$method.log" options scores_$method scores cp=3 context=$method
done
beside "$WORK/kept_both.log" options kept_both kept cp=2 heads=3
more beside "$WORK/kept_both_balanced.log" options kept_both_balanced kept cp=2 heads=2 balance=headtail
other_plans="gpt2 $(more echo qwen gemma) ${SOAK:+falcon gpt_neox phi3}"
for plan in $other_plans; do
  beside "$WORK/${plan}_one.log" other ${plan}_one $plan
  beside "$WORK/${plan}_cp.log" other ${plan}_cp $plan -D cp=3 -D balance=headtail
done
for ranks in $(cut -f2 "$golden/context/head_tail.tsv" | grep -v '#\|ranks' | sort -nu); do
  beside "$WORK/order$ranks.log" order "$ranks"
done
all_are_done
cat "$WORK"/*.log
as_one_rank "${names[@]}"
for n in 8 20; do
  for name in longest${n}{,_cuda,_balanced,_tp}; do [ ! -e "$WORK/$name" ] || same_losses "$name" "$WORK/$name.losses" "$WORK/longest_one$n.losses" 5e-7; done
done
# A document may be as long as the sequence: that changes nothing.
text() { cat "$WORK/$1"/{step,kernels,rank0}.c | sed 's/[0-9a-f]\{16\}//g'; }
for longest in 64 100; do
  "$TPGEN" plans/llama3.lua -o "$WORK/whole" "${golden_shape[@]}" -D documents=10 -D cp=3 -D longest=$longest &&
    cmp <(text whole) <(text documents_ring) || fail "longest = $longest changes the program"
done
sends_less longest20 -D cp=3
sends_less longest8_balanced -D cp=4 -D balance=headtail
for name in bf16_ring $(more echo bf16_cuda); do same_losses "$name, one rank" "$WORK/$name.losses" "$WORK/bf16_one.losses" 2e-4; done
as_one_rank kept_one kept_{ring,allgather,ulysses}{,_balanced} kept_both $(more echo kept_both_balanced)
as_one_rank scores_one scores_{allgather,ulysses}
for plan in $other_plans; do as_one_rank ${plan}_one ${plan}_cp; done
for how in bias dropout; do
  not_kept $how 'method = "ring"' context=ring
  not_kept $how 'method = "ring"' context=ring balance=headtail
  not_kept $how 'method = "ring"' context=ring heads=2
  not_kept $how balance context=allgather balance=headtail
  not_kept $how balance context=ulysses balance=headtail
done
refused "say which token ends one" << 'END'
return tokens(8, {longest = 4}){2, 4}
END
refused 'method is "ring", "allgather" or "ulysses"' << 'END'
context_parallel(nn.Linear(4, 4), device_mesh{ {"cp", 2} }.cp, {method = "spiral"})
END
refused "does not go with context_parallel's method = \"ring\"" << 'END'
local mesh = device_mesh{ {"cp", 2} }
local M = nn.module("M", function(self)
  function self:forward(x) return F.scaled_dot_product_attention(x, x, x, {attn_mask = F.zeros{8, 8}}) end end)
return infer{model = context_parallel(M(), mesh.cp), batch = distribute({input = randn{1, 2, 8, 4}}, mesh.cp, Shard(2))}
END
told "'places' has 8 elements along dimension 1, and is not cut as the tokens are" << 'END'
local mesh = device_mesh{ {"cp", 2} }
local M = nn.module("M", function(self)
  function self:forward(x) return F.scaled_dot_product_attention(x, x, x, {is_causal = true}) end end)
return infer{model = context_parallel(M(), mesh.cp, {balance = "headtail"}),
  batch = {input = distribute(randn{1, 8, 4}, mesh.cp, Shard(1)), places = randint(0, 8){1, 8}},
  outputs = function(model, batch) return {y = model(batch.input:unsqueeze(1)), z = batch.places} end}
END
told "queries or keys are made of 'index', whose 8 elements are in the order of the sequence" << 'END'
local mesh = device_mesh{ {"cp", 2} }
local M = nn.module("M", function(self)
  function self:forward(x)
    local q = x:rotary(F.rotary_tables(8, 4))
    return F.scaled_dot_product_attention(q, q, x, {is_causal = true})
  end end)
return infer{model = context_parallel(M(), mesh.cp, {balance = "headtail"}),
  batch = {input = distribute(randn{1, 8, 4}, mesh.cp, Shard(1))},
  outputs = function(model, batch) return {y = model(batch.input:unsqueeze(1))} end}
END
finish "sequences in parts train as whole ones"
