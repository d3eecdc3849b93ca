#!/usr/bin/env bash
# The same plan gives the same bytes: 100 generations that differ in time zone, locale, home, directory, umask,
# size of the environment and, if run as root, user. Addresses vary by themselves.
. "$(dirname "$0")/../common.sh"

# A folder that any user can reach, with the compiler and the plans.
place=$(mktemp -d "${TMPDIR:-/tmp}/tpgen-determinism.XXXXXX")
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
cp "$TPGEN" "$place/tpgen"
zones=(UTC Asia/Tokyo America/New_York "" XYZ-13:45)
locales=(C C.UTF-8 de_DE.UTF-8 tr_TR.UTF-8 POSIX)
masks=(022 077 027 002 000)

for i in $(seq 100); do
  directory=$place/$i$(printf '%*s' $((i % 7)) '' | tr ' ' d)/x
  mkdir -p "$directory"
  cp -r plans "$directory/plans"
  user=()
  if [ "$(id -u)" -eq 0 ] && [ $((i % 2)) -eq 0 ]; then
    user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chown -R 65534:65534 "$directory"
  fi
  out=(out ./out "$directory/out" ../x/out out/)
  target=cpu
  [ "$i" -le 50 ] || target=cuda
  (
    cd "$directory"
    umask "${masks[i % 5]}"
    "${user[@]}" env -i PATH="$PATH" TZ="${zones[i % 5]}" LC_ALL="${locales[(i / 5) % 5]}" \
      HOME="/home/$i" PADDING="$(printf '%*s' $((i * 37)) '')" \
      "$place/tpgen" plans/toy.lua -o "${out[(i / 3) % 5]}" --target $target
  ) || fail "generation $i: tpgen ended with status $?"
  hash_of "$directory/out" >> "$WORK/$target.hashes"
  [ -x "$directory/out/run.sh" ] || fail "generation $i: run.sh cannot be run"
done
for target in cpu cuda; do
  n=$(sort -u "$WORK/$target.hashes" | wc -l)
  [ "$n" -eq 1 ] || fail "$target: $n different outputs"
done

# A plan named by an absolute path does not bring that path into the output.
"$TPGEN" "$root/plans/toy.lua" -o "$WORK/absolute" || fail "an absolute path: status $?"
if grep -rlF -e "$root" -e "$WORK" "$WORK/absolute"; then fail "an absolute path in the output"; fi

# A second generation into the same folder changes nothing, and --check says so.
generate again
find "$WORK/again" -type f -printf '%p %T@\n' | sort > "$WORK/before"
generate again
find "$WORK/again" -type f -printf '%p %T@\n' | sort > "$WORK/after"
cmp "$WORK/before" "$WORK/after" || fail "files were written again that did not change"
generate again --check
echo >> "$WORK/again/step.c"
status=0
"$TPGEN" plans/toy.lua -o "$WORK/again" --check > "$WORK/check" 2>&1 || status=$?
[ $status -eq 1 ] || fail "--check ended with status $status on stale output, instead of 1"
finish "100 generations, one hash for each target"
