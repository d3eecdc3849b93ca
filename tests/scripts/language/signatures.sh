#!/usr/bin/env bash
# Functions, methods and modules take PyTorch's arguments: each that PyTorch's signatures have
# (tests/golden/signatures) is given by its name and at its place, and the two make the same graph; so do all
# required ones by name and by place, and a default that is given and one that is left out. What is not taken is
# an error that names the argument: signatures/refused.expected has all of these.
#   tests/scripts/language/signatures.sh --update   writes that file
#   SIGNATURES=softmax             these functions alone (an extended regular expression)
. "$(dirname "$0")/../common.sh"
[ "${1:-}" != --update ] || update=yes

# Lines `FUNCTION ARGUMENT FORM CALL`, parted by tabs: form is required, names, name, place or default.
# samples.tsv: function or *, argument, a value, and whether the argument is needed here and not in PyTorch.
awk -F '\t' -v OFS='\t' '
  FILENAME ~ /samples/ { sample[$1, $2] = $3; needed[$1, $2] = $4; next }
  function value(argument) {
    if ((name "." overload, argument) in sample) return sample[name "." overload, argument]
    if ((name, argument) in sample) return sample[name, argument]
    if (("*", argument) in sample) return sample["*", argument]
    print "no sample for " argument " of " name > "/dev/stderr"
    return "nil"
  }
  function call(arguments) {
    if (kind == "functions") return "return tried(function(t) return F." name "(" arguments ") end)"
    if (kind == "methods") return "return tried(function(t) return " bracket(value("self")) ":" name "(" arguments ") end)"
    return "return tried(nil, function() return nn." name "(" arguments ") end, function(t) return " value("input") " end)"
  }
  function bracket(text) { return text ~ /^[a-z.]+$/ ? text : "(" text ")" }
  function joined(a, b) { return a == "" ? b : b == "" ? a : a ", " b }
  function key(argument) { return argument == "end" ? "[\"end\"] = " : argument " = " }
  function emit(argument, form, arguments) {
    print (kind == "methods" ? "x:" : kind == "modules" ? "nn." : "F.") name "." overload, argument, form, call(arguments)
  }
  function flush(   i, required, names, before, place) {
    if (n == 0) return
    for (i = 1; i <= n; i++)
      if (how[i] == "required") {
        required = joined(required, value(argument[i]))
        names = joined(names, key(argument[i]) value(argument[i]))
      }
    emit("-", "required", required)
    if (names != "") emit("-", "names", "{" names "}")
    before = required
    place = 1
    for (i = 1; i <= n; i++) {
      if (how[i] == "rest" || how[i] == "required") continue
      emit(argument[i], "name", joined(required, "{" key(argument[i]) value(argument[i]) "}"))
      if (default[i] != "?" && default[i] != "nil")
        emit(argument[i], "default", joined(required, "{" key(argument[i]) default[i] "}"))
      if (how[i] == "keyword") continue
      if (place) emit(argument[i], "place", joined(before, value(argument[i])))
      if (default[i] == "?") place = 0
      before = joined(before, default[i])
    }
    n = 0
  }
  {
    split(FILENAME, path, "/")
    table = path[length(path)]
    sub(/\.tsv$/, "", table)
    if ($1 != name || $2 != overload || table != kind) flush()
    name = $1; overload = $2; kind = table
    n++
    argument[n] = $4; how[n] = $5; default[n] = $6
    if (needed[name, $4]) how[n] = "required"
  }
  END { flush() }
' tests/signatures/samples.tsv "$golden"/signatures/{functions,methods,modules}.tsv 2> "$WORK/missing" |
  grep -E "^[^	]*(${SIGNATURES:-.*})" > "$WORK/calls" || true
[ ! -s "$WORK/missing" ] || fail "$(sort -u "$WORK/missing")"

# Each call in a plan of its own. What becomes of it: a hash of the graph, or the error without its place.
count=$(wc -l < "$WORK/calls")
awk -F '\t' -v to="$WORK" '
  NR == FNR { frame = frame $0 "\n"; next }
  { plan = to "/" FNR ".lua"; printf "%s%s\n", frame, $4 > plan; close(plan) }
' tests/signatures/plan.lua "$WORK/calls"
workers=$(nproc)
for ((worker = 0; worker < workers; worker++)); do
  for ((i = worker + 1; i <= count; i += workers)); do
    "$TPGEN" "$WORK/$i.lua" --dump=lua > "$WORK/$i.out" 2> "$WORK/$i.err" || : > "$WORK/$i.out"
  done &
done
wait
# The first line names the plan.
(cd "$WORK" && sed -si 1d ./*.out && seq -f %.0f.out "$count" | xargs sha256sum) | cut -c1-16 > "$WORK/hashes"
i=0
while read -r hash; do
  i=$((i + 1))
  if [ ! -s "$WORK/$i.out" ]; then
    read -r error < "$WORK/$i.err" || true
    hash=${error:+error: ${error##*: error: }}
  fi
  printf '%s\n' "${hash:-no message}"
done < "$WORK/hashes" > "$WORK/results"
rm "$WORK"/*.lua "$WORK"/*.out "$WORK"/*.err
cut -f1-3 "$WORK/calls" | paste - "$WORK/results" > "$WORK/table"

# A refused argument is named by its error, wherever it stands; the others agree.
awk -F '\t' '
  function named(text, word) { return index(text, word) > 0 }
  {
    error = $4 ~ /^error: /
    if ($3 == "required") { whole = $4; wrong = error; if (error) print $1 ": " $4; next }
    if (wrong) next
    if ($3 == "names" && $4 != whole) print "FAILED " $1 ": all by name: " $4
    if ($3 == "default" && $4 != whole) print "FAILED " $1 ": the default of " $2 " changes something: " $4
    if ($3 == "name") {
      by_name = $4
      if (error) print $1 " " $2 ": " $4
      if (error && !named($4, $2)) print "FAILED " $1 ": the error does not name " $2 ": " $4
    }
    if ($3 == "place" && $4 != by_name && !(error && by_name ~ /^error: /))
      print "FAILED " $1 ": " $2 " at its place and by its name: " $4 " and " by_name
    if ($3 == "place" && error && !named($4, $2)) print "FAILED " $1 ": the error does not name " $2 ": " $4
  }
' "$WORK/table" > "$WORK/found"
while IFS= read -r line; do fail "${line#FAILED }"; done < <(grep '^FAILED' "$WORK/found" || true)
{ grep -v '^FAILED' "$WORK/found" || true; } | LC_ALL=C sort -u > "$WORK/refused"
expected=tests/signatures/refused.expected
if [ "${update:-}" ]; then
  cp "$WORK/refused" "$expected"
elif [ -z "${SIGNATURES:-}" ]; then
  diff "$expected" "$WORK/refused" || fail "other arguments are refused than $expected says"
fi

# What tpgen offers beside PyTorch's has no signature there.
"$TPGEN" tests/signatures/names.lua -o "$WORK/none" 2> /dev/null | grep '^[Fn]' | LC_ALL=C sort > "$WORK/offered" || true
cut -f1 "$golden"/signatures/functions.tsv | sed 's/^/F./' > "$WORK/known"
cut -f1 "$golden"/signatures/methods.tsv | sed 's/^/F./' >> "$WORK/known"
cut -f1 "$golden"/signatures/modules.tsv | sed 's/^/nn./' >> "$WORK/known"
LC_ALL=C sort -u "$WORK/known" -o "$WORK/known"
own=tests/signatures/own.expected
if [ "${update:-}" ]; then
  LC_ALL=C comm -23 "$WORK/offered" "$WORK/known" > "$own"
else
  LC_ALL=C comm -23 "$WORK/offered" "$WORK/known" | diff "$own" - ||
    fail "names without a signature: tests/golden/signatures/make.py, or $own"
fi
finish "$count calls, $(wc -l < "$WORK/refused") refusals"
