#!/usr/bin/env bash
# How the sources are laid out: no line of C, of CUDA or of a kernel's template has more than 100 columns, and
# .clang-format would change none of them. (A table that is kept by hand says so.) Other versions of
# clang-format lay out some lines differently: the latter is skipped loudly where there is none of version 14.
. "$(dirname "$0")/common.sh"

mapfile -t files < <(find gen runtime tests templates/kernels -regex '.*\.\(c\|h\|cu\|cpp\)' | LC_ALL=C sort)
# How a template's kernel is launched is one line, and no part of what is generated.
long=$(awk 'length > 100 && !/^\/\/ launch:/ { print FILENAME ":" FNR }' "${files[@]}")
[ -z "$long" ] || fail "more than 100 columns:" $long

case $(clang-format --version 2> /dev/null) in
*"version 14."*) clang-format --dry-run -Werror "${files[@]}" || fail "clang-format -i lays these out anew" ;;
*)
  [ "$failures" -eq 0 ] || exit 1
  echo "style: SKIPPED: there is no clang-format 14. Only the lines' lengths were looked at."
  exit 77
  ;;
esac
finish "${#files[@]} files, as .clang-format has them"
