#!/usr/bin/env bash
# The command line: its output, its status, and the files that it leaves.
. "$(dirname "$0")/../common.sh"

# ends STATUS WORDS COMMAND...: the command ends with STATUS, and its messages contain WORDS.
ends() {
  local expected=$1 words=$2 status=0
  shift 2
  "$@" > "$WORK/out" 2> "$WORK/err" || status=$?
  [ "$status" -eq "$expected" ] || fail "$*: status $status, not $expected: $(cat "$WORK/err")"
  grep -qF -- "$words" "$WORK/out" "$WORK/err" || fail "$*: says nothing of '$words'"
}
toy=plans/toy.lua
out=$WORK/cli
rm -rf "$out"

ends 0 "usage: tpgen" "$TPGEN" --help
ends 0 "tpgen 0." "$TPGEN" --version
ends 2 "--no-such-option: no such option" "$TPGEN" --no-such-option
ends 2 "give one plan" "$TPGEN" -o "$out"
ends 2 "-o DIRECTORY" "$TPGEN" "$toy"
ends 2 "the targets are cpu and cuda" "$TPGEN" "$toy" -o "$out" --target gpu
ends 2 "no such pass" "$TPGEN" "$toy" --dump=everything
ends 2 "write -D name=value" "$TPGEN" "$toy" -o "$out" -D tp
ends 2 "tp=2: to set a value of the plan write -D tp=2" "$TPGEN" "$toy" --help tp=2
ends 2 "tp=2: to set a value of the plan write -D tp=2" "$TPGEN" "$toy" tp=2 -o "$out"
ends 2 "-D tp=1 and -D tp=2: give one of them" "$TPGEN" "$toy" -o "$out" -D tp=1 -D dp=2 -D tp=2
ends 2 "--library-name net: there is no library: write --emit library" "$TPGEN" "$toy" -o "$out" --library-name net
ends 2 "--library-name net: there is no library" "$TPGEN" "$toy" -o "$out" --emit program --library-name net
ends 2 "a library cannot be called 'a b'" "$TPGEN" "$toy" -o "$out" --emit library --library-name 'a b'
ends 2 "write --ranks 0-7" "$TPGEN" "$toy" -o "$out" --ranks 3-1
ends 2 "counted from 0" "$TPGEN" "$toy" -o "$out" --ranks 2-3
ends 1 "this plan has no stages: leave out pp" "$TPGEN" plans/bert.lua -o "$out" -D pp=2
ends 1 "this plan cuts no sequences: leave out cp" "$TPGEN" plans/vit.lua -o "$out" -D cp=2
# An invalid number, or one out of range, is refused, not read as another number.
for ranks in 4294967296 0-4294967296 99999999999999999999 -1 1- "" 0x1 " 1" 0-1x 2147483647; do
  ends 2 "counted from 0 to 2147483646" "$TPGEN" "$toy" -o "$out" --ranks "$ranks"
done
for number in tp=0x10000000000000002 lr=1e999 lr=-1e999; do
  ends 1 "-D $number: out of range" "$TPGEN" "$toy" -o "$out" -D $number
done
# Numbers of 2^63 or more are shown as given, with the limit.
for number in 99999999999999999999 1e19; do
  ends 1 "tp must be a whole number, 1 or more, below 2^63, not $number" "$TPGEN" "$toy" -o "$out" -D tp=$number
done
for size in 'nn.Linear(1e20, 3)|number of inputs must be a whole number below 2^63, not 100000000000000000000' \
  'randn{2, 1e20}|a size must be at least 1 and at most 2^40, not 100000000000000000000' \
  'nn.Identity(); F.view(nn.Parameter(zeros{2, 3}), -1, 1e20)|a size must be a whole number below 2^63, not 100000000000000000000' \
  'device_mesh{{"dp", 1e300}}|must be a whole number below 2^63, not 1e+300'; do
  echo "local M = nn.module('M', function(self) local x = ${size%%|*} end) M()" > "$WORK/large.lua"
  ends 1 "${size#*|}" "$TPGEN" "$WORK/large.lua" -o "$out"
done
"$TPGEN" "$toy" -o "$WORK/hexadecimal" -D tp=0x00000000000000000003 -D lr=0x1p-4 || fail "-D tp=0x3: status $?"
# --help of a plan lists its settings, with the defaults of a preset; of one that declares none, what it reads.
"$TPGEN" plans/toy.lua --help > "$WORK/settings" || fail "toy.lua --help: status $?"
diff - "$WORK/settings" << 'END' || fail "toy.lua has other settings"
plans/toy.lua: Two linear layers, trained on two ranks by tensor parallelism: tpgen plans/toy.lua -o out/ -D tp=2

Settings, -D NAME=VALUE, with their defaults:
  dp=1      size    ranks that share the batch (search)
  tp=2      size    ranks that share each layer (search)
  lr=0.05   number  the learning rate
  steps=10  size    steps of the training

Types:
  size    a whole number, 1 or more: 65536, 0x10000 or 1e6; KiB and the like are not known
  number  a number: 0.05, 5e-2
END
for plan in plans/*.lua; do
  "$TPGEN" "$plan" --help > "$WORK/settings" 2>&1 || fail "$plan --help: $(cat "$WORK/settings")"
  grep -q '^Settings, -D NAME=VALUE, with their defaults:$' "$WORK/settings" || fail "$plan declares no settings"
done
ends 0 "dim=8192 " "$TPGEN" plans/llama3.lua --help -D preset=70b
ends 1 "no setting 'presett'; did you mean 'preset'?" "$TPGEN" plans/llama3.lua --help -D presett=70b
printf 'print(args.width, args.deep)\nreturn infer{model = nn.Linear(5, 3), batch = {input = randn{2, 5}}}\n' > "$WORK/declares_none.lua"
ends 0 "  width" "$TPGEN" "$WORK/declares_none.lua" --help
ends 0 "  deep" "$TPGEN" "$WORK/declares_none.lua" --help
ends 3 "none.lua" "$TPGEN" "$WORK/none.lua" --help
move='f32[8] on a=2: S(0) -> R'
ends 0 "usage: tpgen --move" "$TPGEN" --help
ends 0 "all_gather over a" "$TPGEN" --move "$move"
ends 2 "are options of --move" "$TPGEN" "$toy" -o "$out" --json
ends 2 "takes no plan" "$TPGEN" --move "$move" "$toy"
ends 2 "takes no plan" "$TPGEN" --move "$move" -o "$out"
for number in 1e999 -1 nan 0 1e9,1e999 1e9, 1e9,nan; do
  ends 2 "--link a=$number: the" "$TPGEN" --move "$move" --link "a=$number"
done
ends 0 ",1F0,1B0" "$TPGEN" --schedule 1F1B --ranks-pp 2 --microbatches 2
ends 0 "0SEND_F0" "$TPGEN" --schedule gpipe --ranks-pp 2 --microbatches 2 --lowered
ends 2 "the schedules are gpipe, 1f1b" "$TPGEN" --schedule none --ranks-pp 2 --microbatches 2
ends 2 "at least as many micro-batches as stages: 8, not 2" "$TPGEN" --schedule dualpipe_v --ranks-pp 4 --microbatches 2
ends 2 "say how large it is" "$TPGEN" --schedule 1f1b
ends 2 "the schedules are gpipe, 1f1b" "$TPGEN" --schedule none
ends 2 "a whole number from 1 to 2147483646" "$TPGEN" --schedule 1f1b --ranks-pp 0x
ends 2 "more than 4096 stages" "$TPGEN" --schedule gpipe --ranks-pp 9999 --microbatches 1
ends 2 "takes no plan" "$TPGEN" --schedule 1f1b "$toy"
ends 2 "are options of --schedule" "$TPGEN" "$toy" -o "$out" --stages 2
ends 3 "No such file" "$TPGEN" --schedule ./none.csv
ends 2 "at most 1024 ranks" "$TPGEN" --move "f32[8] on a=4294967298: S(0) -> R"
ends 2 "from 0 to 2^62" "$TPGEN" --move "f32[18446744073709551624] on a=2: S(0) -> R"
ends 2 "those from -1 to 0" "$TPGEN" --move "f32[8] on a=2: S(4294967296) -> R"
ends 3 "cannot write" bash -c "exec '$TPGEN' --move '$move' > /dev/full"
for what in --help --dump=plan --explain=in_proj.weight --explain-cost=in_proj.weight; do
  ends 3 "cannot write to standard output" bash -c "exec '$TPGEN' '$toy' $what > /dev/full"
done
ends 3 "$WORK/none.lua" "$TPGEN" "$WORK/none.lua" -o "$out"
ends 1 "$toy: error: -D tpp=2" "$TPGEN" "$toy" -o "$out" -D tpp=2
[ ! -e "$out" ] || fail "an error left something in $out"

# Control characters in names never reach a terminal.
strange=$WORK/$'a\n\e[31m\u202e\r.lua'
for args in "" $'--target=\e[31m' $'--ranks=\u202e' $'--\e' $'-D\e' $'--explain=\e' $'--explain-cost=\e' $'--dump=\e' '-D tp=x'; do
  for name in "$strange" "$WORK/"$'none\n\e[31m\u202e.lua' $'\e'; do
    cp "$toy" "$strange"
    "$TPGEN" "$name" -o "$out"$'/\e' "${args:---check}" > "$WORK/err" 2>&1 && fail "$args: no error"
    if LC_ALL=C grep -q '[^ -~]' "$WORK/err" || [ "$(wc -l < "$WORK/err")" -ne 1 ]; then
      fail "a message of other than printable ASCII, or of several lines: $(cat -v "$WORK/err")"
    fi
  done
done
[ ! -e "$out" ] || fail "an error left something in $out"

# Nor do those that a plan prints; its newlines and tabs stay.
{ echo 'print("red: \27[31m\r\b\0\127\155 \u{202e}", "%s \\x1b\n", 7)' && cat "$toy"; } > "$WORK/prints.lua"
"$TPGEN" "$WORK/prints.lua" -o "$WORK/prints" > "$WORK/printed" || fail "a plan that prints: status $?"
printf '%s\n' 'red: \x1b[31m\x0d\x08\x00\x7f\x9b \xe2\x80\xae'$'\t''%s \x1b' $'\t7' |
  diff - "$WORK/printed" || fail "a plan prints something else"

# Limits that are stricter than those of the process that reads the plan stay in force.
for limit in "-t 1" "-n 20" "-d 200000" "-u 40000" "-c 0"; do
  (ulimit $limit && "$TPGEN" "$toy" -o "$WORK/limited") || fail "ulimit $limit: status $?"
done

# The trace of a simulated step: for the CUDA target, or if the plan names the device.
ends 1 'device_mesh{ ..., device = "H100" }' "$TPGEN" "$toy" -o "$out" --trace
[ ! -e "$out" ] || fail "an error left something in $out"
"$TPGEN" "$toy" -o "$WORK/traced" --target cuda --trace || fail "--trace: tpgen ended with status $?"
grep -q '"name": "all_reduce", "cat": "forward", "ph": "X", "pid": 0, "tid": 0, "ts": [0-9.]*, "dur": 10.0' \
  "$WORK/traced/trace.json" || fail "trace.json has no all_reduce"
[ "$(tail -n 1 "$WORK/traced/trace.json")" = "]}" ] || fail "trace.json does not end"

# A device has memory: a program that needs more is written, with a note, and by a cluster it is an error.
large="-D preset=8b --target cuda"
ends 0 "note: a rank needs 171.1 GiB of memory, and the device has 80.0 GiB" "$TPGEN" plans/llama3.lua $large --ranks 0 -o "$WORK/large" -D device=H100
ends 1 "device_mesh gives it 80.0 GiB" "$TPGEN" plans/llama3.lua $large -o "$out" -D cluster=dgx-h100
"$TPGEN" plans/llama3.lua $large -o "$WORK/large" -D cluster=dgx-h100 -D memory=200GiB 2> "$WORK/err" && [ ! -s "$WORK/err" ] ||
  fail "a limit that the plan states does not count: $(cat "$WORK/err")"
rm -rf "$WORK/large"

# The program that measures a machine.
ends 0 "usage: tpgen --calibrate" "$TPGEN" --help
ends 2 "--calibrate takes no plan" "$TPGEN" --calibrate "$toy" -o "$out"
ends 2 "-o DIRECTORY" "$TPGEN" --calibrate
ends 0 "in_proj.weight  f32[32, 10]" "$TPGEN" "$toy" --explain in_proj.weight
for pass in outline memory; do
  cmp <("$TPGEN" "$toy" --dump=$pass) <("$TPGEN" "$toy" --dump=$pass --explain=in_proj.weight) ||
    fail "--explain changes what $pass leaves"
done
# Operands have their names before kernels are fused, too.
ends 0 "made by relu @ out_proj.weight" "$TPGEN" "$toy" --explain out_proj
# Formulas in comments have the brackets that their signs need.
cat > "$WORK/formula.lua" << 'END'
local M = nn.module("M", function(self)
  self.a, self.b = nn.Parameter(ones{4}), nn.Parameter(ones{4})
  function self:forward(x) return (x - self.a) * self.b / ((x + self.b) - self.a) end
end)
return infer{model = M(), batch = {input = randn{3, 4}}}
END
"$TPGEN" "$WORK/formula.lua" -o "$WORK/formula" || fail "formula.lua: status $?"
grep -qF '// output = (input - a) * b / (input + b - a) ' "$WORK/formula/step.c" || fail "the formula: $(grep -m 1 '// output = ' "$WORK/formula/step.c")"
"$TPGEN" "$toy" --dump=fuse > "$WORK/fuse"
"$TPGEN" "$toy" --dump=grad > "$WORK/grad"
ends 0 "arena_bytes" "$TPGEN" --from=fuse "$WORK/fuse" --dump=memory
ends 0 "in_proj.weight  f32[32, 10]" "$TPGEN" --from=grad "$WORK/grad" --explain in_proj.weight
ends 1 "fuse:1: error: 'fuse': grad" "$TPGEN" --from=grad "$WORK/fuse" --dump=memory
ends 2 "runs before fuse" "$TPGEN" --from=fuse "$WORK/fuse" --dump=grad
ends 2 "-D is for plans" "$TPGEN" --from=fuse "$WORK/fuse" --dump=memory -D tp=2
ends 2 "and this dump is of later" "$TPGEN" --from=fuse "$WORK/fuse" --explain in_proj.weight
ends 3 "cannot read nowhere" "$TPGEN" --from=fuse nowhere --dump=memory
ends 1 "no value is called nothing" "$TPGEN" "$toy" --explain nothing

# A file that is missing: the option that names it, and what may stand in its place.
presets='say the path of a file, .json, or a preset: dgx-a100, dgx-a100-40gb, dgx-h100, dgx-h200, dgx-b200, dgx-h100:16 of 16 nodes'
none=$WORK/none.json
ends 1 "device_mesh's cluster (-D cluster): cannot read $none: No such file or directory; $presets" "$TPGEN" plans/llama3.lua -o "$out" -D preset=debug -D "cluster=$none"
ends 1 "device_mesh's cluster (--cluster): cannot read $none: No such file or directory; $presets" "$TPGEN" plans/llama3.lua -o "$out" -D preset=debug --cluster "$none"
ends 1 "device_mesh's device (-D device): cannot read $none: No such file or directory; say the path of the device.json" "$TPGEN" plans/llama3.lua -o "$out" -D preset=debug -D "device=$none"
ends 1 "read_json (-D config): cannot read $none: No such file or directory" "$TPGEN" plans/llama3.lua -o "$out" -D "config=$none"

# --explain-cost: each decision about a value, its alternatives, and the step that each would have made; without a device
# the bytes. To make the expected text anew: the same command, into that file.
cost="plans/llama3.lua -D preset=debug -D tp=2 -D dp=2 -D batch=4 -D device=H100 --target cuda"
"$TPGEN" $cost --explain-cost 'layers.*.attention.wo' | diff tests/golden/explain_cost.txt - || fail "--explain-cost prints something else"
for kind in placement steps bucket overlap prefetch; do
  grep -q "^$kind: " tests/golden/explain_cost.txt || fail "--explain-cost: no decision is of the kind $kind"
done
ends 0 "step 400 B received, 8384 B" "$TPGEN" "$toy" --explain-cost in_proj
ends 0 "by itself 320 B; step 3,600 B received (+800.00 %)" "$TPGEN" "$toy" --explain-cost in_proj.weight
# The ways of the gradients of several batches, and levels of recomputation; a module; a pipeline.
ends 0 "each batch's gradients are reduced" "$TPGEN" $cost -D microbatches=2 --explain-cost layers.0.attention.wo.weight
ends 0 "all that can be" "$TPGEN" $cost -D checkpoint=memory -D memory=1100MiB --explain-cost 'layers.*.feed_forward'
ends 0 "steps: update, d_layers.*.attention.wo.weight" "$TPGEN" $cost -D pp=2 -D microbatches=2 --explain-cost 'layers.*.attention.wo.weight'
ends 1 "no value and no module is called nothing" "$TPGEN" "$toy" --explain-cost nothing
ends 1 "microbatches = 3: rank 0 has 2 samples" "$TPGEN" $cost -D microbatches=3 --explain-cost layers.0
ends 2 "--explain-cost takes a plan" "$TPGEN" "$toy" --explain-cost in_proj -o "$out"
ends 2 "--search takes a plan" "$TPGEN" "$toy" --explain-cost in_proj --search
[ ! -e "$out" ] || fail "--explain-cost left something in $out"

# A file of -D, and one in the plan's folder: their contents reach the plan, which is read again for each and
# prints once, and the output's hash.
cat > "$WORK/reads.lua" << 'END'
local given, beside = read_json(args.file), read_json("beside.json")
for key, value in pairs(given) do print(key, value, math.type(value)) end
print(#beside, beside[1], beside[2], beside[3].x)
return infer{
  model = nn.Linear(given.inputs, 3), batch = {input = randn{2, given.inputs}},
}
END
echo '{"real": 0.5, "inputs": 5, "none": null, "name": "wide", "yes": true}' > "$WORK/given.json"
echo '[7, null, {"x": "y"}]' > "$WORK/beside.json"
reads() { "$TPGEN" "$WORK/reads.lua" -o "$out" -D file="$WORK/given.json" > "$WORK/printed"; }
reads || fail "a plan that reads JSON ended with status $?"
printf 'inputs\t5\tinteger\nname\twide\tnil\nreal\t0.5\tfloat\nyes\ttrue\tnil\n3\t7\tfalse\ty\n' |
  diff - "$WORK/printed" || fail "a plan reads something else in JSON"
hash=$(sed -n 's/^  "hash": //p' "$out/plan.json")
echo '[8, null, {"x": "y"}]' > "$WORK/beside.json"
reads && [ "$(sed -n 's/^  "hash": //p' "$out/plan.json")" != "$hash" ] ||
  fail "another file has come to the same hash"
rm -rf "$out"

# A file is written only if it changed, and removed if the plan no longer makes it.
"$TPGEN" "$toy" -o "$out" -D tp=3
touch -d '2001-01-01' "$out"/*.*
"$TPGEN" "$toy" -o "$out" -D tp=3
[ -z "$(find "$out" -maxdepth 1 -type f -newermt 2002-01-01)" ] || fail "an unchanged file was written"
"$TPGEN" "$toy" -o "$out" -D tp=3 --check || fail "--check calls its own output stale"
ends 1 "is not what this plan gives: tpgen without --check writes it" "$TPGEN" "$toy" -o "$out" -D tp=2 --check
mv "$out/step.c" "$WORK"
ends 1 "$out/step.c is missing: tpgen without --check writes it" "$TPGEN" "$toy" -o "$out" -D tp=3 --check
mv "$WORK/step.c" "$out"
ends 1 "there is no folder $out/none: tpgen without --check writes it" "$TPGEN" "$toy" -o "$out/none" --check
ends 3 "cannot open the directory $toy: Not a directory" "$TPGEN" "$toy" -o "$toy" --check
[ -e "$out/rank2.c" ] && [ -e "$out/step_1.c" ] || fail "tp=3 has no third rank or no second step"
"$TPGEN" "$toy" -o "$out" -D tp=2
[ ! -e "$out/rank2.c" ] && [ ! -e "$out/step_1.c" ] || fail "files of tp=3 are left"
echo "mine" > "$out/notes.txt"
"$TPGEN" "$toy" -o "$out" -D tp=4 --ranks 1-2
[ "$(cd "$out" && echo rank*.c)" = "rank1.c rank2.c" ] || fail "--ranks 1-2 wrote $(ls "$out")"
[ -e "$out/notes.txt" ] || fail "a file that is not tpgen's was taken away"

# A note names a mesh dimension that shards nothing, unless it has a single rank.
"$TPGEN" tests/dump/idle.lua -o "$WORK/idle" -D tp=2 2>&1 | finds 'idle.lua:3: note: nothing is sharded along tp' ||
  fail "there is no note of a mesh dimension that shards nothing"
[ -z "$("$TPGEN" tests/dump/idle.lua -o "$WORK/idle" -D tp=1 2>&1)" ] || fail "there is a note without a reason"

# So does one of a group's alternative that fits nothing, with what would.
cat > "$WORK/groups.lua" << 'END'
return train{model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), batch = {input = randn{2, 2}}, steps = 1,
  loss = function(y) return y:sum() end, optimizer = SGD{}, groups = {{match = args.match, lr = 1}}}
END
"$TPGEN" "$WORK/groups.lua" -o "$WORK/groups" -D 'match=*.bias|1*' 2>&1 |
  grep -q "groups.lua:1: note: train's groups\[1\]: no parameter is called '1\*': \* matches no dot; say '1\*\*'" ||
  fail "there is no note of an alternative that fits nothing"
[ -z "$("$TPGEN" "$WORK/groups.lua" -o "$WORK/groups" -D 'match=*.bias|1.*' 2>&1)" ] || fail "there is a note of a group without a reason"

# So does one of classes that could be either of two dimensions, unless the plan says which.
square='local M = nn.module("M", function(self) function self:forward(x) return F.cross_entropy(x, x:argmax(2)%s) end end)
return infer{model = M(), batch = {input = randn{4, 6, 6}}}'
# shellcheck disable=SC2059
printf "$square" "" > "$WORK/square.lua"
"$TPGEN" "$WORK/square.lua" -o "$WORK/square" 2>&1 |
  grep -q 'square.lua:1: note: the classes of the shape \[4, 6, 6\] are dimension 1, as in PyTorch' || fail "there is no note of classes"
# shellcheck disable=SC2059
printf "$square" ", {dim = -1}" > "$WORK/square.lua"
[ -z "$("$TPGEN" "$WORK/square.lua" -o "$WORK/square" 2>&1)" ] || fail "there is a note of classes without a reason"

# A failed write leaves the old output complete and no file next to it.
"$TPGEN" "$toy" -o "$out" -D tp=2
before=$(cat "$out"/*.c "$out"/*.txt | cksum)
ends 3 "cannot write" bash -c "ulimit -f 2; exec '$TPGEN' '$toy' -o '$out' -D tp=5"
[ "$(cat "$out"/*.c "$out"/*.txt | cksum)" = "$before" ] || fail "the old output is not whole"
[ -z "$(find "$out" -name '*tpgen-new*')" ] || fail "half-written files are left"
ends 3 "cannot make the directory" "$TPGEN" "$toy" -o "$WORK/err/below"
finish "statuses, messages and files are as they should be"
