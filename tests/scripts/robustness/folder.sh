#!/usr/bin/env bash
# The folder of -o: files that are not tpgen's stay, obstacles are not written through, several tpgen take
# turns, and a mixture of two plans is neither built nor run.
. "$(dirname "$0")/../common.sh"

cp -r plans "$WORK"
cd "$WORK"
toy=plans/toy.lua
# tpgen ARGUMENTS...: must not hang.
tpgen() { timeout 20 "$TPGEN" "$@"; }
# refused WORDS ARGUMENTS...: status 3, and a message with these words.
refused() {
  local words=$1 status=0
  shift
  tpgen "$@" > said 2>&1 || status=$?
  [ $status -eq 3 ] && grep -qF -- "$words" said || fail "$*: status $status: $(cat said)"
}
# A state: everything in it, with the times of the writes.
state() { find "$1" -printf '%p %y %i %T@ %l\n' | sort | cksum; }

# ---- whatever leads to the folder; what fails leaves none of it
mkdir real && ln -s real link
tpgen $toy -o deep/er/still/ && [ -x deep/er/still/run.sh ] || fail "parents are not made"
tpgen $toy -o link && [ -L link ] && [ -x real/run.sh ] || fail "a link to a folder"
(mkdir here && cd here && tpgen ../$toy -o . && inode=$(stat -c %i .) &&
  tpgen ../$toy -o . -D tp=3 && [ "$(stat -c %i "$PWD")" = "$inode" ] && ls rank2.c > /dev/null) ||
  fail "the folder in which it runs"
(ulimit -f 2; refused "cannot write none/at/all/" $toy -o none/at/all)
[ ! -e none ] || fail "folders are left where nothing could be written"
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
if [ "$(id -u)" -eq 0 ] && as_nobody test -r "$PWD/$toy"; then # root writes everywhere
  mkdir -m 755 closed && mkdir -m 777 closed/open
  cp "$TPGEN" closed/tpgen
  for tp in 2 3; do
    as_nobody closed/tpgen $toy -o closed/open -D tp=$tp || fail "where only the folder can be written"
  done
  status=0
  as_nobody closed/tpgen $toy -o closed/other > said 2>&1 || status=$?
  [ $status -eq 3 ] && grep -q "closed/other" said || fail "where nothing can be written: $(cat said)"
fi

# ---- what somebody else put there
tpgen $toy -o out -D tp=3
echo mine | tee out/rank7.c out/kernels12.h out/notes.txt out/runtime/mine.h > mine
mkdir -p out/build/inner out/checkpoint
echo mine > out/build/inner/object
echo "// changed" >> out/rank2.c
before=$(find out/build out/rank7.c out/kernels12.h out/runtime/mine.h -printf '%p %i %T@ ')
runtime=$(find out/runtime -type f ! -name mine.h -printf '%p %i %T@ ' | sort)
tpgen $toy -o out -D tp=2
[ "$(find out/build out/rank7.c out/kernels12.h out/runtime/mine.h -printf '%p %i %T@ ')" = "$before" ] ||
  fail "a file that is not tpgen's is another one"
[ "$(find out/runtime -type f ! -name mine.h -printf '%p %i %T@ ' | sort)" = "$runtime" ] ||
  fail "an unchanged file was written"
[ ! -e out/step_1.c ] || fail "a file of tp=3 is left"
[ "$(tail -n 1 out/rank2.c)" = "// changed" ] || fail "a file that somebody changed is gone"
tpgen $toy -o out -D tp=2 --target cuda
[ ! -e out/runtime/cpu/cpu.c ] && [ ! -e out/step.c ] && [ -e out/runtime/mine.h ] || fail "cpu to cuda: $(ls out)"
for name in CMakeLists.txt files.txt runtime/start/main.c; do
  mkdir -p "$(dirname theirs/$name)"
  echo "somebody's" > theirs/$name
  before=$(state theirs)
  refused "theirs/$name" $toy -o theirs
  [ "$(state theirs)" = "$before" ] || fail "$name of somebody's: something has changed"
  rm -r theirs
done

# ---- what stands in the way
echo victim > victim
mkdir victims
for name in step.c files.txt run.sh runtime .tpgen-new; do
  for kind in link fifo folder; do
    rm -rf out
    tpgen $toy -o out
    rm -rf out/$name
    case $kind in
    link) ln -s ../victim out/$name ;;
    fifo) mkfifo out/$name ;;
    folder) mkdir -p out/$name/of/somebodys && touch out/$name/of/somebodys/own ;;
    esac
    before=$(state out)
    case $name-$kind in
    .tpgen-new-* | runtime-folder) # its own, and is taken away; its own, and is filled
      tpgen $toy -o out -D lr=0.5 || fail "$name, a $kind: status $?"
      ;;
    *)
      refused "out/$name" $toy -o out -D lr=0.5
      [ "$(state out)" = "$before" ] || fail "$name, a $kind: something has changed"
      ;;
    esac
  done
done
rm -rf out
tpgen $toy -o out && rm -r out/runtime && ln -s ../victims out/runtime
refused "out/runtime" $toy -o out -D lr=0.5
[ "$(cat victim)" = victim ] && [ -z "$(ls victims)" ] || fail "something was written through a link"

# ---- an error says that the program is the old one
rm -rf out
tpgen $toy -o out
before=$(state out)
tpgen $toy -o out -D tp=none > said 2>&1 && fail "a plan with an error is taken"
grep -qx "tpgen: out still holds the program of before" said || fail "does not say what out/ holds: $(cat said)"
[ "$(state out)" = "$before" ] || fail "an error changed something"
tpgen $toy -o none -D tp=none > said 2>&1 && fail "a plan with an error is taken"
[ "$(wc -l < said)" -eq 1 ] || fail "more than one line where there was no program: $(cat said)"

# ---- several at once: each ends with 0, and one of them is there, whole
for lr in 0.1 0.2 0.3; do tpgen $toy -o only$lr -D lr=$lr -D tp=${lr#0.}; done
for round in $(seq "${ROUNDS:-15}"); do
  pids=()
  [ $((round % 3)) -gt 0 ] || rm -rf out
  for lr in 0.1 0.2 0.3; do
    tpgen $toy -o out -D lr=$lr -D tp=${lr#0.} &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || fail "round $round: a tpgen ended with status $?"; done
  same=0
  for lr in 0.1 0.2 0.3; do diff -r out only$lr > /dev/null && same=$((same + 1)); done
  [ $same -eq 1 ] || fail "round $round: a mixture"
done
(flock 9; sleep 0.5) 9< out &
sleep 0.1
tpgen $toy -o out -D tp=1 || fail "does not wait for a lock"
wait

# ---- what is of two plans
rm -rf a b
tpgen $toy -o a -D lr=0.05
tpgen $toy -o b -D lr=0.5
export CMAKE_ARGS="-DCMAKE_C_FLAGS=-O0"
a/run.sh --steps 1 > said 2>&1 || fail "a/run.sh: $(cat said)"
# mixed FILE WORDS: a with b's FILE.
mixed() {
  cp a/"$1" kept
  cp b/"$1" a/"$1"
  touch a/"$1"
  a/run.sh --steps 1 > said 2>&1 && fail "$1 of another plan: it is built and run"
  grep -q "$2" said || fail "$1 of another plan: $(tail -n 3 said)"
  cp kept a/"$1" && touch a/"$1"
}
for file in step.c rank1.c kernels.c; do mixed $file "plan_[0-9a-f]*.* undeclared\|undefined.*plan_"; done
mixed kernels.h "CMakeLists.txt and kernels.h are of two plans"
mixed CMakeLists.txt "CMakeLists.txt and run.sh are of two plans"
mixed run.sh "CMakeLists.txt and run.sh are of two plans"
a/run.sh --steps 1 > said 2>&1 || fail "a/run.sh, mended: $(cat said)"
cp b/{CMakeLists.txt,run.sh} a
a/run.sh --steps 1 > said 2>&1 && fail "CMakeLists.txt and run.sh of another plan: built and run"
grep -q "are of two plans" said || fail "CMakeLists.txt and run.sh of another plan: $(tail -n 3 said)"
finish "no mixtures, and nothing of anybody's is lost"
