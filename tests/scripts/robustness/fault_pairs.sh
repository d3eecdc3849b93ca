#!/usr/bin/env bash
# Faults by pairs: jobs that use several features at once meet a fault. The rows are drawn so that each pair of a fault and a
# feature, and each pair of features, is in one of them. Whatever comes first, a run ends
#   with status 0 and the right weights, or with a failure and one message; soon, and without a rank that stays;
#   with the checkpoints that it had: --verify finds each as it was saved, and the job that goes on from the last one ends
#   with the very weights of a job without faults; it leaves nothing half written.
# A few rows run, unless CASES=all or PAIRS=all. PAIRS_ROW=N: row N of all alone. PAIRS_SEED: other moments.
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
export OMP_NUM_THREADS=1 TPGEN_TOKEN=pairs.$$.$RANDOM
seed=${PAIRS_SEED:-1}
steps=40
gcc -O1 -D_GNU_SOURCE -shared -fPIC -o "$WORK/faulty.so" tests/tools/faulty_calls.c -ldl || { fail "faulty_calls.c"; exit 1; }
cat README.md docs/running.md docs/training.md | head -c 20000 > "$WORK/train.txt"
head -c 700 LICENSE > "$WORK/validate.txt"

# ---- the rows -----------------------------------------------------------------------------------

# A factor and its levels, a line each.
factors() {
  cat << 'END'
fault kill stop term disk metrics write openat rename fsync close clock files memory size none
shape tp pp ep library
transport shared mpi mixed
keep last every some best
begin fresh resumed
metrics none file board
validates no yes
data text shuffled
export no yes
parts no yes
END
}

# What can't go together, and why.
impossible() {
  cat << 'END'
keep=best validates=no  the best checkpoint is that of a validation
shape=library transport=shared  a library talks by its caller's MPI
shape=library transport=mixed  a library talks by its caller's MPI
shape=library keep=some  a library has no such function
shape=library keep=best  a library has no such function
shape=library metrics=file  a library has no such function
shape=library metrics=board  a library has no such function
shape=library fault=metrics  a library has no such function
shape=library fault=files  Open MPI fails by itself, in words of its own
shape=library fault=memory  Open MPI fails by itself, in words of its own
shape=library validates=yes  a library has no such function
shape=library data=shuffled  batches are the caller's
shape=library parts=yes  a library has no such function
fault=metrics metrics=none  there are no metrics to lose
fault=files transport=mpi  Open MPI fails by itself, in words of its own
fault=memory transport=mpi  Open MPI fails by itself, in words of its own
fault=memory transport=mixed  Open MPI fails by itself, in words of its own
fault=files transport=mixed  Open MPI fails by itself, in words of its own
END
}

# draw: rows, a level of each factor, that have all pairs; then a line "PAIRS all tried impossible".
draw() {
  awk '
    function random(n) { state = (state * 16807) % 2147483647; return int(state / 8) % n }
    function allowed(f, i, g, j) { return !((f, i, g, j) in never) }
    function fits(f, i,   g) { for (g = 1; g <= nf; g++) if (row[g] && g != f && !allowed(f, i, g, row[g])) return 0; return 1 }
    FNR == NR { nf++; name[nf] = $1; n[nf] = NF - 1; for (i = 2; i <= NF; i++) { level[nf, i - 1] = $i; at[$1 "=" $i] = nf SUBSEP (i - 1) }; next }
    { split(at[$1], a, SUBSEP); split(at[$2], b, SUBSEP); never[a[1], a[2], b[1], b[2]] = never[b[1], b[2], a[1], a[2]] = 1; nnever++ }
    END {
      state = 12345
      for (f = 1; f <= nf; f++) for (g = f + 1; g <= nf; g++) for (i = 1; i <= n[f]; i++) for (j = 1; j <= n[g]; j++) {
        all++
        if (allowed(f, i, g, j)) { left[f, i, g, j] = left[g, j, f, i] = 1; todo++ }
      }
      tried = todo
      while (todo > 0) {
        best = -1
        for (try = 0; try < 40; try++) {
          for (f = 1; f <= nf; f++) row[f] = 0
          # One pair that is left, then each other factor so that most pairs are new.
          count = 0
          for (k in left) if (left[k] && random(++count) == 0) key = k
          split(key, k4, SUBSEP); row[k4[1]] = k4[2]; row[k4[3]] = k4[4]
          for (g = 1; g <= nf; g++) order[g] = g
          for (g = nf; g > 1; g--) { o = 1 + random(g); t = order[g]; order[g] = order[o]; order[o] = t }
          won = 1; ok = 1
          for (o = 1; o <= nf; o++) {
            f = order[o]
            if (row[f]) continue
            most = -1
            for (i = 1; i <= n[f]; i++) {
              if (!fits(f, i)) continue
              new = 0
              for (g = 1; g <= nf; g++) if (row[g]) new += left[f, i, g, row[g]] + 0
              new += random(100) / 1000
              if (new > most) { most = new; row[f] = i }
            }
            if (most < 0) { ok = 0; break }
            won += int(most)
          }
          if (ok && won > best) { best = won; for (f = 1; f <= nf; f++) chosen[f] = row[f] }
        }
        line = ""
        for (f = 1; f <= nf; f++) {
          line = line (f > 1 ? " " : "") level[f, chosen[f]]
          for (g = f + 1; g <= nf; g++) if (left[f, chosen[f], g, chosen[g]]) { left[f, chosen[f], g, chosen[g]] = left[g, chosen[g], f, chosen[f]] = 0; todo-- }
        }
        print line
      }
      print "PAIRS", all, tried, nnever
    }' <(factors) <(impossible)
}

# ---- programs -----------------------------------------------------------------------------------

# program SHAPE DATA: $program, its folder; built for each transport when it is first used.
program() {
  program=$WORK/program.$1.$2
  [ "$1" != library ] || verifier=$WORK/program.tp.text/run.sh
  [ ! -d "$program" ] || return 0
  local shuffle=()
  [ "$2" = text ] || shuffle=(-D shuffle=3)
  if [ "$1" = library ]; then
    program tp text
    program=$WORK/program.$1.$2
    make_library > "$WORK/library.log" 2>&1 || { cat "$WORK/library.log"; fail "no library"; exit 1; }
    return
  fi
  "$TPGEN" tests/plans/faults/plan.lua -o "$program" -D shape="$1" "${shuffle[@]}" || { fail "no program"; exit 1; }
}

# A program with the model as a library.
make_library() {
  local flags=()
  ! command -v ninja > /dev/null || flags=(-G Ninja)
  "$TPGEN" tests/plans/faults/plan.lua -o "$program.model" --emit library && cmake -S "$program.model" -B "$program.model/build" "${flags[@]}" &&
    cmake --build "$program.model/build" --parallel 2 && cmake --install "$program.model/build" --prefix "$program.model/prefix" && mkdir "$program" &&
    cp tests/plans/faults/library_job.c "$program" || return
  printf '%s\n' 'cmake_minimum_required(VERSION 3.18)' 'project(job LANGUAGES C)' 'find_package(model REQUIRED)' 'add_executable(rank01 library_job.c)' \
    'target_link_libraries(rank01 PRIVATE model::model)' > "$program/CMakeLists.txt"
  cmake -S "$program" -B "$program/build" "${flags[@]}" "-DCMAKE_PREFIX_PATH=$program.model/prefix" && cmake --build "$program/build"
}

# job TRANSPORT ARGUMENTS...: runs it.
job() {
  local transport=$1 started=(bash -c "ulimit ${FAULT_LIMIT:-}"' && exec "$@"' limited "$program/run.sh")
  shift
  if [ -x "$program/build/rank01" ]; then
    "${launch[@]}" -n 2 bash -c "ulimit ${FAULT_LIMIT:--S}"' > /dev/null && exec "$@"' limited "$program/build/rank01" "$@"
    return
  fi
  # mpirun itself has no limit.
  if [ -n "${FAULT_LIMIT:-}" ] && [ "$transport" != shared ]; then
    [ "$transport" = mpi ] && started+=(--transport mpi) || started+=(--transport shared)
    "${launch[@]}" -n 2 "${started[@]}" "$@"
    return
  fi
  case $transport in
  mixed) "${launch[@]}" -n 2 "$program/run.sh" --transport shared "$@" ;;
  *) "$program/run.sh" --transport "$transport" "$@" ;;
  esac
}

# reference SHAPE DATA TRANSPORT: what a job without faults exports, $right, and a checkpoint of step 7, $early; and how
# long it took, $long, in ms.
reference() {
  local name=$1.$2.$3 began
  right=$WORK/right.$name early=$WORK/early.$name
  if [ ! -d "$right" ]; then
    job "$3" --data "$WORK/train.txt" --steps 7 --save "$early" > "$WORK/$name.out" 2>&1 < /dev/null || { cat "$WORK/$name.out"; fail "$name: no checkpoint"; exit 1; }
    began=${EPOCHREALTIME/./}
    job "$3" --data "$WORK/train.txt" --steps $steps --save "$WORK/whole.$name" --save-every 1 --export "$right" > "$WORK/$name.out" 2>&1 < /dev/null ||
      { cat "$WORK/$name.out"; fail "$name: no weights"; exit 1; }
    echo $(((${EPOCHREALTIME/./} - began) / 1000)) > "$WORK/long.$name"
  fi
  long=$(< "$WORK/long.$name")
}

# ---- a row --------------------------------------------------------------------------------------

# Where a fault came too late, the row is run again with an earlier one.
span=1000 tries=0
try_again() { # its arguments
  span=$((span / 2)) tries=$((tries + 1))
  umount "$at/in" 2> "$at/umount" || true
  rm -rf "$at"
  row "$@"
}

random() { number=$(((number * 16807) % 2147483647)); drawn=$((number / 8 % $1)); }

# The processes of rank R, or of both. Those of a library have one program.
ranks_of() {
  local pid
  if [ -x "$program/build/rank01" ]; then
    for pid in $(pgrep -f "^$program/build/rank01 .*--save $1/"); do
      [ $# -eq 1 ] || finds -z "^OMPI_COMM_WORLD_RANK=$2$" < "/proc/$pid/environ" || continue
      echo "$pid"
    done 2> /dev/null
    return 0
  fi
  pgrep -f "^$program/build/[a-z/]*rank${2:-[01]} .*--save $1/" || true
}

# row N FAULT SHAPE TRANSPORT KEEP BEGIN METRICS VALIDATES DATA EXPORT PARTS
row() {
  local n=$1 fault=$2 shape=$3 transport=$4 keep=$5 begin=$6 metrics=$7 validates=$8 data=$9 export=${10} parts=${11}
  local at=$WORK/row.$n options=() status=0 who pid job i limit='' environment=() messages long right early program verifier='' last kept before=''
  local shown="row $n: ${*:2}" into
  number=$((seed * 7919 + n * 104729))
  random 9; random 9
  program "$shape" "$data"
  reference "$shape" "$data" "$transport"
  mkdir -p "$at/in"
  into=$at/in
  if [ "$fault" = disk ]; then
    random 1500
    mount -t tmpfs -o size=$((100 + drawn))k none "$into" || { echo "  $shown: impossible: no disk of its own"; return 0; }
  fi
  options=(--data "$WORK/train.txt" --steps $steps --save "$into/ck" --deadline 1)
  case $keep in
  every) options+=(--save-every 1) ;;
  some) options+=(--save-every 3 --keep 3) ;;
  best) options+=(--save-every 5 --keep best,2) ;;
  esac
  case $metrics in
  file) options+=(--metrics "$into/metrics.jsonl") ;;
  board) options+=(--metrics "$into/metrics.jsonl" --tensorboard "$into/board") ;;
  esac
  [ "$validates" = no ] || options+=(--validate "$WORK/validate.txt" --validate-every 4)
  [ "$export" = no ] || options+=(--export "$into/out")
  [ "$parts" = no ] || options+=(--shard-bytes 20K)
  random 2
  who=$drawn
  if [ "$begin" = resumed ]; then
    cp -r "$early" "$into/ck" 2> "$at/copy" || before=none # the disk is too small
    [ -z "$before" ] || rm -rf "$into/ck"
    [ -n "$before" ] || options+=(--load "$into/ck")
  fi
  case $fault in
  metrics) options=("${options[@]/$into\/metrics.jsonl//dev/full}") ;;
  write | openat | rename | fsync | close)
    random $((1 + 20 * span / 1000))
    environment=("LD_PRELOAD=$WORK/faulty.so" FAULTY_CALL="$fault" FAULTY_NTH=$((1 + drawn)) FAULTY_ERRNO=$((drawn % 2 ? 28 : 5))
      FAULTY_UNDER="$into" FAULTY_RANK=$who)
    [ "$fault" != write ] || ((drawn % 2)) || environment+=(FAULTY_CALL=pwrite)
    ;;
  clock) environment=("LD_PRELOAD=$WORK/faulty.so" FAULTY_CLOCK=3600) ;;
  files) random 8 && limit="-n $((9 + drawn))" ;;
  memory) random 12 && limit="-v $((40000 + 30000 * drawn))" ;;
  size) random 12 && limit="-f $((drawn * drawn * 8))" ;;
  esac

  # ---- with the fault
  local began=${EPOCHREALTIME/./}
  : > "$at/out"
  {
    (
      exec 3<&-
      for setting in "${environment[@]}"; do export "${setting?}"; done
      export FAULT_LIMIT=$limit
      # shellcheck disable=SC2086
      [ -z "$limit" ] || [ "$transport" != shared ] || ulimit $limit
      job "$transport" "${options[@]}"
    ) || status=$?
    echo "$status" > "$at/status"
  } < /dev/null 2>&1 | cat > "$at/out" &
  job=$!
  case $fault in
  kill | stop | term | clock)
    random $(((long + 50) * span / 1000 + 5))
    # Before that, a library has no part in it.
    for ((i = 0; i < 1000; i++)); do
      [ "$shape" != library ] || [ "$fault" = kill ] || [ "$fault" = term ] || ! kill -0 $job 2> /dev/null || finds opened < "$at/out" || { sleep 0.01; continue; }
      break
    done
    [ "$shape" != library ] || drawn=$((drawn % 100))
    sleep "$(printf '%d.%03d' $((drawn / 1000)) $((drawn % 1000)))"
    for ((i = 0; i < 100; i++)); do
      pid=$(ranks_of "$into" $who)
      [ -z "$pid" ] && kill -0 $job 2> /dev/null || break
      sleep 0.01
    done
    case $fault in
    kill) [ -z "$pid" ] || kill -KILL "$pid" 2> /dev/null || true ;;
    term) pkill -TERM -f "^(bash $program/run.sh|mpirun) .*--save $into/" || true ;;
    *) [ -z "$pid" ] || kill -STOP "$pid" 2> /dev/null || true ;;
    esac
    ;;
  esac
  for ((i = 0; i < 600; i++)); do
    kill -0 $job 2> /dev/null || break
    sleep 0.05
    # A library tells of it, and cannot end the wait. Its caller may be at the end.
    [ "$shape" != library ] || [ -z "${pid:-}" ] || [ $i != 260 ] || {
      grep -q 'nothing has moved for [0-9]* s in MPI_' "$at/out" || finds -a "\"step\": *\"$steps\"" "$into/ck/model.safetensors" ||
        fail "$shown: the library does not tell of it"
      kill -CONT "$pid" 2> /dev/null || true
    }
  done
  # A launcher waits for a rank that is stopped as it leaves.
  if [ $i = 600 ] && [ "$transport" != shared ] && [ -n "${pid:-}" ] && finds '^steps: ' < "$at/out"; then
    kill -CONT "$pid" || true
    echo "  $shown: it was stopped as it left"
    sleep 2
  elif [ $i = 600 ]; then
    fail "$shown: it does not end: $(tail -n 3 "$at/out")"
    pkill -KILL -f -- "--save $into/" || true
  fi
  wait $job || true
  status=$(< "$at/status") || status=none
  took=$(((${EPOCHREALTIME/./} - began) / 1000))
  sleep 0.1
  [ -z "$(ranks_of "$into")" ] || { fail "$shown: a rank is left"; pkill -KILL -f -- "--save $into/" || true; }

  case $fault in
  kill | stop | term | write | openat | rename | fsync | close | clock)
    if [ "$status" = 0 ] && [ $tries -lt 6 ] && [[ $shape != library || ! $fault =~ ^(stop|clock)$ ]]; then
      try_again "$@"
      return
    fi
    ;;
  esac

  # ---- what it says
  messages=$(grep -E 'error:|^run\.sh:|failed at|  stops: SIG' "$at/out" | grep -vc '^run.sh: building' || true)
  printf '  %-76s %5d ms, status %3d  %s\n' "$shown" $took $status "$(grep -m 1 -E 'error:|^run.sh: a|failed at' "$at/out" | sed "s|$WORK/||g" | cut -c1-150)"
  if [ "$shape" = library ]; then
    messages=$((status != 0)) # its caller's and MPI's
    [ "$status" != 0 ] || messages=0
  fi
  if [ $status -eq 0 ]; then
    [ "$messages" = 0 ] || { fail "$shown: status 0 and a message"; cat "$at/out"; }
    [ "$export" = no ] || same_weights "$into/out" || fail "$shown: status 0 and other weights"
  elif [ "$fault" = none ] || [ "$messages" != 1 ]; then
    fail "$shown: $messages messages"
    tail -n 20 "$at/out"
  fi

  # ---- what it has left
  [ "$fault" != disk ] || mount -o remount,size=64m "$into"
  kept=()
  for last in "$into"/ck "$into"/ck/step-* "$into"/ck/best; do
    [ ! -e "$last/model.safetensors" ] && [ ! -e "$last/model.safetensors.index.json" ] || kept+=("$last")
  done
  for last in "${kept[@]}"; do
    "${verifier:-$program/run.sh}" --verify "$last" > "$at/verify" 2>&1 < /dev/null || { fail "$shown: $last is damaged"; cat "$at/verify"; }
  done
  if [ "$begin" = resumed ] && [ -z "$before" ] && [ "${kept[0]:-}" != "$into/ck" ]; then fail "$shown: the checkpoint is lost"; fi
  [ $status -ne 0 ] || [ "${kept[0]:-}" = "$into/ck" ] || fail "$shown: status 0 and no checkpoint"

  # ---- it goes on
  status=0
  options=(--data "$WORK/train.txt" --steps $steps --save "$into/ck" --export "$at/out.export")
  [ "${kept[0]:-}" != "$into/ck" ] || options+=(--load "$into/ck")
  [ "$keep" != best ] || options+=(--validate "$WORK/validate.txt" --keep best)
  job "$transport" "${options[@]}" > "$at/resumed" 2>&1 < /dev/null || status=$?
  [ $status -eq 0 ] || { fail "$shown: it does not go on"; cat "$at/resumed"; }
  same_weights "$at/out.export" || fail "$shown: what goes on ends with other weights"
  find "$into/ck" -name '.*' ! -name .tpgen.lock -type f | finds . && fail "$shown: left over: $(cd "$into" && find ck -name '.*' -type f | xargs)"
  [ "$fault" != disk ] || umount "$into"
  [ $failures -eq 0 ] && rm -rf "$at"
  return 0
}

# same_weights DIR: it has the weights of the job without faults, as they are in one file.
same_weights() {
  if [ -e "$1/model.safetensors" ]; then
    cmp -s "$1/model.safetensors" "$right/model.safetensors" || "$TOOLS/compare_safetensors" "$1/model.safetensors" "$right/model.safetensors" 0
  else
    [ -e "$1/model.safetensors.index.json" ] # its parts are compared by what goes on
  fi
}

draw > "$WORK/rows"
read -r _ all tried never < <(tail -n 1 "$WORK/rows")
sed -i '$d' "$WORK/rows"
rows=$(wc -l < "$WORK/rows")
# Otherwise some of those that start and end fast.
[ "${PAIRS:-}" = all ] || [ -n "${PAIRS_ROW:-}" ] || all_cases || { grep -E ' (tp|pp) shared ' "$WORK/rows" | head -n 14 > "$WORK/some" && mv "$WORK/some" "$WORK/rows"; }
trap 'umount "$WORK"/row.*/in 2> /dev/null || true' EXIT
impossible | sed 's/^/  impossible: /'
n=0
while read -r -a levels <&3; do
  n=$((n + 1))
  [ -z "${PAIRS_ROW:-}" ] || [ $n = "$PAIRS_ROW" ] || continue
  span=1000 tries=0
  row $n "${levels[@]}"
done 3< "$WORK/rows"
finish "$(wc -l < "$WORK/rows") of $rows rows; of $all pairs $tried are possible, $never are not"
