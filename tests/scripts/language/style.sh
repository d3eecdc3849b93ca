#!/usr/bin/env bash
# How the sources are laid out: no line of C, of CUDA or of a kernel's template has more than 100 columns, and
# .clang-format would change none of them. (A table that is kept by hand says so.) No header of gen/ has more than
# 400 lines. Comments and messages are plain English (plain_english.txt). Other versions of clang-format lay out some lines differently: they are
# not asked, and the test is skipped loudly.
. "$(dirname "$0")/../common.sh"

mapfile -t files < <(find gen runtime tests templates/kernels -regex '.*\.\(c\|h\|cu\|cpp\)' | LC_ALL=C sort)
# How a template's kernel is launched is one line, and no part of what is generated.
long=$(awk 'length > 100 && !/^\/\/ launch:/ { print FILENAME ":" FNR }' "${files[@]}")
[ -z "$long" ] || fail "more than 100 columns:" $long
marks=$(grep -rlE '^(<{7} |>{7} |={7}$)' gen runtime templates plans tests/scripts docs examples ./*.md) || true
[ -z "$marks" ] || fail "a merge that was not finished:" $marks

# A header that is longer holds more than one subject.
while read -r lines file; do
  [ "$lines" -le 400 ] || fail "$file has $lines lines, more than 400"
done < <(wc -l gen/*/*.h | grep -v ' total$')

# Under pipefail grep -q, which stops reading, makes a pipe fail now and then.
piped=$(grep -nE '\| *grep -[a-zA-Z]*q' $(find tests -name '*.sh')) && fail "finds, not grep -q, at the end of a pipe:" "$piped"

case $(clang-format --version 2> /dev/null) in
*"version 14."*) clang-format --dry-run -Werror "${files[@]}" || fail "clang-format -i lays these out anew" ;;
*)
  [ "$failures" -eq 0 ] || exit 1
  echo "style: SKIPPED: there is no clang-format 14. Only the lines' lengths were looked at."
  exit 77
  ;;
esac
# What is copied into users' programs names its licence.
for file in $(find runtime -name '*.[ch]' -o -name '*.cu'); do
  [ "$(head -n 1 "$file")" = '// SPDX-License-Identifier: MIT' ] || fail "$file does not begin with its licence"
done

# Comments and messages have none of the patterns that make English hard to read.
mapfile -t texts < <(find gen runtime templates plans/lib -regex '.*\.\(c\|h\|cu\|cuh\|lua\)' | LC_ALL=C sort)
awk -f tests/scripts/language/texts.awk "${texts[@]}" > "$WORK/texts"
grep -nE "$(paste -sd '|' tests/scripts/language/plain_english.txt)" "$WORK/texts" | cut -d: -f2- > "$WORK/hard" || true
[ ! -s "$WORK/hard" ] || fail "hard to read (tests/scripts/language/plain_english.txt has the patterns):" "$(cat "$WORK/hard")"
finish "${#files[@]} files, as .clang-format has them"
