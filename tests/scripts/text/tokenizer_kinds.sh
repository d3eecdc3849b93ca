#!/usr/bin/env bash
# Tokenizers as released files have them (tests/golden/tokenizer_kinds): the ids and the texts are those of the library `tokenizers`.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
runtime_plan=plans/generate.lua
make_runtime plain > "$WORK/runtime.log" 2>&1 || { cat "$WORK/runtime.log"; fail "the runtime does not compile"; }
"$TPGEN" plans/generate.lua -o "$WORK/tiny" && make_ranks "$WORK/tiny" plain || fail "no program"
n=0
for file in "$golden"/tokenizer_kinds/*.json; do
  name=$(basename "$file" .json) n=$((n + 1))
  "$WORK/tiny/rank0" --tokenizer "$file" --encode "${file}l" --output "$WORK/$name" > "$WORK/log" 2>&1 || { fail "$name: $(tail -n 1 "$WORK/log")"; continue; }
  python3 - "${file}l" "$WORK/$name" <<'PYTHON' || fail "$name: see above"
import json, sys
expected, found = [[json.loads(line) for line in open(path)] for path in sys.argv[1:]]
wrong = [(e, f) for e, f in zip(expected, found) if any(e[k] != f[k] for k in ("ids", "ids_special", "decoded"))]
for e, f in wrong[:3]: print(f"{e['text']!r}: {e['ids']} {e['decoded']!r}, not {f['ids']} {f['decoded']!r}")
sys.exit(len(expected) != len(found) or bool(wrong))
PYTHON
done
[ "$n" -ge 27 ] || fail "only $n tokenizers"
finish "$n tokenizers"
