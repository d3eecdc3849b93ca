#!/usr/bin/env bash
# A step of plans/llama3.lua has as few collectives as a careful person would write: with L layers and more than
# one rank along tp, 4 L + 2 all-gathers and as many reduce-scatters (one all-gather more if the plan asks for
# whole logits), and at most 5 all-reduces, independent of L. With parameters sharded over dp each unit adds its
# own, one for all its parameters; over a step of several batches, and in buckets with caps, as often as the
# plan says. And expect accepts a plan with exactly these.
. "$(dirname "$0")/../common.sh"

# count NAME DEFINITIONS...: "all_gather reduce_scatter all_reduce others" in $counted, and the number of
# statements in $statements.
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

# check LAYERS MORE BEYOND REDUCES DEFINITIONS...: all-gathers and reduce-scatters in addition to 4 L + 2, and
# the all-reduces.
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
    # The loss over dp; the gradients that are replicated over tp, and the others.
    check $layers 0 0 5 "tp=$tp" "dp_replicate=2"
    # Fully sharded: each unit is gathered once, a layer again for its backward; and reduced once.
    check $layers $((2 * layers + 2)) $((layers + 2)) 4 "tp=$tp" "dp_shard=2"
  done
done
# Casts of parameters change nothing: a slice of a copy costs nothing by itself.
check 2 0 0 5 tp=4 dp_replicate=8 batch=32 dtype=bfloat16
# Classes and a sequence that do not divide, ranks without classes: the same.
check 2 0 0 3 tp=4 vocab=9 seq=11
# Heads that do not divide over tp: with fewer key-value heads than ranks each rank has all of them; else each
# rank has all heads of some queries or, if there are enough, of some sequences.
heads() {
  local expected=$1
  shift
  count "heads.$*" n_layers=2 n_heads=4 n_kv_heads=2 "$@" || return 0
  [ "$counted" = "$expected" ] || fail "$*: gathers, scatters, reductions, others: $counted, not $expected"
  checked=$((checked + 1))
}
heads "18 10 3 0" tp=4
heads "14 14 3 8" tp=3 batch=2
heads "10 10 3 16" tp=3 batch=3

# ways GATHERS SCATTERS DEFINITIONS...: of a step of three batches, with two layers and dp=2. The labels of each batch are counted
# on all ranks, and the loss is summed once.
ways() {
  local expected="$1 $2 4 0"
  shift 2
  count "ways.$*" n_layers=2 dp=2 batch=2 accumulate=3 "$@" || return 0
  [ "$counted" = "$expected" ] || fail "$*: gathers, scatters, reductions, others: $counted, not $expected"
  checked=$((checked + 1))
}
# ZeRO gathers three units once, and reduces the gradients of each batch; its stage 1 may reduce their sum.
# Fully sharded, four units are gathered for each batch, and the layers again for its backward.
ways 3 9 zero=1
ways 3 3 zero=1 reduce_each_batch=false
ways 3 9 zero=2 reduce_each_batch=false
ways 18 12
ways 18 3 reduce_each_batch=false
ways 12 3 reshard_after_forward=never reduce_each_batch=false
ways 18 12 reduce_each_batch=true
# says WORDS DEFINITIONS...: what plan.txt says of gradients, for the same step.
says() {
  local words=$1 wide=()
  shift
  for definition; do wide+=(-D "$definition"); done
  "$TPGEN" plans/llama3.lua -D n_layers=2 -D dp=2 -D batch=8 -D microbatches=4 "${wide[@]}" --target cuda -o "$WORK/says" \
    > "$WORK/says.log" 2>&1 || { fail "$*: tpgen ended with status $?: $(< "$WORK/says.log")"; return; }
  sed -n '/^gradients  /,/^ *$/p' "$WORK/says/plan.txt" | tr -s ' \n' ' ' > "$WORK/says.line"
  grep -q "$words" "$WORK/says.line" || fail "$*: plan.txt says: $(< "$WORK/says.line")"
  checked=$((checked + 1))
}
# Whole sums where they fit in a memory that is known, and the step is shorter.
says 'after each micro-batch: no memory is known'
says 'whole over 4 batches and reduced once: that fits in 80.0 GiB' device=H100
says 'after each micro-batch: with whole sums a rank needs' device=H100 dim=1024 hidden=4096 memory=1540MiB
says 'whole over 4 batches and reduced once: reduce_each_batch = false' reduce_each_batch=false
says 'after each micro-batch: reduce_each_batch' reduce_each_batch=true device=H100
says 'whole over 4 batches and reduced once: that fits in 80.0 GiB' zero=1 device=H100
says 'after each micro-batch: no memory is known' zero=1
says 'after each micro-batch: a rank adds up only the part' zero=2 device=H100
# last N EXPOSED DEFINITIONS...: a step of an 8B in two batches. N kinds of reductions are in the backward of the last one,
# beside which no more than so many milliseconds of collectives are exposed.
last() {
  local expected=$1 most=$2 wide=() found exposed
  shift 2
  for definition; do wide+=(-D "$definition"); done
  "$TPGEN" plans/llama3.lua -D preset=8b -D dtype=bfloat16 -D checkpoint=layer -D memory=200GiB "${wide[@]}" --ranks 0 \
    --target cuda -o "$WORK/last" > "$WORK/last.log" 2>&1 || { fail "$*: tpgen ended with status $?: $(< "$WORK/last.log")"; return; }
  found=$(cat "$WORK"/last/plan*.txt | sed -n '/^order/,$p' | { grep -o 'in the last batch' || true; } | wc -l)
  [ "$found" = "$expected" ] || fail "$*: $found reductions of the last batch, not $expected: $(sed -n '/^order/,$p' "$WORK/last/plan.txt")"
  exposed=$(sed -nE 's/^ *(collectives .* ([0-9.]+) ms of it exposed|exposed +([0-9.]+) ms).*/\2\3/p' "$WORK/last/plan.txt" | head -n 1)
  awk "BEGIN { exit !($exposed <= $most) }" || fail "$*: $exposed ms are exposed, more than $most"
  checked=$((checked + 1))
}
last 2 55 device=H100 dp=8 batch=16 microbatches=2 zero=1
last 10 20 device=H100 dp=8 batch=16 microbatches=2 dp_replicate=8
last 6 60 device=H100 dp=16 batch=32 microbatches=2 dp_replicate=8
# As before: each batch's are reduced; stages of a pipeline.
last 0 1000 device=H100 dp=8 batch=16 microbatches=2 zero=2
last 0 1000 device=H100 dp=8 pp=2 batch=16 microbatches=2
# in_pieces DEFINITIONS...: async_tp cuts along the sequence, however many samples a rank has.
in_pieces() {
  local wide=()
  for definition; do wide+=(-D "$definition"); done
  "$TPGEN" plans/llama3.lua -D n_layers=2 -D seq=128 -D async_tp=2 "${wide[@]}" --target cuda -o "$WORK/pieces" \
    > "$WORK/pieces.log" 2>&1 || { fail "async_tp, $*: $(< "$WORK/pieces.log")"; return; }
  [ "$(grep -c '^ *forward .* in 2 pieces .* layers\.0\.' "$WORK/pieces/plan.txt")" = 4 ] ||
    fail "async_tp, $*: $(sed -n '/^async_tp/,/^$/p' "$WORK/pieces/plan.txt")"
  checked=$((checked + 1))
}
in_pieces tp=4 batch=4
in_pieces tp=4 batch=1
in_pieces tp=2 dp_shard=2 batch=4
# In bfloat16 parameters are gathered with two bytes each, and gradients reduced with four (reduce_dtype). Of
# 500,352 parameters a rank contributes its half, and all gradients.
count narrow n_layers=2 dp=2 zero=1 dtype=bfloat16 || true
moved=$("$TOOLS/collectives" "$WORK/narrow/plan.json" traffic |
  awk '{ n[$1] += $3 * $4 } END { print n["all_gather"], n["reduce_scatter"] }')
[ "$moved" = "500352 2001408" ] || fail "bfloat16: bytes gathered, reduced: $moved"

# The parameters that a group of two keeps are gathered within it for the backward, and from all groups for the
# forward.
count groups n_layers=2 dp=4 reshard_after_forward=2 || true
moved=$("$TOOLS/collectives" "$WORK/groups/plan.json" traffic | awk '$1 == "all_gather" { n[$2] += $3 }
  END { print n["dp_across"], n["dp_within"], n["dp_within_dp_across"] }')
[ "$moved" = "3 5 1" ] || fail "reshard_after_forward=2: gathers across, within, both: $moved"

# The default of fully_shard.
cat > "$WORK/sharded.lua" << 'END'
local mesh = device_mesh{ {"dp", 2} }
local model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
for _, layer in ipairs{model[1], model[2], model[3]} do
  fully_shard(layer, mesh.dp, args.reshard ~= nil and {reshard_after_forward = args.reshard} or nil)
end
return train{
  model = model, batch = distribute({input = randn{4, 8}}, mesh.dp, Shard(0)),
  loss = function(y) return y:square():mean() end, optimizer = SGD(), steps = 1,
}
END
for way in '' '-D reshard=true' '-D reshard=false'; do
  # shellcheck disable=SC2086
  "$TPGEN" "$WORK/sharded.lua" -o "$WORK/sharded" $way || fail "fully_shard $way"
  "$TOOLS/collectives" "$WORK/sharded/plan.json" | grep -c '^backward all_gather' || true
done > "$WORK/sharded.again"
[ "$(xargs < "$WORK/sharded.again")" = "1 1 0" ] || fail "fully_shard gathers again: $(xargs < "$WORK/sharded.again")"

# Buckets with the size of a layer, 738,304 bytes, hold it; smaller ones split it.
parted() {
  count "parted.$1" n_layers=2 dp=2 "bucket_mb=$1" || return 0
  [ "$counted" = "$2" ] || fail "bucket_mb=$1: gathers, scatters, reductions, others: $counted, not $2"
  checked=$((checked + 1))
}
parted 0.7041015625 "6 4 1 0"
parted 0.7041006 "10 6 1 0"

# Over links of two speeds a gather along the sequence is one step as well: the order in memory that spares its packing is
# decided with the steps. Each sublayer has a gather and a scatter, in the forward and in the backward.
count tiers preset=8b n_layers=2 tp=8 dp=8 seq=8192 batch=64 device=H100 dtype=bfloat16 checkpoint=layer || true
moved=$("$TOOLS/collectives" "$WORK/tiers/plan.json" traffic |
  awk '$2 == "tp" { n[$1] += $3 } END { print n["all_gather"], n["reduce_scatter"], n["all_to_all"] + 0 }')
[ "$moved" = "14 12 0" ] || fail "over two tiers: gathers, scatters, all-to-alls over tp: $moved"

# Three column-wise products of one value that is cut along the sequence gather it once, and reduce the sum of their
# gradients once.
cat > "$WORK/readers.lua" << 'END'
local mesh = device_mesh{ {"tp", 4} }
local Block = nn.module("Block", function(self)
  self.norm, self.q, self.k = nn.RMSNorm(64), nn.Linear(64, 64, {bias = false}), nn.Linear(64, 64, {bias = false})
  self.v, self.o = nn.Linear(64, 64, {bias = false}), nn.Linear(64, 64, {bias = false})
  local function heads(t) return t:unflatten(-1, -1, 8):transpose(1, 2) end
  function self:forward(x)
    local h = self.norm(x)
    local y = F.scaled_dot_product_attention(heads(self.q(h)), heads(self.k(h)), heads(self.v(h)), {is_causal = true})
    return x + self.o(y:transpose(1, 2):flatten(2))
  end
end)
local model = nn.Sequential(Block(), Block())
local cut = Colwise{input_layouts = Shard(1)}
parallelize(model, mesh.tp, {["*.norm"] = SequenceParallel(), ["*.[qkv]"] = cut, ["*.o"] = Rowwise{output_layouts = Shard(1)}})
return train{
  model = model, batch = {input = randn{2, 16, 64}}, loss = function(y) return y:square():mean() end,
  optimizer = SGD(), steps = 1,
}
END
"$TPGEN" "$WORK/readers.lua" -o "$WORK/readers" || fail "readers.lua"
moved=$("$TOOLS/collectives" "$WORK/readers/plan.json" traffic | awk '{ n[$1] += $3 } END { print n["all_gather"], n["reduce_scatter"] }')
[ "$moved" = "4 4" ] || fail "readers of one value: gathers, scatters: $moved"

# A plan may expect exactly its collectives, counted in each iteration of a loop, and no fewer.
cat > "$WORK/expects.lua" << 'END'
local mesh = device_mesh{ {"tp", 2} }
local Block = nn.module("Block", function(self)
  self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
  function self:forward(x) return self.down(self.up(x)) end
end)
local Model = nn.module("Model", function(self)
  self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
  self.layers = nn.ModuleList{Block(), Block(), Block(), Block(), Block()}
  function self:forward(x)
    x = self.first(x)
    for _, layer in ipairs(self.layers) do x = layer(x) end
    return self.last(x)
  end
end)
return train{
  model = parallelize(Model(), mesh.tp, {["layers.*.up"] = Colwise(), ["layers.*.down"] = Rowwise()}),
  batch = {input = randn{2, 4}}, loss = function(y) return y:sum() end, optimizer = SGD(), steps = 1,
  expect = {all_reduce = args.most},
}
END
"$TPGEN" "$WORK/expects.lua" -o "$WORK/expects" -D most=10 || fail "10 all-reduces are not 10"
grep -q 'l < 5; l++' "$WORK/expects/step.c" || fail "the layers are no loop"
! "$TPGEN" "$WORK/expects.lua" -o "$WORK/expects" -D most=9 2> "$WORK/expects.err" ||
  fail "10 all-reduces are taken for 9"
grep -q 'a step has 10 all_reduce, and at most 9' "$WORK/expects.err" || fail "it says: $(< "$WORK/expects.err")"
finish "$checked programs: their collectives are as few as can be"
