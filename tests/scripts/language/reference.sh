#!/usr/bin/env bash
# The reference of the plan language, docs/reference.md, and of the plans' settings, docs/settings.md, are what tpgen
# prints; tpgen refuses to print the former where a function that a plan can call is not described, or is described with
# other parameters or options than it takes. The types for editors are Lua. Defaults are PyTorch's.
#   tests/scripts/language/reference.sh --update   writes both pages
. "$(dirname "$0")/../common.sh"

compare() { # PAGE TEXT
  if [ "${update:-}" = yes ]; then cp "$2" "$1"; else
    diff -u "$1" "$2" || fail "$1 is not what tpgen prints: look at the difference, then tests/scripts/language/reference.sh --update"
  fi
}
[ "${1:-}" != --update ] || update=yes

"$TPGEN" --reference > "$WORK/reference.md" || fail "tpgen --reference: status $?: $(tail -n 20 "$WORK/reference.md")"
compare docs/reference.md "$WORK/reference.md"

# Settings that several plans have come once, before those of each plan.
settings_page() {
  cat << 'END'
# Settings of the plans

`tpgen PLAN.lua --help` lists the settings of a plan with their defaults. `tests/scripts/language/reference.sh --update` writes
this page from that. A plan takes them as `-D NAME=VALUE`; [settings](plans.md#settings) declares them. "(search)" marks settings
that [`--search`](search.md) may vary: every value gives the same numbers.
END
  local plan shared=$'the mesh, and what is cut over it\ntraining'
  for plan in shared plans/*.lua; do
    if [ "$plan" = shared ]; then
      printf '\n## Of several plans\n\n```\n'
      "$TPGEN" plans/llama3.lua --help | awk -v shared="$shared" '
        BEGIN { n = split(shared, name, "\n"); for (i = 1; i <= n; i++) wanted[name[i]] = 1 }
        /^[^ ]/ { shown = ($0 in wanted); if (shown && any++) print "" }
        shown && NF'
      printf '```\n'
      continue
    fi
    printf '\n## %s\n\n```\n' "$(basename "$plan")"
    "$TPGEN" "$plan" --help | sed '0,/^Settings, -D/d; /^Types:$/,$d' | awk -v shared="$shared" '
      BEGIN { n = split(shared, name, "\n"); for (i = 1; i <= n; i++) left_out[name[i]] = 1 }
      /^[^ ]/ { hidden = ($0 in left_out); if (!hidden && any) print "" }
      !hidden && NF { print; any = 1 }'
    printf '```\n'
  done
}
settings_page > "$WORK/settings.md"
compare docs/settings.md "$WORK/settings.md"

# The types: Lua that compiles, with each entry of the reference.
"$TPGEN" --reference=types > "$WORK/types.lua" || fail "tpgen --reference=types: status $?"
head -n 1 "$WORK/types.lua" | finds -x -- '---@meta' || fail "the types do not begin with ---@meta"
"$(dirname "$TPGEN")/compile_lua" "$WORK/compiled.c" "$WORK" types.lua || fail "the types are not Lua"
sed -n 's/^\* `\([A-Za-z_.]*\)(.*/\1/p' "$WORK/reference.md" | while read -r name; do
  grep -qF "function $name(" "$WORK/types.lua" || echo "$name"
done > "$WORK/missing"
[ ! -s "$WORK/missing" ] || fail "the types lack $(tr '\n' ' ' < "$WORK/missing")"

# Defaults that PyTorch's signatures have as numbers, texts or truths.
tr '\n' ' ' < "$WORK/reference.md" | tr -s ' ' | sed 's/ \* `/\n`/g' > "$WORK/entries"
awk -F '\t' -v OFS='\t' '
  FILENAME ~ /entries/ { if (match($0, /^`(F|nn)\.[A-Za-z0-9_]*\(/)) entry[substr($0, 2, RLENGTH - 2)] = $0; next }
  { prefix = FILENAME ~ /modules/ ? "nn." : "F." }
  seen[prefix $1, $4]++ { next }
  !(prefix $1 in entry) || $5 !~ /optional|keyword/ || $6 !~ /^(-?[0-9.e-]+|true|false|".*")$/ { next }
  {
    default = $6
    sub(/\.0$/, "", default)
    sub(/e-0/, "e-", default)
    if (entry[prefix $1] ~ ("[(, ]" $4 "[,)]") || entry[prefix $1] !~ ("[(, ]" $4 "( =|\\?)")) next
    checked++
    if (index(entry[prefix $1], $4 " = " default) == 0 && index(entry[prefix $1], $4 "?") == 0) print prefix $1, $4, default
  }
  END { print checked > "/dev/stderr" }' "$WORK/entries" tests/golden/signatures/functions.tsv tests/golden/signatures/modules.tsv \
  > "$WORK/defaults" 2> "$WORK/checked"
[ ! -s "$WORK/defaults" ] || fail "other defaults than PyTorch's:" "$(cat "$WORK/defaults")"
[ "$(cat "$WORK/checked")" -gt 100 ] || fail "only $(cat "$WORK/checked") defaults were compared"
finish "$(grep -c '^\* `' "$WORK/reference.md") entries, $(cat "$WORK/checked") defaults"
