#!/usr/bin/env bash
# The pages (*.md): links lead to files and headings that are there, lines outside of tables and code have at most 130
# columns, and no sentence has one of the patterns that make English hard to read. Each page in docs/ is linked from an
# index.
. "$(dirname "$0")/../common.sh"

mapfile -t pages < <(git ls-files '*.md' 2> /dev/null || find . -name '*.md' -not -path './build/*')
# headings FILE: the anchors of its headings.
headings() {
  awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print tolower($0) }' "$1" |
    sed 's/[^a-z0-9_ -]//g; s/ /-/g'
}
for page in "${pages[@]}"; do
  [ -e "$page" ] || continue
  { awk '/^```/ { code = !code } !code' "$page" | grep -oE '\]\([^) ]+\)' || true; } | sed 's/^](//; s/)$//' | sort -u |
    while read -r link; do
      case $link in http*) continue ;; esac
      file=${link%%#*} at=$(dirname "$page")
      [ -n "$file" ] && target=$at/$file || target=$page
      [ -e "$target" ] || echo "$page: $link: no such file"
      [ "${link#*#}" = "$link" ] || [ ! -f "$target" ] || headings "$target" | finds -xF -- "${link#*#}" ||
        echo "$page: $link: no such heading"
    done
done > "$WORK/links"
[ ! -s "$WORK/links" ] || fail "links that lead nowhere:" "$(cat "$WORK/links")"

for page in docs/*.md; do
  name=$(basename "$page")
  cat README.md plans/README.md runtime/README.md tests/README.md | finds -F "docs/$name)" || fail "no index has $page"
done

awk '{ if (FNR == 1) code = 0 } /^```/ { code = !code } !code && !/^ *\|/ && length > 130 { print FILENAME ":" FNR }' \
  "${pages[@]}" > "$WORK/long"
[ ! -s "$WORK/long" ] || fail "more than 130 columns:" "$(cat "$WORK/long")"

# Outside of code: words that stand for plainer ones.
awk '{ if (FNR == 1) code = 0 } /^```/ { code = !code } !code { gsub(/`[^`]*`/, "X"); print FILENAME ":" FNR ": " $0 }' \
  README.md CONTRIBUTING.md docs/*.md plans/README.md runtime/README.md tests/README.md > "$WORK/text"
grep -nE "$(paste -sd '|' tests/scripts/language/plain_english.txt)" "$WORK/text" | cut -d: -f2- > "$WORK/hard" || true
[ ! -s "$WORK/hard" ] || fail "hard to read (tests/scripts/language/plain_english.txt has the patterns):" "$(cat "$WORK/hard")"
finish "${#pages[@]} pages"
