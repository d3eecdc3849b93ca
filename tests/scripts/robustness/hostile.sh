#!/usr/bin/env bash
# No name in a plan becomes code or a path: the toy with hostile names gives printable ASCII that compiles,
# runs, and equals the plain toy's text except for names, strings and comments.
. "$(dirname "$0")/../common.sh"

# A plan's file name is one of its names.
cp tests/plans/hostile.lua "$WORK/"'a"); *x* ??'$'\n''.lua'
plan=$(echo "$WORK"/a*.lua)

# A text's tokens, a line each, without comments; every word is x and every string "".
tokens() {
  sed -E 's/"([^"\\]|\\.)*"/""/g; s://.*::' "$1" | tr '\n' ' ' | sed -E 's:/\*([^*]|\*+[^*/])*\*+/: :g' |
    sed -E 's/[A-Za-z_][A-Za-z_0-9]*/x/g' | grep -oE '[A-Za-z_]+|[0-9.]+|[^[:space:]]'
}

for target in cpu cuda; do
  "$TPGEN" tests/plans/hostile.lua -o "$WORK/plain-$target" --target $target ||
    fail "$target: the plain names: status $?"
  "$TPGEN" "$plan" -D hostile=yes -o "$WORK/hostile-$target" --target $target ||
    fail "$target: the hostile names: status $?"
  diff <(cd "$WORK/plain-$target" && find . | sort) <(cd "$WORK/hostile-$target" && find . | sort) ||
    fail "$target: other files"
  if LC_ALL=C grep -rn '[^ -~]' "$WORK/hostile-$target"; then fail "$target: not printable ASCII"; fi
  if grep -rn '??/' "$WORK/hostile-$target"; then fail "$target: a trigraph"; fi
  for file in "$WORK/plain-$target"/*.c "$WORK/plain-$target"/*.cu; do
    [ -f "$file" ] || continue
    diff <(tokens "$file") <(tokens "$WORK/hostile-$target/$(basename "$file")") > "$WORK/diff" || {
      head -n 20 "$WORK/diff"
      fail "$target: $(basename "$file") differs in more than names"
    }
  done
  "$TOOLS/collectives" "$WORK/hostile-$target/plan.json" > /dev/null ||
    fail "$target: plan.json cannot be read"
done

cd "$WORK"
export CMAKE_ARGS=-DCMAKE_C_FLAGS=-O0 # toy.sh builds with a release's flags
for name in plain hostile; do
  mv "$name-cpu" $name
  train $name
  losses_of "$WORK/$name.jsonl" > "$WORK/$name.losses"
done
[ "$(wc -l < "$WORK/plain.losses")" -eq 10 ] || fail "no ten losses"
[ -z "$(find "$WORK" -name '*escaped*')" ] || fail "a name was run as a command"
finish "hostile names are only names"
