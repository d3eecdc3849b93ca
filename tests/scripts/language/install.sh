#!/usr/bin/env bash
# What `cmake --install`, the Debian package and the wheel have: each in a folder of its own, without this one. The manual page has
# the options of --help, and the version stands in one place.
. "$(dirname "$0")/../common.sh"
build=$(dirname "$TPGEN")
version=$(sed -n 's/^project(tpgen VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ "$("$TPGEN" --version)" = "tpgen $version" ] || fail "--version says $("$TPGEN" --version), CMakeLists.txt $version"
! grep -rqF "$version" gen --include='*.[ch]' || fail "the version stands in gen, too"

options() { grep -oE -- '(^|[^-a-zA-Z])--?[a-zA-Z][-a-z]*' | grep -oE -- '--?[a-zA-Z][-a-z]*' | sort -u; }
"$TPGEN" --help | options > "$WORK/help"
sed 's/\\-/-/g; s/\\f.//g' docs/tpgen.1 | options > "$WORK/page"
diff "$WORK/help" "$WORK/page" || fail "the manual page has other options than --help"
! command -v man > /dev/null || man --warnings -l docs/tpgen.1 2>&1 > /dev/null | grep . && fail "the manual page has faults"

# works PREFIX: its tpgen writes the toy of its plans.
works() {
  local at=$1
  [ "$("$at/bin/tpgen" --version)" = "tpgen $version" ] || fail "$at has no tpgen $version"
  (cd "$WORK" && env -i PATH=/usr/bin:/bin "$at/bin/tpgen" "$at/share/tpgen/plans/llama3.lua" -D tp=2 -o "$at.out") || fail "$at: the plans do not work"
  [ -x "$at.out/run.sh" ] && [ -e "$at/share/tpgen/plans/plan.schema.json" ] || fail "$at lacks something"
  "$TPGEN" --reference=types | cmp - "$at/share/tpgen/types/tpgen.lua" || fail "$at has other types for editors"
}

cmake --install "$build" --prefix "$WORK/prefix" > "$WORK/log" 2>&1 || { cat "$WORK/log"; fail "cmake --install"; }
works "$WORK/prefix"
[ -e "$WORK/prefix/share/man/man1/tpgen.1" ] || fail "no manual page is installed"

if command -v dpkg-deb > /dev/null; then
  cpack -G DEB -B "$WORK/deb" --config "$build/CPackConfig.cmake" > "$WORK/log" 2>&1 || { cat "$WORK/log"; fail "cpack"; }
  dpkg-deb -x "$WORK"/deb/tpgen_*.deb "$WORK/root" && dpkg-deb -I "$WORK"/deb/tpgen_*.deb | finds 'Depends:.*liblua' || fail "the package"
  mkdir -p "$WORK/unpacked" && cp -r "$WORK/root/usr/." "$WORK/unpacked"
  works "$WORK/unpacked"
fi

if [ -e /usr/lib/*/liblua5.4.a ]; then
  cmake --build "$build" --target wheel > "$WORK/log" 2>&1 || { tail "$WORK/log"; fail "the wheel"; }
  [ -z "$(ldd "$build/tpgen_static" | grep -vE 'linux-vdso|lib[cm]\.so|ld-linux')" ] || fail "tpgen_static needs $(ldd "$build/tpgen_static")"
  python3 -m venv "$WORK/venv" > "$WORK/log" 2>&1 && "$WORK/venv/bin/pip" install --no-index "$build"/tpgen-*.whl > "$WORK/log" 2>&1 ||
    { mkdir -p "$WORK/venv" && python3 - "$build"/tpgen-*.whl "$WORK/venv" << 'END'; } || { cat "$WORK/log"; fail "the wheel does not install"; }
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        place = name.split(".data/", 1)[-1].replace("scripts/", "bin/", 1).replace("data/share", "share", 1)
        path = os.path.join(sys.argv[2], place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "wb").write(wheel.read(name))
        if place.startswith("bin/"): os.chmod(path, 0o755)
END
  works "$WORK/venv"
fi
finish "version $version: a prefix, a package, a wheel"
