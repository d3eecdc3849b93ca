#!/usr/bin/env bash
# Depth costs nothing to read, and little to compile: the program of 126 layers is that of 32 in other
# numbers, and as long as that of 2; tpgen takes as much longer for it as it has more layers.
. "$(dirname "$0")/common.sh"

# compile NAME LAYERS ARGUMENTS...: Llama's largest plan, that deep, into $WORK/NAME. Adds to
# NAME.took how many milliseconds of a processor's time that took, and how many KiB.
compile() {
  local name=$1 layers=$2
  shift 2
  "$TOOLS/run_measured" 60 "$WORK/$name.report" "$TPGEN" plans/llama3.lua -o "$WORK/$name" \
    -D preset=405b -D n_layers="$layers" "$@"
  read -r status _ kib milliseconds < "$WORK/$name.report"
  [ "$status" -eq 0 ] || fail "$name: tpgen ended with status $status"
  echo "$milliseconds $kib" >> "$WORK/$name.took"
}

# A report but for what it says of searches that ended early: which do depends on the depth.
without_ends() {
  sed '/^ended early$/,/^$/d; /"ended_early": \[/,/^  \]/d' "$1" | sed -E '$!N; s/,(\n\})/\1/; P; D' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
}
# numberless DIRECTORY FILE: what it says but for its numbers, the plan's hash, comments, and where its lines
# and columns break. (A comment stands behind a declaration, or above it where that is too long.)
numberless() {
  local hash
  hash=$(sed -n '1s/.*(\(.*\)).*/\1/p' "$1/step.c")
  sed "s/$hash//; s#//.*##" <(without_ends "$1/$2") | tr -d ' \n' |
    sed -E 's/[0-9]+([.,][0-9]+)*(e[-+]?[0-9]+)?/0/g; s/[;{}]/&\n/g'
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
    # Wider numbers may break a line.
    [ $((100 * $(lines "$many/$file"))) -le $((101 * $(lines "$few/$file") + 100)) ] ||
      fail "${way[0]}: $file: $(lines "$few/$file") lines for 2 layers, $(lines "$many/$file") for 126"
  done
  [ "$(lines "$WORK/${way[0]}126/step.c")" -lt 1500 ] || fail "${way[0]}: step.c is too long"
done

# Noise is one-sided. Four times the layers take four times as long at most, but for what is constant;
# where a pass is quadratic, sixteen.
for _ in 1 2 3 4; do
  compile plain32 32 -D tp=8
  compile plain126 126 -D tp=8
done
compile sharded 126 -D tp=8 -D dp=8
read -r some _ <<< "$(least "$WORK/plain32.took")"
read -r many kib <<< "$(least "$WORK/plain126.took")"
read -r _ sharded <<< "$(least "$WORK/sharded.took")"
[ "$many" -le $((7 * some + 100)) ] || fail "32 layers take $some ms, 126 take $many ms"
# Twice what it takes on an idle machine; and in 64 MiB, fully sharded over 64 ranks too.
if ! grep -q __asan_init "$TPGEN"; then
  [ "$many" -le 320 ] || fail "126 layers take $many ms"
  [ "$kib" -le 65536 ] || fail "126 layers take $kib KiB"
  [ "$sharded" -le 65536 ] || fail "126 layers, fully sharded, take $sharded KiB"
fi
finish "32 layers in $some ms, 126 in $many ms and $kib KiB; $(lines "$WORK/plain126/step.c") lines"
