#!/usr/bin/env bash
# Every word of a row is tested: rows of gen/ir/ops.h, row_ops.h, matrix_ops.h, generate_ops.h and float8_ops.h are broken on purpose,
# one at a time, and the exhaustive tests must notice: test_rule, that a sharding which a row allows is wrong, or
# test_offers, that a correct sharding is not offered. unit.rule and unit.offers show that both pass for the rows as they are.
. "$(dirname "$0")/../common.sh"

# A row, the text to replace everywhere in it, and the new text.
mutations='
matmul             "a|b"          "ab"
matmul             "a|b"          "a"
add                "ab|           "a|b|
sub                "ab|           "a|
maximum            "ab:max|       "ab|
minimum            |a:max         |a:min|ab
pow                ""             "a"
exp                "a:max|a:min"  "a"
log                ""             "a:max"
sigmoid_back       "a"            "b"
where              "bc|           "b|c|
cast               "a|            "
dropout            @              -
tril               y@x@           yx
triu               x@             x@!
rotary             d!             d
rotary_pairs       c!             c
sum                "a"            "a:max"
amax               :max"          "
amax_abs           :max"          "
expand             "a"            ""
index              D@             D
view               "a|            "
cat                D!             D
narrow             D!             D
pad                E!             E
gather             D@             D
gather             D@             D@!
scatter_add        D@             D
scatter            I!             I
index_select       D@             D
embedding          v@d            vd
embedding          v@d            d@v
embedding_back     v@d            v@!d
cumsum             D!             D
cummax             D!             D
argsort            D!             D
eigh               b!             b
svd                b!             b
argmax             D!             D
attention          (gr)           (rg)
attention          k!             k
attention          q@             q
attention_back     k@             k
attention_back     "a"            "b"
conv2d             (gc)           (cg)
conv2d             y!             y
conv2d_back_input  (go)           (og)
conv2d_back_weight "a|b"          "ab"
max_pool2d         "a:max"        "a"
max_pool2d_back    x!             x
count_places       e@             e
dispatch           e@             e
dispatch           "a|c"          "ac"
combine            e@             e
combine            "a|c"          "ac"
combine_back       e@             e
combine_back       "a|c"          "ac"
grouped_linear     "a|b"          "ab"
grouped_linear_back_input  "a|b"  "ab"
grouped_linear_back_weight "a|b"  "ab"
grouped_linear_back_weight ->end  ->dne
'

cc=${CC:-cc}
passes=$(dirname "$TPGEN")/libtpgen_passes.a
read -ra flags <<< "-std=c11 -D_GNU_SOURCE -DTPGEN_VERSION=\"\" $(pkg-config --cflags cmocka)"
read -ra libraries <<< "$(pkg-config --libs cmocka jansson) -lm"

# Only ops_table.c contains the table of rows: its order is the enumeration that the other files share.
for name in rule offers; do
  "$cc" "${flags[@]}" -O1 -Igen -c "tests/unit/test_$name.c" -o "$WORK/$name.o"
done
mkdir "$WORK/ir"
cp gen/ir/ops_table.c "$WORK"
compile_rows() { "$cc" "${flags[@]}" -I"$WORK" -Igen -c "$WORK/ops_table.c" -o "$WORK/ops_table.o"; }

# break_row ROW FROM TO: the row changed, in files of $WORK/ir that are those of gen/ir else; false if FROM is not in it.
# A "-" stands for nothing.
break_row() {
  local done=1 file
  for file in ops.h row_ops.h matrix_ops.h generate_ops.h float8_ops.h; do ! break_row_of $file "$@" || done=0; done
  return $done
}
break_row_of() {
  local file=$1
  shift
  awk -v row="OP($1," -v from="$2" -v to="${3/#-/}" '
    index($0, row) == 1 { inside = 1 }
    inside {
      line = ""
      while (at = index($0, from)) {
        line = line substr($0, 1, at - 1) to
        $0 = substr($0, at + length(from))
        done = 1
      }
      inside = !/\)$/
      $0 = line $0
    }
    { print }
    END { exit !done }' "gen/ir/$file" > "$WORK/ir/$file"
}

# The test that notices the broken row.
noticed_by() {
  for name in rule offers; do
    "$cc" -o "$WORK/$name" "$WORK/$name.o" "$WORK/ops_table.o" "$passes" "${libraries[@]}" || exit 1
    (ulimit -t 120 && TPGEN_ROWS=$1 exec "$WORK/$name") > "$WORK/$name.log" 2>&1 || {
      echo "$name"
      return
    }
  done
}

count=0
while read -r row from to; do
  [ -n "$row" ] || continue
  count=$((count + 1))
  break_row "$row" "$from" "$to" || {
    fail "$row: there is no $from"
    continue
  }
  compile_rows
  noticed=$(noticed_by "$row")
  printf '  %-20s %-18s for %-18s %s\n' "$row" "$to" "$from" "${noticed:+test_$noticed}"
  [ -n "$noticed" ] || fail "$row: $to for $from goes unnoticed"
done <<< "$mutations"
finish "$count broken rows, all noticed"
