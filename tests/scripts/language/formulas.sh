#!/usr/bin/env bash
# Whether the formulas above the kernels of programs say what their statements compute: formulas.c works both out.
# The programs of plans/ and tests/equal/. A wrong bracket in a comment must be found.
. "$(dirname "$0")/../common.sh"

"${CC:-cc}" -O1 -Wall -Wextra -Werror tests/tools/formulas.c -o "$WORK/formulas" -lm
for plan in plans/*.lua tests/equal/*.lua; do
  case $plan in
  plans/generate.lua | plans/reshard.lua | plans/torch_export.lua) continue ;; # they need files
  esac
  "$TPGEN" "$plan" -o "$WORK/$(basename "$plan" .lua)" > /dev/null 2>&1 || true # some need arguments
done
"$TPGEN" plans/bert.lua -D tp=2 -o "$WORK/bert2" > /dev/null 2>&1
"$WORK/formulas" "$WORK"/*/kernels*.c > "$WORK/compared" || fail "a comment says what no statement computes: $(head -n 4 "$WORK/compared")"
compared=$(tail -n 1 "$WORK/compared")
[ "${compared%% *}" -gt 500 ] || fail "too few formulas were compared: $compared"

# The mean of the difference, and the difference of the mean: brackets that the left operand of a sign lacks.
sed '/^\/\/ /s/ = (\([^()]*\) \([-+]\) \([^()]*\)) \([*\/]\) / = \1 \2 \3 \4 /' "$WORK/bert/kernels.c" > "$WORK/planted.c"
sed '/^\/\/ /s/ \* (\([^() ]*\) \([-+*\/]\) \([^() ]*\))/ * \1 + \3/' "$WORK/llama3/kernels.c" >> "$WORK/planted.c"
! "$WORK/formulas" "$WORK/planted.c" > "$WORK/planted" || fail "no wrong bracket is found: $(cat "$WORK/planted")"
finish "$compared, and a planted one is found"
