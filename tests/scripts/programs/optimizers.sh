#!/usr/bin/env bash
# Each optimizer of tests/plans/training/plan.lua does what that of PyTorch does (tests/golden/training/optimizers.tsv):
# losses and learning rates of twenty steps, and the weights at the end, or their moving average as --ema exports
# it; on one rank and on several, on the CPU and on the stand-in for CUDA; also where a weight is kept in parts.
#   OPTIMIZERS="Lion"     only programs that this matches (an extended regular expression)
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
facts=$golden/training

programs=(
  "cpu AdamW" "cpu Adam tp=2 dp=2 fsdp=1" "cpu Adam_linear" "cpu SGD_value tp=2 dp=2 fsdp=1"
  "cpu Lion tp=2 dp=2 fsdp=1" "cpu RMSprop tp=3" "cpu Adagrad dp=2 fsdp=1" "cpu groups tp=2 dp=2 fsdp=1"
  "cpu own tp=2 dp=2 fsdp=1" "cpu LAMB tp=2 dp=2 fsdp=1" "cpu Adafactor parts=yes tp=2 dp=2 fsdp=1"
  "cpu Muon tp=2 dp=2 fsdp=1" "cpu whole tp=2 dp=2 fsdp=1" "cuda Adafactor tp=2 dp=2 fsdp=1"
  "cpu Muon pp=2 tp=2"
)
! all_cases || programs+=(
  "cpu SGD tp=2" "cpu Lion" "cpu groups" "cpu own" "cpu LAMB" "cpu Adafactor" "cpu Adafactor tp=2 dp=2 fsdp=1" "cpu Muon"
  "cpu whole" "cpu LAMB tp=3" "cpu Adafactor dp=3 fsdp=1" "cpu LAMB parts=yes tp=2 dp=2 fsdp=1" "cpu Adafactor parts=yes"
  "cpu whole parts=yes tp=2 dp=2 fsdp=1"
  "cuda LAMB tp=2" "cuda Muon tp=2 dp=2 fsdp=1" "cuda whole dp=2 fsdp=1" "cuda Adafactor parts=yes tp=2 dp=2 fsdp=1"
  "cuda Adam" "cuda SGD_value" "cuda groups tp=2 dp=2 fsdp=1" "cuda own tp=2"
  "cpu Muon pp=2 dp=2 fsdp=1" "cpu whole pp=2 tp=2" "cpu Adafactor pp=2 tp=2"
  "cpu LAMB pp=2 dp=2 fsdp=1" "cuda Muon pp=2 tp=2"
)

field() { sed -n "s/.*\"$1\": *\([-+.0-9eE]*\)[,}].*/\1/p" "$2"; }

# squares FILE: the sum of the squares of the parameters in a safetensors file.
squares() {
  python3 - "$1" << 'END'
import array, json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
names = {name: t for name, t in json.loads(data[8:8 + n]).items() if name != "__metadata__"}
names = {name: t for name, t in names.items() if not name.startswith("optim.")}
total = 0.0
for t in names.values():
    a = array.array("f", data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
    total += sum(x * x for x in a)
print("%.12g" % total)
END
}

# same NAME OPTIMIZER: within 1e-5, relative.
same() {
  local metrics=$WORK/$1.jsonl
  grep "^$2	" "$facts/optimizers.tsv" > "$WORK/$1.golden"
  paste "$WORK/$1.golden" <(field step "$metrics") <(field loss "$metrics") <(field lr "$metrics") | awk -F '\t' '
    function differ(a, b) { return a == b ? 0 : (a > b ? a - b : b - a) / (b < 0 ? -b : b) }
    function most(a, b) { return a > b ? a : b }
    NF != 8 || $6 != $2 { print "  not a line for each step"; bad = 1; exit }
    { loss = most(loss, differ($7, $3)); lr = most(lr, differ($8, $4)); golden = $5 }
    END {
      weights = differ("'"$3"'" + 0, golden + 0)
      if (NR != 20) { print "  " NR " steps, not 20"; bad = 1 }
      printf "  %-34s losses at most %.1e apart, rates %.1e, weights %.1e\n", "'"$1"'", loss, lr, weights
      exit bad || loss > 1e-5 || lr > 1e-8 || weights > 1e-5
    }'
}

make_runtime plain > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime"; }
make_runtime cuda > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime for the stand-in"; }

# check NAME TARGET OPTIMIZER DEFINITIONS...
check() {
  local name=$1 target=$2 optimizer=$3 size arguments=() kind=plain from more=()
  shift 3
  for size; do arguments+=(-D "$size"); done
  [ "$target" = cpu ] || kind=cuda
  from=$WORK/$name.saved
  case $optimizer in own | Adafactor) from=$WORK/$name.averages more=(--ema --export "$WORK/$name.averages") ;; esac
  "$TPGEN" tests/plans/training/plan.lua --target "$target" -o "$WORK/$name" -D "how=$optimizer" -D steps=20 "${arguments[@]}" ||
    { fail "$name: tpgen"; return; }
  make_ranks "$WORK/$name" $kind || { fail "$name does not compile"; return; }
  start "$WORK/$name" "$WORK/$name" --weights "$facts/model.safetensors" --data "$facts/text.txt" \
    --save "$WORK/$name.saved" "${more[@]}" || { fail "$name ended with status $?"; return; }
  same "$name" "$optimizer" "$(squares "$from/model.safetensors")" || fail "$name: other numbers"
}

checked=0
for program in "${programs[@]}"; do
  [[ "$program" =~ ${OPTIMIZERS:-.} ]] || continue
  name=${program// /_}
  # shellcheck disable=SC2086
  beside "$WORK/$name.log" check "$name" $program
  checked=$((checked + 1))
done
all_are_done
cat "$WORK"/*.log
[ $checked -gt 0 ] || fail "OPTIMIZERS matches none"
finish "$checked programs train as PyTorch's optimizers do"
