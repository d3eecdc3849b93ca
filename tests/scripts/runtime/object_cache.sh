#!/usr/bin/env bash
# Objects of the runtime are kept for other programs (runtime/start/object_cache.sh, without ccache): a second program
# compiles none of them, and runs as the first one. Another text, header, flag or compiler, a warning, an empty object and a
# compiler that is exchanged during a build are compiled anew; builds at the same time, and the limit of size.
. "$(dirname "$0")/../common.sh"
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER CC
export XDG_CACHE_HOME=$WORK/cache
cached=$root/runtime/start/object_cache.sh
kept() { find "$XDG_CACHE_HOME" -name '*.o' | wc -l; }

# A compiler that notes which files it compiles.
mkdir "$WORK/bin"
cat > "$WORK/bin/noting" << END
#!/usr/bin/env bash
[[ " \$* " != *" -c "* || " \$* " == *" -E "* || " \$* " == *" -### "* ]] || printf '%s\n' "\${@: -1}" >> "$WORK/compiled"
exec gcc "\$@"
END
chmod +x "$WORK/bin/noting"
compiles() { # N WHAT: how often the compiler ran since the last call
  local n=0
  [ ! -e "$WORK/compiled" ] || n=$(wc -l < "$WORK/compiled")
  rm -f "$WORK/compiled"
  [ "$n" -eq "$1" ] || fail "$2: the compiler ran $n times, not $1"
}

# ---- one file ----------------------------------------------------------------------------------

cc=$WORK/bin/noting
mkdir "$WORK/one" "$WORK/two"
object() { # FOLDER FLAGS...
  (cd "$WORK/$1" && bash "$cached" "$WORK/state" "$cc" -I. "-ffile-prefix-map=$WORK/$1/=" -MD -MT a.o -MF a.o.d "${@:2}" -o a.o -c "$WORK/$1/a.c") || fail "no object in $1"
}
begins() { bash "$cached" --begin "$WORK/state" "$cc" "$@"; }
for folder in one two; do
  echo 'const int of_header = 1;' > "$WORK/$folder/a.h"
  printf '#include "a.h"\nconst char *name(void) { return __FILE__; }\n' > "$WORK/$folder/a.c"
done
begins
object one
compiles 1 "the first time"
object two
compiles 0 "another folder"
cmp "$WORK/one/a.o" "$WORK/two/a.o" || fail "another object"
grep -q 'a\.h' "$WORK/two/a.o.d" || fail "the object of the cache has no dependences"
object one -O1
compiles 1 "another flag"
echo 'const int of_header = 2;' > "$WORK/two/a.h"
object two
compiles 1 "another header"
object one -DUNUSED
compiles 0 "a definition that nothing uses"
object one -g
object one -g
compiles 2 "debug information"
sed -i 's/__FILE__/__DATE__ __TIME__ __FILE__/' "$WORK/two/a.c"
object two
sleep 1
object two
compiles 2 "the time of a build"
printf 'int f(void) { int unused; return 0; }\n' > "$WORK/two/a.c"
for time in 1 2; do object two -Wall 2>&1 | finds "unused" || fail "a warning is not shown, time $time"; done
compiles 2 "warnings"
printf 'int f(void) { return }\n' > "$WORK/two/a.c"
! (cd "$WORK/two" && bash "$cached" "$WORK/state" "$cc" -o a.o -c a.c > "$WORK/said" 2>&1) && grep -q "error: expected" "$WORK/said" || fail "an error is not the compiler's"
rm -f "$WORK/compiled"
find "$XDG_CACHE_HOME" -name '*.o' -exec truncate -s 0 {} +
object one
compiles 1 "an empty object"
object one
compiles 0 "after an empty object"
echo '# another one' >> "$cc"
object one
compiles 1 "a compiler that is exchanged during the build"
begins
object one
compiles 1 "another compiler"
begins -march=x86-64-v3
object one
compiles 1 "what -march says"
begins
chmod a-w "$XDG_CACHE_HOME/tpgen/objects"
XDG_CACHE_HOME=relative object one
HOME='' XDG_CACHE_HOME='' object one
compiles 2 "no cache"
chmod u+w "$XDG_CACHE_HOME/tpgen/objects"

# The limit: those that were used last stay.
rm -rf "$XDG_CACHE_HOME"
for i in {1..20}; do
  head -c 200000 /dev/zero | tr '\0' 'x' | sed "s/^/const char x[] = \"$i/; s/\$/\";/" > "$WORK/one/a.c"
  object one
  touch -d "$((1000 - i)) seconds ago" "$(find "$XDG_CACHE_HOME" -name '*.o' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)"
done
rm -f "$WORK/compiled"
TPGEN_OBJECT_CACHE_MIB=1 begins
[ "$(du -sk --apparent-size "$XDG_CACHE_HOME/tpgen/objects" | cut -f 1)" -le 1100 ] && [ "$(kept)" -eq 5 ] || fail "the limit: $(kept) objects"
object one
compiles 0 "the object that was used last"

# ---- programs ----------------------------------------------------------------------------------

rm -rf "$XDG_CACHE_HOME"
for one in a b c; do "$TPGEN" plans/toy.lua -o "$WORK/$one" -D tp=2 || fail "no program $one"; done
builds() { # NAME: without run.sh, as anybody does
  CC=$cc cmake -S "$WORK/$1" -B "$WORK/$1/build" -DTPGEN_TRANSPORT=shared -DTPGEN_CCACHE=TPGEN_CCACHE-NOTFOUND -DCMAKE_C_FLAGS=-O0 "${@:2}" > "$WORK/$1.log" 2>&1 &&
    cmake --build "$WORK/$1/build" --parallel 2 --target ranks >> "$WORK/$1.log" 2>&1 || { tail -n 20 "$WORK/$1.log"; fail "$1 does not build"; }
}
builds a &
builds b
wait
grep -c '/runtime/' "$WORK/compiled" > "$WORK/count" || true
all=$(kept)
[ "$all" -ge 30 ] && [ "$(cat "$WORK/count")" -ge "$all" ] || fail "two builds at once: $all objects of $(cat "$WORK/count") calls"
[ -z "$(find "$XDG_CACHE_HOME" -name 'new.*')" ] || fail "two builds at once leave pieces"
rm "$WORK/compiled"
builds c
! grep '/runtime/' "$WORK/compiled" || fail "the third program compiles parts of the runtime"
cmp <(nm "$WORK/a/build/rank0" | cut -c 18-) <(nm "$WORK/c/build/rank0" | cut -c 18-) || fail "other symbols"
cmake -S "$WORK/c" -B "$WORK/c/off" -DTPGEN_TRANSPORT=shared -DTPGEN_OBJECT_CACHE=OFF > "$WORK/c.log" 2>&1 && ! grep -rq 'object_cache.sh\|ccache' "$WORK"/c/off/CMakeFiles/runtime.dir/build.make ||
  { cat "$WORK/c.log"; fail "the cache is not turned off"; }
finish "a program takes $all objects of the runtime from the cache, and nothing stale"
