#!/usr/bin/env bash
# Whether two compilers write the same programs: for a change of form alone. The plans of plans/, tests/equal and tests/dump, on
# their meshes and on both targets, and what each pass leaves of the dumps.
#   tests/scripts/language/same_programs.sh OLD NEW   the two tpgen; it says which programs differ, and ends with 1 if any does
#   STRIP=1     C without comments and blank lines is compared
#   PLANS='...' these plans alone
set -euo pipefail
[ $# -eq 2 ] && [ -x "$1" ] && [ -x "$2" ] || { echo "usage: same_programs.sh OLD NEW, two tpgen" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2") work=$(mktemp -d)
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
trap 'rm -rf "$work"' EXIT
differ=0 programs=0 refused=0

# Each line: a plan and its arguments.
cases() {
  local plan
  for plan in ${PLANS:-plans/*.lua tests/equal/*.lua tests/dump/*.lua}; do
    case $plan in
    plans/generate.lua | plans/reshard.lua | plans/torch_export.lua) continue ;; # they need files
    esac
    echo "$plan"
    sed -n 's/^-- \(mesh\|cuda\): */ /p' "$plan" | sed 's/ \([^ ]\)/ -D \1/g' | sort -u | sed "s|^|$plan|"
    case $plan in
    plans/*)
      echo "$plan -D tp=2"
      echo "$plan -D tp=2 -D dp_shard=2 -D microbatches=2"
      echo "$plan -D pp=2 -D dp=2"
      ;;
    esac
  done
}

strip() { # DIRECTORY
  find "$1" -name '*.[ch]' -o -name '*.cu' | while read -r file; do
    gcc -fpreprocessed -dD -E -P -x c "$file" 2> /dev/null | sed '/^$/d' > "$work/text" && mv "$work/text" "$file"
  done
}

write_both() { # TARGET ARGUMENTS...
  rm -rf "$work/old" "$work/new"
  "$old" "${@:2}" --target "$1" -o "$work/old" > "$work/old.log" 2>&1 || true
  "$new" "${@:2}" --target "$1" -o "$work/new" > "$work/new.log" 2>&1 || true
  if [ ! -d "$work/old" ] && [ ! -d "$work/new" ]; then
    refused=$((refused + 1))
    cmp -s "$work/old.log" "$work/new.log" || { differ=$((differ + 1)) && echo "another message: $*"; }
    return
  fi
  programs=$((programs + 1))
  rm -rf "$work"/{old,new}/{runtime,files.txt,CMakeLists.txt} # of the runtime alone
  [ -z "${STRIP:-}" ] || { strip "$work/old" && strip "$work/new"; }
  diff -r "$work/old" "$work/new" > "$work/difference" 2>&1 && return
  differ=$((differ + 1))
  echo "another program: $*: $(grep -c '^[<>]' "$work/difference" || true) lines: $(sed -n 's/^[<>] *//p' "$work/difference" | head -n 1)"
}

while read -r -a arguments; do
  for target in cpu cuda; do write_both $target "${arguments[@]}" < /dev/null; done
done < <(cases)
echo "same_programs: $programs programs and $refused refusals, $differ differ"
[ $differ -eq 0 ]
