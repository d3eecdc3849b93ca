#!/usr/bin/env bash
# What PyTorch makes of tests/plans/training/plan.lua (tests/golden/training) is what generated programs make of
# it, step by step: losses, norms of the gradients and learning rates; for several optimizers, schedules
# and meshes, with the batch of a step whole or in pieces.
#   TRAINING="tp=3"     only programs that this matches (an extended regular expression)
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
facts=$golden/training

programs=(
  "how=adamw"
  "how=adamw tp=2"
  "how=adamw tp=3 accumulate=2 batch=2"
  "how=adamw dp=2 tp=2 accumulate=2 batch=2"
  "how=adamw wide=2 tp=2"
  "how=sgd tp=2 accumulate=4 batch=1 checkpoint=layer"
  "how=momentum tp=3"
  "how=momentum dp=2 accumulate=2 batch=2"
  "how=nesterov tp=2 accumulate=2 batch=2"
)

# field NAME FILE: of every line of metrics.
field() { sed -n "s/.*\"$1\": *\([-+.0-9eE]*\)[,}].*/\1/p" "$2"; }

# same NAME WAY: the metrics of a run are the table's. Nine digits, float32: some parts in 1e7, which grow
# from step to step.
same() {
  local metrics=$WORK/$1.jsonl
  grep "^$2	" "$facts/training.tsv" > "$WORK/$1.golden"
  paste "$WORK/$1.golden" <(field step "$metrics") <(field loss "$metrics") <(field grad_norm "$metrics") \
    <(field lr "$metrics") | awk -F '\t' '
    function differ(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / (b < 0 ? -b : b) }
    function most(a, b) { return a > b ? a : b }
    NF != 9 || $6 != $2 { print "  not a line for each step"; bad = 1; exit }
    {
      loss = most(loss, differ($7, $3)); norm = most(norm, differ($8, $4)); lr = most(lr, differ($9, $5))
    }
    END {
      if (NR != 10) { print "  " NR " steps, not 10"; bad = 1 }
      printf "  %-44s losses at most %.1e apart, norms %.1e, rates %.1e\n", "'"$1"'", loss, norm, lr
      exit bad || loss > 2e-6 || norm > 2e-6 || lr > 1e-8
    }'
}

# check NAME DEFINITIONS...
check() {
  local name=$1 size arguments=()
  shift
  for size; do arguments+=(-D "$size"); done
  "$TPGEN" tests/plans/training/plan.lua -o "$WORK/$name" "${arguments[@]}" || { fail "$name: tpgen"; return; }
  make_ranks "$WORK/$name" plain || { fail "$name does not compile"; return; }
  start "$WORK/$name" "$WORK/$name" --weights "$facts/model.safetensors" --data "$facts/text.txt" ||
    { fail "$name ended with status $?"; return; }
  same "$name" "${1#how=}" || fail "$name: other numbers"
}

make_runtime plain > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime"; }
checked=0
for program in "${programs[@]}"; do
  [[ "$program" =~ ${TRAINING:-.} ]] || continue
  name=${program//how=/}
  beside "$WORK/${name// /_}.log" check "${name// /_}" $program
  checked=$((checked + 1))
done
all_are_done
cat "$WORK"/*.log
[ $checked -gt 0 ] || fail "TRAINING matches none"

# A norm as small as what PyTorch adds to it before it divides: of a gradient of 1e-6, clipped to that, a half
# is left, and a weight of 1 loses a half at a rate of 1e6.
cat > "$WORK/small.lua" << 'END'
local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter(ones{1})
  function self:forward(x) return self.weight * x end
end)
return train{
  model = Model(), batch = {input = ones{1}}, loss = function(y) return (y * 1e-6):sum() end,
  optimizer = SGD{lr = 1e6}, clip = 1e-6, steps = 2,
}
END
"$TPGEN" "$WORK/small.lua" -o "$WORK/small" && make_ranks "$WORK/small" plain && start "$WORK/small" "$WORK/small" ||
  fail "a small gradient: no run"
printf '1e-6\n5e-7\n' > "$WORK/small.golden"
same_losses "a small gradient" "$WORK/small.losses" "$WORK/small.golden"
finish "$checked programs train as PyTorch does"
