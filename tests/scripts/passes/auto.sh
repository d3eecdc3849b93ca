#!/usr/bin/env bash
# auto(): the styles that it prints, written in its place, give the same program; limits hold; it is never worse than all
# placements of small models.
. "$(dirname "$0")/../common.sh"

# chosen FILE: the styles in tpgen's messages.
chosen() { sed -n '/note: auto() chose/,$p' "$1" | sed '1d;/: note: /d'; }
# numbers FOLDER: plan.json without what depends on the plan's text.
numbers() { sed 's/,$//;/"hash"/d;/"plan"/d;/"line"/d;/"file"/d;/"files"/,/]/d' "$1/plan.json"; }

# same_by_hand NAME ARGUMENTS...: writes the styles that auto() chose by hand.
same_by_hand() {
  local name=$1 to=$WORK/$1
  shift
  mkdir -p "$to"
  cp tests/plans/auto/block.lua "$to"
  "$TPGEN" "$to/block.lua" -o "$to/auto" "$@" 2> "$to/log" || { fail "$name: $(< "$to/log")"; return; }
  { echo 'return function(model, mesh)'; chosen "$to/log"; echo end; } > "$to/styles.lua"
  "$TPGEN" "$to/block.lua" -o "$to/hand" "$@" -D styles=styles 2> "$to/hand.log" ||
    { fail "$name, by hand: $(< "$to/hand.log")"; return; }
  diff <(numbers "$to/auto") <(numbers "$to/hand") > "$to/diff" || fail "$name: by hand it is another program: $(head -n 5 "$to/diff")"
  grep -q 'parallelize\|fully_shard' "$to/styles.lua" || fail "$name: nothing is chosen"
}
same_by_hand tensor -D mesh=4 -D rows=R -D parameters=4096
same_by_hand shards -D mesh=4 -D m=512 -D parameters=4096
same_by_hand both -D mesh=2,2 -D rows=mm -D parameters=4096
in_ci same_by_hand cube -D mesh=2,2,2 -D rows=mmR -D parameters=2048

# A style that stands beside auto() over several dimensions: it stays, over the one that is said.
same_by_hand stated -D mesh=2,2 -D rows=mR -D stated=b
grep -q 'the styles beside auto() are over b' "$WORK/stated/log" || fail "stated: $(< "$WORK/stated/log")"
grep -q 'w1.weight .*S(0) *:[0-9]* Colwise' "$WORK/stated/auto/plan.txt" || fail "stated: w1 has another style"

# A limit holds: the parameters of a rank, by its map of memory.
held() { sed -n 's/.*"parameters": *\([0-9]*\),$/\1/p' "$WORK/$1/auto/plan.json" | tail -n 1; }
for name in tensor shards both; do
  [ "$(held $name)" -le 4096 ] || fail "$name keeps $(held $name) bytes"
done

# A limit of all bytes of a rank: fewer of them than without it, and no more than it.
total() { sed -n 's/.*"total": *\([0-9]*\),\{0,1\}$/\1/p' "$WORK/$1/plan.json" | tail -n 1; }
"$TPGEN" tests/plans/auto/block.lua -o "$WORK/free" -D m=300 -D rows=m -D h=64 -D f=256 -D layers=4 2> "$WORK/log" || fail "$(< "$WORK/log")"
"$TPGEN" tests/plans/auto/block.lua -o "$WORK/within" -D m=300 -D rows=m -D h=64 -D f=256 -D layers=4 -D memory=$(($(total free) * 9 / 10)) \
  2> "$WORK/log" || fail "$(< "$WORK/log")"
[ "$(total within)" -le $(($(total free) * 9 / 10)) ] || fail "memory: $(total within) bytes, $(total free) without a limit"

# Where the rows are many the weights are gathered, where they are few the rows are.
grep -q fully_shard "$WORK/shards/styles.lua" || fail "512 rows: the weights are not gathered"
finds fully_shard < "$WORK/tensor/styles.lua" && fail "64 rows: the weights are gathered"

# Mixtures of experts: what a block more moves, at most so many bytes: each of its rows there and back, their gradients, and how
# many rows each expert has; or, of many tokens, the weights.
received() { python3 -c 'import json, sys; print(sum(c["received"] * c["times"] for c in json.load(open(sys.argv[1]))["collectives"]))' "$1"; }
moved_by_block() { # BYTES LIMIT ARGUMENTS...
  local most=$1 limit=$2 layers bytes
  shift 2
  for layers in 4 5; do
    "$TPGEN" tests/equal/auto_experts.lua -o "$WORK/experts$layers" -D a=4 -D layers=$layers -D limit=$((limit * layers)) "$@" 2> "$WORK/log" ||
      { fail "experts, $*: $(< "$WORK/log")"; return; }
  done
  bytes=$(($(received "$WORK/experts5/plan.json") - $(received "$WORK/experts4/plan.json")))
  [ "$bytes" -le "$most" ] || fail "experts, $*: a block moves $bytes bytes, not $most"
}
if command -v python3 > /dev/null; then
  moved_by_block $((6144 + 24)) 8192
  in_ci moved_by_block $((768 + 24)) 8192 -D m=8
  in_ci moved_by_block 36864 4096 -D m=2048 -D e=4
  in_ci moved_by_block 9216 8192 -D rows=R
fi

# exhaustive NAME=VALUE...: all placements, a program each.
exhaustive() {
  python3 tests/tools/exhaustive_placements.py "$TPGEN" "$WORK/all" "$@" > "$WORK/all.log" 2>&1 ||
    fail "$*: $(tail -n 1 "$WORK/all.log")"
}
if command -v python3 > /dev/null; then
  in_ci exhaustive m=64 parameters=8192 rows=m
  more exhaustive m=16 rows=R parameters=8192
  more exhaustive m=256 rows=m
  more exhaustive m=96 mesh=4 rows=m parameters=4096
  # On a device: the least simulated step.
  more exhaustive m=512 h=2048 f=8192 rows=R device=H100
  more exhaustive m=2048 h=1024 f=4096 rows=m device=H100 # where two layers are cut as many would not be
  more exhaustive m=8192 h=512 f=2048 mesh=4 rows=m device=H100
fi
# On a device: a step takes at most what it takes with the table of styles of the plan, written by hand.
seconds_of() { sed -n '/"simulated_step"/,/}/s/.*"seconds": *\([0-9.e-]*\).*/\1/p' "$1/plan.json"; }
# no_slower PLAN STYLES ARGUMENTS...
no_slower() {
  local name=$1 styles=$2 to=$WORK/plans
  mkdir -p "$to"
  cp -r plans/lib "$to"
  if grep -q 'causal_lm\.train' "plans/$name.lua"; then # its text is the library's
    cp "plans/$name.lua" "$to"
    python3 tests/tools/automatic_plan.py plans/lib/causal_lm.lua "$styles" > "$to/lib/causal_lm.lua"
  else
    python3 tests/tools/automatic_plan.py "plans/$name.lua" "$styles" > "$to/$name.lua"
  fi
  set -- -D dtype=bfloat16 -D cluster=dgx-h100 -D memory=4000GiB --target cuda --ranks 0 "${@:3}"
  "$TPGEN" "plans/$name.lua" -o "$WORK/$name.hand" "$@" 2> "$WORK/log" && "$TPGEN" "$to/$name.lua" -o "$WORK/$name.auto" "$@" 2> "$WORK/log" ||
    { fail "$name: $(tail -n 2 "$WORK/log")"; return; }
  awk -v hand="$(seconds_of "$WORK/$name.hand")" -v found="$(seconds_of "$WORK/$name.auto")" -v name="$name $*" 'BEGIN {
    printf "  %s: %.4g ms by hand, %.4g ms by auto()\n", name, 1e3 * hand, 1e3 * found; exit found > hand }' ||
    fail "$name: a step is slower than by hand"
}
of_heads='parts = {c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim, c.n_kv_heads * c.head_dim}'
if command -v python3 > /dev/null; then
  for tp in 2 8; do
    in_ci no_slower llama3 '{}' -D tp=$tp -D dim=4096 -D n_layers=4 -D n_heads=32 -D n_kv_heads=8 -D hidden=14336 -D vocab=128256 -D seq=4096 -D batch=2
    in_ci no_slower phi3 '{["layers.*.self_attn.qkv_proj"] = ModuleLayouts{'"$of_heads"'}, ["layers.*.mlp.gate_up_proj"] = ModuleLayouts{parts = 2}}' \
      -D tp=$tp -D dim=3072 -D n_layers=4 -D n_heads=32 -D hidden=8192 -D vocab=32064 -D seq=4096 -D batch=2
    in_ci no_slower falcon '{["h.*.self_attention.query_key_value"] = ModuleLayouts{'"$of_heads"'}}' \
      -D tp=$tp -D dim=4544 -D n_layers=4 -D n_heads=71 -D vocab=65024 -D seq=2048 -D batch=4
    more no_slower gpt_neox '{}' -D tp=$tp -D dim=4096 -D n_layers=4 -D n_heads=32 -D hidden=16384 -D vocab=50432 -D seq=2048 -D batch=4
    more no_slower gpt2 '{["h.*.attn.c_attn"] = ModuleLayouts{parts = 3}}' -D tp=$tp -D dim=1600 -D n_layers=4 -D n_heads=25 -D vocab=50257 \
      -D positions=1024 -D batch=8
    more no_slower qwen '{}' -D tp=$tp -D n_layers=4 -D dim=4096 -D n_heads=32 -D n_kv_heads=8 -D hidden=12288 -D vocab=151936 -D seq=4096 -D batch=2
  done
fi
finish
