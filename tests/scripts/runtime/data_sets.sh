#!/usr/bin/env bash
# Data sets of several batches have the losses of PyTorch's DataLoader: epochs in order and shuffled, the last
# batch dropped or smaller, several files, on meshes and on the stand-in; a resumed job continues where it
# stopped, to the bit.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
plan=tests/plans/data_sets/plan.lua
data=$golden/data_sets
make_runtimes plain cuda


# trains NAME KIND WAY ARGUMENTS...: its losses are PyTorch's for that way.
trains() {
  local name=$1 kind=$2 way=$3
  make "$name" "$kind" $plan "${@:4}" || return
  start "$WORK/$name" "$WORK/$name" --weights "$data/model.safetensors" "${files[@]}" || { fail "$name"; return; }
  golden_line "$data/losses.tsv" "$way" > "$WORK/$name.golden"
  same_losses "$name" "$WORK/$name.losses" "$WORK/$name.golden" 1e-5
}

# ---- what a loop over a DataLoader gives ----------------------------------------------------------------

files=(--data "$data/data.safetensors")
arrays=(--data "input=$data/input_[01].npy" --data "$data/labels.npy")
beside "$WORK/smaller.log" trains smaller plain smaller -D last=smaller
beside "$WORK/dropped.log" trains dropped plain dropped -D last=dropped -D dp=2
beside "$WORK/shuffled.log" trains shuffled plain shuffled -D last=smaller -D shuffle=5 -D dp=2 -D tp=2
beside "$WORK/uneven.log" trains uneven plain shuffled -D last=smaller -D shuffle=5 -D dp=3
beside "$WORK/shuffled_dropped.log" trains shuffled_dropped plain shuffled_dropped -D last=dropped -D shuffle=5
beside "$WORK/accumulated.log" trains accumulated plain accumulated -D last=smaller -D shuffle=5 -D accumulate=2 -D dp=2
beside "$WORK/square.log" trains square plain square -D last=smaller -D shuffle=5 -D loss=mse -D dp=2
beside "$WORK/large.log" trains large plain large -D last=smaller -D batch=30 -D dp=2
beside "$WORK/on_stand_in.log" trains on_stand_in cuda shuffled -D last=smaller -D shuffle=5 -D dp=2
# Some labels are -100, though the plan declares classes alone.
beside "$WORK/classes.log" trains classes plain dropped -D last=dropped -D dp=2 -D declared=true
beside "$WORK/classes_cuda.log" trains classes_cuda cuda shuffled -D last=smaller -D shuffle=5 -D dp=3 -D declared=true
beside "$WORK/accumulated_cuda.log" trains accumulated_cuda cuda accumulated -D last=smaller -D shuffle=5 -D accumulate=2 -D tp=2
files=("${arrays[@]}")
beside "$WORK/of_arrays.log" trains of_arrays plain shuffled -D last=smaller -D shuffle=5
files=(--data "input=$data/input_0.npy" --data "input=$data/input_1.npy" --data "$data/target.npy")
beside "$WORK/square_of_arrays.log" trains square_of_arrays plain square -D last=smaller -D shuffle=5 -D loss=mse -D tp=2
all_are_done
cat "$WORK"/{smaller,dropped,shuffled,uneven,shuffled_dropped,accumulated,square,large,on_stand_in,classes,classes_cuda,accumulated_cuda,of_arrays,square_of_arrays}.log

# ---- labels that are declared to be classes ------------------------------------------------------------------

# What fills a smaller batch up counts for nothing, though the plan says that no label is -100.
python3 - "$WORK/classes.npy" << 'END'
import struct, sys
head = "{'descr': '<i8', 'fortran_order': False, 'shape': (22,), }"
with open(sys.argv[1], "wb") as file:
    file.write(b"\x93NUMPY\1\0v\0" + head.ljust(117).encode() + b"\n" + struct.pack("<22q", *(i * 3 % 5 for i in range(22))))
END
make declared plain $plan -D last=smaller -D declared=true -D dp=2
make taken plain $plan -D last=smaller -D declared=true -D taken=true
# Nor for a loss that ignores another number.
make several plain $plan -D last=smaller -D declared=true -D several=losses -D dp=2 -D microbatches=2
make several_spelled plain $plan -D last=smaller -D declared=true -D several=spelled
for name in smaller declared taken several several_spelled; do
  start "$WORK/$name" "$WORK/$name.classes" --weights "$data/model.safetensors" --data "input=$data/input_[01].npy" \
    --data "labels=$WORK/classes.npy" || fail "$name.classes"
done
for name in declared taken; do
  same_losses $name.classes "$WORK/$name.classes.losses" "$WORK/smaller.classes.losses" 1e-6
done
same_losses several.classes "$WORK/several.classes.losses" "$WORK/several_spelled.classes.losses" 1e-6

# ---- metrics of a smaller batch --------------------------------------------------------------------------------

# They are those of the samples that are there; of several batches, the mean of theirs.
python3 - "$WORK" << 'PY'
import json, random, struct, sys
random.seed(1)
rows = [[random.gauss(0.5, 1) for _ in range(6)] for _ in range(22)]
def write(name, descr, shape, form, values):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    with open(sys.argv[1] + "/" + name, "wb") as file:
        file.write(b"\x93NUMPY\1\0v\0" + head.ljust(117).encode() + b"\n" + struct.pack("<%d%s" % (len(values), form), *values))
write("input.npy", "<f4", "(22, 6)", "f", [x for row in rows for x in row])
write("labels.npy", "<i8", "(22,)", "q", [i * 3 % 5 for i in range(22)])
def of(batch):
    n, every = len(batch), [x for row in batch for x in row]
    means = [sum(column) / n for column in zip(*batch)]
    squares = sum(x * x for x in every) / len(every)
    spread = sum(sum((row[k] - means[k]) ** 2 for row in batch) / (n - 1) for k in range(6)) / 6
    return {"ones": 1, "samples": n, "whole": 1, "merged": 1, "first": squares, "root": squares, "right": 1, "all": [1] * 4,
            "product": sum(every), "spread": spread, "most": max(every), "least": min(every), "count": len(every), "both": 1, "two": min(n - 1, 2)}
batches = [of(rows[at:at + 4]) for at in range(0, 22, 4)]
def mean(one, other):
    return [(a + b) / 2 for a, b in zip(one, other)] if isinstance(one, list) else (one + other) / 2
for accumulate in 1, 2:
    with open("%s/metrics.%d" % (sys.argv[1], accumulate), "w") as file:
        for step in range(12):
            many = [batches[(step * accumulate + k) % 6] for k in range(accumulate)]
            now = many[0] if accumulate == 1 else {key: mean(many[0][key], many[1][key]) for key in many[0]}
            now = dict(now, root=now["root"] ** 0.5)
            file.write(json.dumps(now) + "\n")
PY
# measures NAME KIND BATCHES ARGUMENTS...: the metrics of each step; the loss again is the loss.
measures() {
  make "$1" "$2" tests/plans/data_sets/metrics.lua "${@:4}" || return
  start "$WORK/$1" "$WORK/$1" --data "$WORK/input.npy" --data "$WORK/labels.npy" || { fail "$1"; return; }
  python3 - "$WORK/$1.jsonl" "$WORK/metrics.$3" << 'PY' || fail "$1: other metrics"
import json, sys
got, wanted = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
got = [one for one in got if "loss" in one]
flat = lambda x: x if isinstance(x, list) else [x]
bad = len(got) != len(wanted)
for step, (one, right) in enumerate(zip(got, wanted), 1):
    right["again"] = right["again_both"] = one["loss"]
    missing = [key for key in ("ones", "samples", "all", "again") if key not in one]
    for key in [key for key in right if key in one]:
        near = len(flat(one[key])) == len(flat(right[key])) and all(
            abs(a - b) <= 2e-5 * max(1, abs(b)) for a, b in zip(flat(one[key]), flat(right[key])))
        if not near or missing:
            bad = True
            print("step", step, key, one[key], "not", right[key], *missing)
sys.exit(bad)
PY
}
measured="measured measured_mesh measured_parts measured_stages measured_present measured_batches measured_cuda"
beside "$WORK/measured.log" measures measured plain 1 -D whole=true
beside "$WORK/measured_mesh.log" measures measured_mesh plain 1 -D whole=true -D dp=3 -D tp=2
beside "$WORK/measured_parts.log" measures measured_parts plain 1 -D microbatches=2 -D dp=2
beside "$WORK/measured_stages.log" measures measured_stages plain 1 -D pp=2 -D microbatches=2 -D dp=2
beside "$WORK/measured_present.log" measures measured_present plain 1 -D loss=present -D whole=true -D dp=2
beside "$WORK/measured_batches.log" measures measured_batches plain 2 -D accumulate=2 -D microbatches=4
beside "$WORK/measured_cuda.log" measures measured_cuda cuda 1 -D pp=2 -D dp=2
all_are_done
for name in $measured; do cat "$WORK/$name.log"; done

# ---- bytes of images ----------------------------------------------------------------------------------------

# An input of floats takes uint8, int8 and bool as numbers: the losses are those of the same numbers as floats.
python3 - "$WORK" << 'END'
import struct, sys
values = [i * 37 % 256 for i in range(132)]
for name, descr, form, of in (("u1", "|u1", "132B", lambda x: x), ("i1", "|i1", "132b", lambda x: x - 128),
                              ("b1", "|b1", "132B", lambda x: x % 2)):
    for kind, how, layout in (("bytes", descr, form), ("floats", "<f4", "<132f")):
        head = "{'descr': '%s', 'fortran_order': False, 'shape': (22, 6), }" % how
        with open(f"{sys.argv[1]}/{name}.{kind}.npy", "wb") as file:
            file.write(b"\x93NUMPY\1\0v\0" + head.ljust(117).encode() + b"\n" + struct.pack(layout, *map(of, values)))
END
for name in u1 i1 b1; do
  for kind in bytes floats; do
    start "$WORK/square" "$WORK/$name.$kind" --data "input=$WORK/$name.$kind.npy" --data "$data/target.npy" || fail "$name.$kind"
  done
  cmp "$WORK/$name.bytes.losses" "$WORK/$name.floats.losses" || fail "$name: not the numbers of its bytes"
done
! cmp -s "$WORK/u1.bytes.losses" "$WORK/i1.bytes.losses" || fail "uint8 and int8 are one"

# ---- going on ---------------------------------------------------------------------------------------------

# goes_on NAME STEP: a job that stops there and is resumed ends with the same bits as an unbroken one.
goes_on() {
  local name=$1 step=$2 from=(--data "$data/data.safetensors") to=$WORK/$1.$2
  start "$WORK/$name" "$to" --weights "$data/model.safetensors" "${from[@]}" --steps "$step" || fail "$name to $step"
  start "$WORK/$name" "$to.on" --load "$to.saved" "${from[@]}" || fail "$name from $step on"
  cat "$to.losses" "$to.on.losses" | cmp - "$WORK/$name.losses" || fail "$name: other losses behind step $step"
  "$TOOLS/compare_safetensors" "$WORK/$name.saved/model.safetensors" "$to.on.saved/model.safetensors" 0 ||
    fail "$name: other weights behind step $step"
}
for name in shuffled accumulated on_stand_in; do
  for step in 5 6 7; do goes_on $name $step; done
done
# On another mesh, with other files of the same samples.
start "$WORK/of_arrays" "$WORK/elsewhere" --load "$WORK/shuffled.7.saved" "${arrays[@]}" || fail "another mesh"
tail -n 11 "$WORK/shuffled.losses" > "$WORK/rest.losses"
same_losses elsewhere "$WORK/elsewhere.losses" "$WORK/rest.losses" 1e-5

# ---- what is refused ----------------------------------------------------------------------------------------

# refuses NAME WORDS ARGUMENTS...: the job ends with one message that contains these words.
refuses() {
  ! start "$WORK/$1" "$WORK/$1.bad" "${@:3}" > /dev/null || fail "$1 ${*:3}: status 0"
  grep -qF -- "$2" "$WORK/$1.bad.out" || fail "$1 ${*:3}: not '$2': $(tail -n 3 "$WORK/$1.bad.out")"
  [ "$(grep -c error "$WORK/$1.bad.out")" -eq 1 ] || fail "$1 ${*:3}: other messages: $(cat "$WORK/$1.bad.out")"
}
make not_given plain $plan -D dp=2
refuses not_given "22 samples are 5 batches of 4, and 2 more: say in train{} drop_last = true" --data "$data/data.safetensors"
refuses not_given "there are 9 samples of input, but 22 of labels" --data "input=$data/input_0.npy" --data "$data/labels.npy"
refuses not_given "or name the file so; the inputs are input, labels" --data "$data/input_0.npy" --data "$data/labels.npy"
refuses not_given "it has no labels, which the program needs" --data "input=$data/input_0.npy"
refuses not_given "target.npy: labels is F32 [22, 5] in the file, but I64 [4] in the program" \
  --data "input=$data/input_[01].npy" --data "labels=$data/target.npy"
refuses dropped "nothing*.npy: there is no such file" --data "$data/nothing*.npy"
refuses smaller "a safetensors file has names of its own: leave out input=" --data "input=$data/data.safetensors"
# An invalid label of sample 17, refused long before it is read: 5 at byte 128 + 8 * 17 of the file.
cp "$data/labels.npy" "$WORK/labels.npy"
printf '\5\0\0\0\0\0\0\0' | dd of="$WORK/labels.npy" bs=1 seek=$((128 + 8 * 17)) conv=notrunc status=none
for name in smaller shuffled on_stand_in; do
  refuses $name "labels.npy: labels[17] (sample 17) is 5, but cross_entropy at $plan:" \
    --data "input=$data/input_[01].npy" --data "$WORK/labels.npy"
done
refuses smaller "labels[17] (sample 17) is 5" --data "input=$data/input_[01].npy" --data "$WORK/labels.npy" --steps 5
start "$WORK/smaller" "$WORK/before" --data "input=$data/input_[01].npy" --data "$WORK/labels.npy" --steps 4 ||
  fail "four batches of four do not reach sample 17"

finish "batches are a DataLoader's, wherever they are read and however often a job stops"
