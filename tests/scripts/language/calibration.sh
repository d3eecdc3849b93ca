#!/usr/bin/env bash
# tpgen --calibrate: its program builds, runs in its short form and leaves a device.json; a plan that takes it has a step
# simulated by it. A device.json that is not one is refused, with the field. Steps follow the figures of a file made by hand.
. "$(dirname "$0")/../common.sh"
machine=$WORK/machine plan=(plans/llama3.lua -D preset=debug)

# makes NAME ARGUMENTS...: the program of the plan, and in NAME.seconds its simulated step.
makes() {
  "$TPGEN" "${plan[@]}" "${@:2}" -o "$WORK/$1" > "$WORK/$1.log" 2>&1 || { cat "$WORK/$1.log" && fail "$1: no program" && return 0; }
  sed -n '/"simulated_step"/,/}/s/.*"seconds": *\([0-9.e-]*\).*/\1/p' "$WORK/$1/plan.json" > "$WORK/$1.seconds"
  [ -s "$WORK/$1.seconds" ] || fail "$1: no simulated step"
}
# is_longer A B TIMES
is_longer() { awk -v a="$(cat "$WORK/$1.seconds")" -v b="$(cat "$WORK/$2.seconds")" -v times="$3" 'BEGIN { exit !(a > times * b) }'; }

# A device of one rate for all: products of $1 operations a second, and kernels of $2 bytes a second.
device() { # RATE BYTES
  awk -v rate="$1" -v bytes="$2" 'BEGIN {
    n = split("16 256 4096", size); uses = split("read write copy update optimizer", use)
    printf("{\"version\": 1, \"target\": \"cpu\", \"machine\": \"A machine\", \"host\": \"host\", \"measured\": \"2026-01-01T00:00:00Z\",")
    printf("\"cores\": 2, \"memory\": 8e9, \"runs\": [")
    for (ranks = 1; ranks <= 2; ranks++) {
      printf("%s{\"ranks\": %d, \"threads\": 1, \"kernel\": 1e-6, \"memory\": {", ranks > 1 ? ", " : "", ranks)
      for (i = 1; i <= uses; i++) printf("%s\"%s\": [[1e3, %g], [1e9, %g]]", i > 1 ? ", " : "", use[i], bytes, bytes)
      printf("}, \"functions\": {\"copy\": 1e-10, \"exp\": 1e-9}, \"products\": [{\"type\": \"float32\", \"form\": \"nn\", \"sizes\": [16, 256, 4096], \"seconds\": [")
      for (a = 1; a <= n; a++) for (b = 1; b <= n; b++) for (c = 1; c <= n; c++)
        printf("%s%.9g", a + b + c > 3 ? ", " : "", 2 * size[a] * size[b] * size[c] / rate)
      printf("]}], \"batches\": [], \"groups\": [], \"attention\": [], \"collectives\": [")
      split("all_gather reduce_scatter all_reduce all_to_all send", kind)
      for (k = 1; k <= 5 && ranks > 1; k++)
        printf("%s{\"kind\": \"%s\", \"ranks\": 2, \"type\": \"float32\", \"points\": [[1e3, 1e-5], [1e9, 1]]}", k > 1 ? ", " : "", kind[k])
      printf("]}")
    }
    print "]}"
  }'
}
device 1e9 1e10 > "$WORK/slow.json"
device 1e10 1e10 > "$WORK/quick.json"
makes slow -D "device=$WORK/slow.json"
makes quick -D "device=$WORK/quick.json"
makes of_two -D tp=2 -D "device=$WORK/slow.json"
is_longer slow quick 3 || fail "products of a tenth of the rate cost less than three times as much"
is_longer slow of_two 1.3 || fail "two ranks are no quicker"
grep -q 'measured on host (A machine), 2026-01-01T00:00:00Z, 2 cores: with 2 ranks of 1 thread' "$WORK/of_two/plan.txt" ||
  fail "plan.txt does not say where it was measured"
rm -f "$WORK"/{slow,quick}/{plan.txt,plan.json,files.txt}
grep -rlE 'A machine|2026-01-01T' "$WORK/slow" > "$WORK/names" && fail "a program's text names the machine: $(cat "$WORK/names")"
diff <(cat "$WORK"/slow/*.[ch] | sed 's/[0-9a-f]\{16\}/HASH/g') <(cat "$WORK"/quick/*.[ch] | sed 's/[0-9a-f]\{16\}/HASH/g') > "$WORK/difference" ||
  fail "figures change a program: $(head -n 3 "$WORK/difference")"
# From its dump the same follows.
"$TPGEN" "${plan[@]}" -D "device=$WORK/slow.json" --dump=lua > "$WORK/dump" && "$TPGEN" --from=lua "$WORK/dump" -o "$WORK/again" &&
  sed -n '/"simulated_step"/,/}/s/.*"seconds": *\([0-9.e-]*\).*/\1/p' "$WORK/again/plan.json" | cmp - "$WORK/slow.seconds" ||
  fail "a dump does not have the figures"

# refuses WORDS SED: the file, changed so, is refused.
refuses() {
  sed "$2" "$WORK/slow.json" > "$WORK/wrong.json"
  "$TPGEN" "${plan[@]}" -D "device=$WORK/wrong.json" -o "$WORK/none" > "$WORK/message" 2>&1 && fail "$2: taken"
  grep -qF -- "$1" "$WORK/message" || fail "$2: says '$(cat "$WORK/message")', and nothing of '$1'"
}
refuses "version must be 1" 's/"version": 1/"version": 2/'
refuses "target must be cpu" 's/"target": "cpu"/"target": "cuda"/'
refuses "cores is missing" 's/"cores"/"kores"/'
refuses "runs[0].kernel must be a number" 's/"kernel": 1e-6/"kernel": -1/'
refuses "runs[0].memory.read is missing" 's/"read"/"reed"/'
refuses "runs[0].products[0].seconds must have 27 items, not 26" 's/"seconds": \[[^,]*, /"seconds": [/'
refuses "runs[1].ranks must be more than that of the run before" 's/"ranks": 2, "threads"/"ranks": 1, "threads"/'
refuses "is not JSON" 's/^{/[/'
refuses "runs[1].collectives[0].kind must be all_gather" 's/"kind": "all_gather"/"kind": "gather"/'
"$TPGEN" "${plan[@]}" -D "device=$WORK/no.json" -o "$WORK/none" > "$WORK/message" 2>&1 && fail "a device.json that is not there"
grep -qF "device_mesh's device (-D device): cannot read" "$WORK/message" || fail "of no file: $(cat "$WORK/message")"

"$TPGEN" --calibrate -o "$machine" || fail "--calibrate: status $?"
"$machine/run.sh" --short --ranks "1 2" > "$WORK/log" 2>&1 || { tail "$WORK/log" && fail "the program that measures: status $?"; }
[ "$failures" -ne 0 ] || makes measured -D tp=2 -D "device=$machine/device.json"
# --cluster this: the figures are in the cache, measured if they are not there, or are those of other processors; a file that is
# none is refused. Ranks are 1, 2, 4 ... of the cores.
export XDG_CACHE_HOME=$WORK/cache TPGEN_SHORT=1
here=$XDG_CACHE_HOME/tpgen/$(uname -n | tr -cd 'A-Za-z0-9._-')-$(nproc)
this() { "$TPGEN" "${plan[@]}" --cluster this "$@" > "$WORK/this.out" 2> "$WORK/this.log"; }
says() { grep -qF -- "$1" "$WORK/this.log" || fail "--cluster this says '$(cat "$WORK/this.log")', and nothing of '$1'"; }
printf 'return train{model = nn.Linear(8, 8), batch = {input = randn{8, 8}}, loss = function(y) return y:sum() end, steps = 1,\n' > "$WORK/own.lua"
printf '  optimizer = SGD{lr = 0.1}, parallel = auto{cluster = "this"}}\n' >> "$WORK/own.lua"
"$TPGEN" "$WORK/own.lua" -o "$WORK/own" > "$WORK/this.log" 2>&1 && fail "a plan by itself measures this machine"
says "nothing is known of this machine yet"
this --search -o "$WORK/this" || fail "--search --cluster this: $(tail -n 5 "$WORK/this.log")"
says "this machine is measured now"
[ -f "$here/device.json" ] || fail "no $here/device.json"
grep -q "on this machine, $(nproc) cores of" "$WORK/this.out" || fail "the table does not say where: $(head -n 1 "$WORK/this.out")"
this --search || fail "the second time: $(cat "$WORK/this.log")"
says "this machine's figures are those of $here/device.json"
"$TPGEN" "$WORK/own.lua" -o "$WORK/own" > "$WORK/own.log" 2>&1 || fail "auto{cluster = \"this\"}: $(cat "$WORK/own.log")"
cp "$here/device.json" "$WORK/measured.json"
sed -i 's/"machine": "[^"]*"/"machine": "Another one"/' "$here/device.json"
this -o "$WORK/this.plain" -D tp=1 || fail "of other processors: $(tail -n 5 "$WORK/this.log")"
says "is of a machine with other processors"
says "this machine is measured now"
for hostile in '{' '{"version": 1, "cores": "two"}' "$(printf 'x%.0s' {1..5000})" '[[[[[[[[]]]]]]]]'; do
  printf '%s' "$hostile" > "$here/device.json"
  this --search && fail "this is taken: ${hostile:0:40}"
  says "remove it, and this machine is measured again"
done
cp "$WORK/measured.json" "$here/device.json"
this --search --target cuda && fail "--target cuda on this machine"
says "for programs of the target cpu"
XDG_CACHE_HOME=relative HOME='' this --search && fail "no folder for the cache"
says "set XDG_CACHE_HOME"
finish "a machine is measured, and a step simulated by its figures"
