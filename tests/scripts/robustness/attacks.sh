#!/usr/bin/env bash
# A plan cannot leave its sandbox: each of attacks/*.lua, and those made here, ends within 3 seconds of processor
# time (40 by the clock: other tests run beside this one) and 512 MiB
# with a message that begins with the plan's path (or is harmless), without a signal, and with nothing changed
# outside the output. leak_* must print the same twice.
#
# `tests/scripts/robustness/attacks.sh NAME...` runs only those.
. "$(dirname "$0")/../common.sh"

place=$WORK/place
mkdir -p "$place" "$WORK/made"
echo '{"secret": 1}' > "$WORK/secret.json"
ln -s ../secret.json "$place/link.json"

# Long attacks.
repeat() { awk -v s="$1" -v n="$2" 'BEGIN { for (i = 0; i < n; i++) printf "%s", s }'; }
made=$WORK/made
{ echo -n "return "; repeat "(" 300000; echo -n 1; repeat ")" 300000; } > "$made/deep_parentheses.lua"
{ echo -n "return "; repeat "{" 300000; repeat "}" 300000; } > "$made/deep_tables.lua"
{ repeat "do " 300000; repeat "end " 300000; } > "$made/deep_blocks.lua"
{ repeat "function f() " 100000; repeat "end " 100000; } > "$made/deep_functions.lua"
{ echo -n "local x = 1"; repeat " + 1" 2000000; echo " error(x)"; } > "$made/long_line.lua"
{ echo -n "error('"; repeat x 10000000; echo "')"; } > "$made/long_string.lua"
{ repeat "local x = 1 " 300; echo "error(x)"; } > "$made/many_locals.lua"
{ repeat "x = {1, 2, 3} -- and so on, and on, and on, as long as it goes
" 1300000; } > "$made/sixty_four_megabytes.lua"
printf 'error("a\0b")\0\0 return \0' > "$made/zero_bytes.lua"
printf '\033LuaT\000\031\223\r\n\032\n\004\010\010xV\000\000\000\000\000\000\000\000\000\000\000(w@\001' > "$made/bytecode_plan.lua"
printf '\377\376return 1' > "$made/byte_order_mark.lua"
printf '#!/bin/sh\nerror("\r\n")\r\n' > "$made/first_line.lua"
: > "$made/empty.lua"

# Expressions, one a line, that must have no value, or one that counts as false.
while read -r expression; do
  n=$((${n:-0} + 1))
  printf 'local got = %s\nif got then error("ESCAPED: " .. type(got)) end\nerror("nothing")\n' \
    "$expression" > "$made/refused_$n.lua"
done < tests/attacks/refused.txt

# run NAME: writes its status, milliseconds, KiB and milliseconds of processor time to $report, its messages to
# $WORK/messages.
run() {
  local args
  read -ra args <<< "$(plan_args "$place/$1.lua" | tr -d '\0')"
  (cd "$place" && HOME=$place TMPDIR=$place \
    "$TOOLS/run_measured" 40 "$WORK/report" "$TPGEN" "$1.lua" "${args[@]}" -o out 2>&1 > /dev/null < /dev/null) |
    { head -c 100000; tail -c 100000; } > "$WORK/messages"
  read -r status milliseconds kib worked < "$WORK/report"
}

# A failed attack must not have changed these: everything next to the output.
surroundings() {
  (cd "$WORK" && find . -path ./place/out -prune -o -name messages -o -name report -o \
    -type d -printf '%p\n' -o -printf '%p %m %s %T@\n') | sort
}

n=0
for attack in tests/attacks/*.lua "$made"/*.lua; do
  name=$(basename "$attack" .lua)
  [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
  n=$((n + 1))
  rm -rf "$place/out"
  cp "$attack" "$place/$name.lua"
  touch "$WORK/messages" "$WORK/report"
  before=$(surroundings)
  run "$name"
  [ "$before" = "$(surroundings)" ] || fail "$name: something beside the output changed"
  case $status in
  0) [ -d "$place/out" ] || fail "$name: status 0 and no output" ;;
  1)
    grep -aq "^$name\.lua:" "$WORK/messages" || fail "$name: no message that begins with the plan"
    [ ! -e "$place/out" ] || fail "$name: refused, and left output"
    ;;
  124) fail "$name: still ran after 40 seconds" ;;
  *) fail "$name: ended with status $status" ;;
  esac
  [ "$worked" -le 3000 ] || fail "$name: took $worked ms of processor time"
  [ "$kib" -le $((512 * 1024)) ] || fail "$name: took $kib KiB"
  if grep -a "ESCAPED" "$WORK/messages"; then fail "$name: succeeded"; fi
  if [ "$(wc -c < "$WORK/messages")" -gt 10000 ] && [ "$name" != print_flood ]; then
    fail "$name: its message is as long as a book"
  fi
  if LC_ALL=C grep -aq '[^ -~]' "$WORK/messages"; then fail "$name: its message would move a terminal"; fi
  case $name in leak_*)
    cp "$WORK/messages" "$WORK/first"
    rm -rf "$place/out"
    run "$name"
    cmp "$WORK/first" "$WORK/messages" || fail "$name: another message in another process"
    ;;
  esac
  printf '  %s in %4d ms, %3d MiB: %.120s\n' "$status" "$milliseconds" $((kib / 1024)) \
    "$(grep -am 1 "^$name" "$WORK/messages")"
  rm -rf "${place:?}/$name.lua"
done
[ "$n" -ge 20 ] || [ $# -gt 0 ] || fail "only $n attacks"
finish "$n attacks, none of which got anywhere"
