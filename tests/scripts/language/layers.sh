#!/usr/bin/env bash
# The layers of gen/, by the objects' symbols: no cycle of files, and no file that needs a folder above its own
# in gen/LAYERS. A file includes its own folder's header, and that header those below it.
. "$(dirname "$0")/../common.sh"

objects=$(dirname "$TPGEN")/CMakeFiles/tpgen_passes.dir/gen
sources=$(cd gen && printf '%s\n' */*.c | grep -v '^tools/\|^driver/main.c')
# Each line: FOLDER/FILE.c.o FOLDER/FILE.c.o; the first needs the second.
(cd "$objects" && for source in $sources; do nm -A "$source.o"; done) | sed 's/:/ /' |
  awk '$3 ~ /^[TDBRV]$/ { home[$4] = $1 } $2 == "U" { uses[$1 " " $3] }
    END { for (u in uses) { split(u, p, " "); if (home[p[2]] != "" && home[p[2]] != p[1]) print p[1], home[p[2]], p[2] } }' |
  LC_ALL=C sort -u > "$WORK/uses"
cut -d ' ' -f 1,2 "$WORK/uses" | LC_ALL=C sort -u > "$WORK/needs"
[ "$(wc -l < "$WORK/needs")" -gt 300 ] || fail "only $(wc -l < "$WORK/needs") needs were found in $objects"
tsort "$WORK/needs" > /dev/null 2> "$WORK/circles" || true
[ ! -s "$WORK/circles" ] || fail "files that need each other: $(head -n 4 "$WORK/circles" | sed 's/.*: //')"

# A folder that LAYERS does not list is above all.
upward=$(awk 'NR == FNR { if (NF) floor[$1] = NR; next }
  { split($1, a, "/"); split($2, b, "/"); if (!(a[1] in floor)) print $1 " is in no layer"
    if (floor[b[1]] > floor[a[1]]) print $1 " needs " $2 }' gen/LAYERS "$WORK/needs")
[ -z "$upward" ] || fail "$(head -n 8 <<< "$upward")"

# The checks decide nothing as the passes do that they check. What they call above ir/ and util/ is listed:
# what a program says, which they compare with an answer of their own (counts, copies, slots, work), and
# plain data: the actions of a schedule, names, a kernel's file, the type that a bucket has.
allowed='collective_counts equal_parts is_copied_in is_copied_out slots_of_rank slot_begins bytes_before_stage does_work
  actions_here actions_of pipeline_here action_text stream_name kernel_file moved_type'
asked=$(awk -v allowed="$allowed" 'BEGIN { n = split(allowed, a); for (i = 1; i <= n; i++) may[a[i]] = 1 }
  $1 ~ /^check\// && $2 !~ /^(util|ir|check)\// { called[$3] = 1; if (!($3 in may)) print $1 " asks " $3 " of " $2 }
  END { for (f in may) if (!(f in called)) print "no check asks " f }' "$WORK/uses")
[ -z "$asked" ] || fail "$(head -n 8 <<< "$asked")"

# A pass hands its state along: its files have no variables, except those of the gradients' functions, which
# all rows share. (A function's own, NAME.NUMBER, keeps room or answers from call to call.)
variables=$(cd "$objects" && nm -A graph_passes/*.c.o function_passes/*.c.o | sed 's/:/ /' |
  awk '$3 ~ /^[bBC]$/ && $4 !~ /\.[0-9]+$/ && $1 !~ /^graph_passes\/(gradient_parts|gradients|scan_grad)\.c/ { print $1 " has the variable " $4 }')
[ -z "$variables" ] || fail "$(head -n 8 <<< "$variables")"

# Threads may ask for shardings and moves at once: nothing there is remembered from call to call but the
# compiler's own model.
variables=$(cd "$objects" && for source in $(grep '^sharding/' <<< "$sources"); do nm -A "$source.o"; done | sed 's/:/ /' |
  awk '$3 ~ /^[bBdDC]$/ && $1 != "sharding/cost_model.c.o" { print $1 " has the variable " $4 }')
[ -z "$variables" ] || fail "$(head -n 8 <<< "$variables")"

awk '{ print $1, NR }' gen/LAYERS > "$WORK/floors"
for file in gen/*/*.c gen/*/*.h; do
  folder=${file#gen/} folder=${folder%%/*}
  [ "$folder" != tools ] || continue
  while read -r included; do
    other=${included%%/*}
    case $file in
    *.c) [ "$included" = "$folder/$folder.h" ] || [ "$included" = ir/ops.h ] || [ "$included" = ir/element_functions.h ] || [ "$included" = ir/collectives.h ] || [ "$included" = ir/passes.h ] || fail "$file includes $included, not its folder's header" ;;
    *.h) awk -v a="$folder" -v b="$other" '{ floor[$1] = $2 } END { exit !(b in floor && floor[b] <= floor[a]) }' "$WORK/floors" ||
      fail "$file includes $included, of a folder that is not below it" ;;
    esac
  done < <(sed -n 's/^#include "\(.*\)"$/\1/p' "$file")
done

# ---- the runtime

# Includes go down in runtime/LAYERS. base/program.h has the types of each target's library.
upward=$(cd runtime && grep -r '^#include "[a-z_]*/' --include=*.[ch] --include=*.cu . | sed 's|^\./||; s|:#include "| |; s|".*||' |
  grep -vx 'base/program.h cuda/ranges.h\|base/program.h cpu/shared_memory/mpi.h' |
  awk 'NR == FNR { floor[$1] = NR; next }
    { a = $1; b = $2; sub("/[^/]*$", "", a); sub("/[^/]*$", "", b)
      if (!(a in floor && b in floor && floor[b] <= floor[a])) print "runtime/" $1 " includes " $2 ", of a folder that is not below it" }' LAYERS -)
[ -z "$upward" ] || fail "$(head -n 8 <<< "$upward")"

# No circle of its files, by the objects' symbols. What base/target.h declares, or several files define, is an interface.
"$TPGEN" plans/toy.lua -o "$WORK/library" --emit library > /dev/null
flags=(-std=c11 -D_GNU_SOURCE -DTPGEN_TORCH_ARCHIVE -O0 -fopenmp -march=native -Iruntime "-I$WORK/library"
  $(pkg-config --cflags jansson openblas minizip oniguruma) $(mpicc --showme:compile))
compile_of_runtime() { # FILE
  local way=()
  case $1 in
  runtime/cpu/onednn.c) return ;; # oneDNN may not be there
  runtime/cpu/shared_memory/beside_mpi.c) way=(-DTPGEN_MIXED) ;;
  runtime/cpu/shared_memory/*) way=(-DTPGEN_SHARED) ;;
  runtime/library/*) way=(-DTPGEN_LIBRARY) ;;
  esac
  gcc "${flags[@]}" "${way[@]}" -c "$1" -o "$WORK/objects/${1#runtime/}.o" || fail "$1 does not compile"
}
compiled=0
(cd runtime && find . -type d) | while read -r folder; do mkdir -p "$WORK/objects/$folder"; done
for source in $(find runtime -name '*.c' | LC_ALL=C sort); do beside "$WORK/compiled.$((compiled += 1))" compile_of_runtime "$source"; done
all_are_done
cat "$WORK"/compiled.*
(cd "$WORK/objects" && find . -name '*.o' | sed 's|^\./||' | LC_ALL=C sort | xargs nm -A) | sed 's/:/ /' |
  awk 'NR == FNR { interface[$1] = 1; next }
    $3 ~ /^[TDBRV]$/ { if ($4 in home) interface[$4] = 1; home[$4] = $1 } $2 == "U" { uses[$1 " " $3] }
    END { for (u in uses) { split(u, p, " "); if (home[p[2]] != "" && home[p[2]] != p[1] && !(p[2] in interface)) print p[1], home[p[2]], p[2] } }' \
    <(grep -o '\b[a-z_]*(' runtime/base/target.h | tr -d '(') - | LC_ALL=C sort -u > "$WORK/uses"
cut -d ' ' -f 1,2 "$WORK/uses" | LC_ALL=C sort -u > "$WORK/runtime_needs"
[ "$(wc -l < "$WORK/runtime_needs")" -gt 150 ] || fail "only $(wc -l < "$WORK/runtime_needs") needs were found in the runtime"
tsort "$WORK/runtime_needs" > /dev/null 2> "$WORK/circles" || true
[ ! -s "$WORK/circles" ] || fail "files of the runtime that need each other: $(head -n 4 "$WORK/circles" | sed 's/.*: //')"

finish "$(wc -l < "$WORK/needs") needs between $(cut -d ' ' -f 1 "$WORK/needs" | sort -u | wc -l) files, in no circle and all downward; the runtime: $(wc -l < "$WORK/runtime_needs")"
