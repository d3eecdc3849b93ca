#!/usr/bin/env bash
# Deep models: the programs of 126 and of 32 layers differ in numbers alone. The program of 126 layers is as
# long as that of 2. tpgen's time grows at most in proportion to the layers.
. "$(dirname "$0")/../common.sh"

# compile NAME LAYERS ARGUMENTS...: writes the program of Llama's largest preset with so many layers into
# $WORK/NAME. Adds a line to NAME.took: milliseconds of processor time, and KiB.
compile() {
  local name=$1 layers=$2
  shift 2
  "$TOOLS/run_measured" 60 "$WORK/$name.report" "$TPGEN" plans/llama3.lua -o "$WORK/$name" \
    -D preset=405b -D n_layers="$layers" "$@"
  read -r status _ kib milliseconds < "$WORK/$name.report"
  [ "$status" -eq 0 ] || fail "$name: tpgen ended with status $status"
  echo "$milliseconds $kib" >> "$WORK/$name.took"
}

# without_ends FILE: the file without its list of searches that ended early. That list depends on the depth.
without_ends() { sed '/^ended early$/,/^$/d; /"ended_early": \[/,/^  \]/d' "$1"; }
# numberless DIRECTORY FILE: the file without its numbers, the plan's hash, comments, and breaks of lines and
# columns. (A comment follows a declaration, or is above it where the declaration is too long.)
numberless() {
  local hash
  hash=$(sed -n '1s/.*(\(.*\)).*/\1/p' "$1/step.c")
  without_ends "$1/$2" | sed "s/$hash//; s#//.*##" | tr -d ' \n' |
    sed -E 's/,}$/}/; s/[0-9]+([.,][0-9]+)*(e[-+]?[0-9]+)?/0/g; s/[;{}]/&\n/g'
}
lines() { without_ends "$1" | wc -l; }
least() { sort -n "$1" | head -n 1; }

for way in 'plain -D tp=8' 'micro -D dp=2 -D tp=4 -D accumulate=2'; do
  read -r -a way <<< "$way"
  for layers in 2 32 126; do compile "${way[0]}$layers" $layers "${way[@]:1}"; done
  for file in step.c kernels.c rank0.c plan.txt plan.json; do
    few=$WORK/${way[0]}2 some=$WORK/${way[0]}32 many=$WORK/${way[0]}126
    diff <(numberless "$some" $file) <(numberless "$many" $file) > "$WORK/$file.differs" ||
      fail "${way[0]}: $file differs in more than numbers: $(head -n 3 "$WORK/$file.differs" | cut -c -200)"
    # Wider numbers may break some lines.
    [ $((100 * $(lines "$many/$file"))) -le $((101 * $(lines "$few/$file") + 300)) ] ||
      fail "${way[0]}: $file: $(lines "$few/$file") lines for 2 layers, $(lines "$many/$file") for 126"
  done
  [ "$(lines "$WORK/${way[0]}126/step.c")" -lt 1500 ] || fail "${way[0]}: step.c is too long"
done

# Noise only adds time, so the least of five runs counts. Four times the layers may take four times as long,
# plus a constant. With a quadratic pass they would take sixteen times as long.
for _ in 1 2 3 4; do
  compile plain32 32 -D tp=8
  compile plain126 126 -D tp=8
done
compile sharded 126 -D tp=8 -D dp=8
# Stages of a pipeline: their layers are loops, and equal stages are planned once.
compile pipeline 126 -D pp=16 -D tp=8 -D dp=8 -D microbatches=64 -D batch=512 --ranks 0-7
"$TPGEN" plans/llama3.lua -o "$WORK/many" -D n_layers=128 -D pp=128 -D microbatches=128 -D batch=128 --ranks 0 || fail "no room for 128 stages"
if "$TPGEN" plans/llama3.lua -o "$WORK/all" -D preset=405b -D pp=16 -D tp=8 -D dp=8 -D zero=1 -D stages=4 -D microbatches=64 \
  -D batch=512 -D schedule=interleaved_1f1b --target cuda -D dtype=bfloat16 -D checkpoint=layer 2> "$WORK/all.err"; then
  fail "all: there is room for the programs of 1,024 ranks"
fi
grep -q 'each takes [0-9]* of [0-9]* MiB; say which ranks to write, as in --ranks 0-7' "$WORK/all.err" || fail "all: $(head -c 200 "$WORK/all.err")"
grep -q 'layers_forward(l)' "$WORK/pipeline/step_stage0.c" || fail "pipeline: the layers of a stage are no loop"
read -r _ staged <<< "$(least "$WORK/pipeline.took")"
read -r some _ <<< "$(least "$WORK/plain32.took")"
read -r many kib <<< "$(least "$WORK/plain126.took")"
read -r _ sharded <<< "$(least "$WORK/sharded.took")"
[ "$many" -le $((7 * some + 100)) ] || fail "32 layers take $some ms, 126 take $many ms"
# Twice the time on an idle machine; at most 64 MiB, also fully sharded over 64 ranks.
if ! grep -q __asan_init "$TPGEN"; then
  [ "$many" -le 320 ] || fail "126 layers take $many ms"
  [ "$kib" -le 65536 ] || fail "126 layers take $kib KiB"
  [ "$staged" -le 327680 ] || fail "126 layers in 16 stages take $staged KiB"
  [ "$sharded" -le 65536 ] || fail "126 layers, fully sharded, take $sharded KiB"
fi
finish "32 layers in $some ms, 126 in $many ms and $kib KiB; $(lines "$WORK/plain126/step.c") lines"
