# Builds and runs generated programs, for scripts with many of them; sourced after common.sh. A program is of
# one of three kinds: plain, sanitized, or cuda; or it is a library with a caller, tests/covering/library.c. If a script sets `local_mpi` first, programs are linked with the
# small MPI of tests/local_mpi: all ranks are one program, ranks, which forks them. With `transport=shared` ranks
# of the CPU talk through the runtime's shared memory instead.
# `runtime_plan` is a plan whose program has all the files of the runtime that the script's programs need.
local_mpi=${local_mpi:-}
transport=${transport:-mpi}
runtime_plan=${runtime_plan:-tests/plans/pipeline/plan.lua}
strict=(-std=c11 -D_GNU_SOURCE -DTPGEN_TORCH_ARCHIVE -fopenmp -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
# How far kernels are optimized. Small programs run for a moment only, and the optimizer takes longer than all
# else, so most scripts do without it. Some set -O1 or -O2, where kernels run for longer, and because it shows where a
# kernel's promises (restrict) do not hold. Users' programs are compiled with the flags in `released`: a compiler may make
# wrong code by them alone, so operators, some plans of tests/equal and checkpoint.sh have them, too.
plain=(-O0)
optimized=-O0
released=$(sed -n 's/^set(CMAKE_C_FLAGS "\(.*\)"$/\1/p' "$root/templates/program/CMakeLists.cpu.txt")
sanitizers=(-g -fsanitize=address,undefined -fno-sanitize-recover=undefined)
cuda=(-std=c++20 -D_GNU_SOURCE -DTPGEN_CUDA -DTPGEN_MPI -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX
  -Wall -Wextra -Werror -Wno-unknown-pragmas "-I$root/tests/cuda_on_cpu/include")
# Precompiled headers of programs whose ranks are one program, one for each way of compiling. They have the system's
# headers, or, of CUDA programs, the stand-in's, which nvcc includes by itself. They would hide that a program does
# not include what it needs: clang shows that (make_ranks), and so do scripts that build by run.sh.
heads=$TOOLS/heads
# Warnings in MPI's and BLAS's headers do not count.
mapfile -t includes < <({ mpicc -show && pkg-config --cflags openblas jansson minizip oniguruma libutf8proc; } | tr ' ' '\n' |
  sed -n 's/^-I/-isystem/p')
mapfile -t local_libraries < <(pkg-config --libs openblas jansson minizip oniguruma libutf8proc | tr ' ' '\n' | sed '/^$/d')
local_libraries+=(-fopenmp -lm)
# ld.gold takes half of ld's time.
! gcc -fuse-ld=gold -Wl,--version > /dev/null 2>&1 || local_libraries+=(-fuse-ld=gold)
mapfile -t libraries < <(mpicc -show | tr ' ' '\n' | sed -n '/^-\(L\|l\|Wl\)/p')
libraries+=("${local_libraries[@]}" -Wl,--export-dynamic-symbol=sched_yield) # idle_ranks.c has it

export ASAN_OPTIONS=detect_leaks=0 OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=passive
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launch=(mpirun)
if mpirun --version 2>&1 | finds 'Open MPI'; then
  launch+=(--quiet --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1)
fi

# is_local: whether a program has all its ranks in one; is_shared KIND: whether those of this kind share memory.
is_local() { [ -n "$local_mpi" ]; }
is_shared() { [ "$transport" = shared ] && [ "$1" != cuda ] && [ "$1" != library ]; }

# objects DIRECTORY KIND FLAGS AND SOURCES...: compiles them there.
objects() (
  cd "$1"
  kind=$2
  shift 2
  common=(-I. -Iruntime "${includes[@]}" -c "$@")
  ! is_local || common=("-I$root/tests/local_mpi" "${common[@]}")
  ! is_shared "$kind" || common=(-DTPGEN_SHARED "${common[@]}")
  [ "$kind" != library ] || { common=(-DTPGEN_LIBRARY -DTPGEN_STAGES "${common[@]}"); kind=plain; }
  ! has_heads "$kind" || common=(-include "$heads/$kind/heads.h" "${common[@]}")
  [ "$kind" != cuda ] || is_local || common=(-include cuda_runtime.h "${common[@]}")
  case $kind in
  plain) gcc "${strict[@]}" "${plain[@]}" "${common[@]}" ;;
  sanitized) gcc "${strict[@]}" "${sanitizers[@]}" "${common[@]}" ;;
  cuda) g++ "${cuda[@]}" -x c++ "${common[@]}" ;;
  esac
)

# has_heads KIND: whether the system's headers are compiled ahead for programs of this kind.
has_heads() { { [ "$1" = cuda ] || [ -z "${without_heads:-}" ]; } && is_local && ! is_shared "$1"; }

# make_heads KIND: compiles its headers, once for all scripts of a build.
make_heads() (
  kind=$1 to=$heads/$1 ways=(-O0) system=(assert complex limits math sched stdbool stddef stdint stdio stdlib string mpi cblas omp)
  mkdir -p "$to/heads.h.gch" && exec 9> "$to/lock" && flock 9 || exit 1
  [ ! -e "$to/made" ] || [ -n "$(find "$root"/tests/{scripts/programs.sh,local_mpi,cuda_on_cpu/include} -newer "$to/made")" ] || exit 0
  case $kind in
  plain) ways+=(-O1 -O2) compile=(gcc "${strict[@]}" -x c-header) ;;
  sanitized) compile=(gcc "${strict[@]}" "${sanitizers[@]}" -x c-header) ;;
  cuda)
    system=(mpi cuda_runtime cuda_bf16 nccl cublasLt)
    ways+=(-O1 "-O0 -fsanitize=thread" "-O1 -fsanitize=thread") compile=(g++ "${cuda[@]}" -x c++-header)
    ;;
  esac
  printf '#include <%s.h>\n' "${system[@]}" > "$to/heads.h"
  for way in "${ways[@]}"; do
    # shellcheck disable=SC2086
    "${compile[@]}" "-I$root/tests/local_mpi" "${includes[@]}" $way "$to/heads.h" -o "$to/part" && mv "$to/part" "$to/heads.h.gch/${way// /}" || exit 1
  done
  touch "$to/made"
)

# The runtime's objects in $WORK/KIND: they are the same for all programs of a kind, and compiled once for all
# scripts of a build, in $TOOLS/runtimes.
make_runtime() {
  local kind=$1 to=$WORK/$1 target=cpu name=$1 key made stand_in=cuda_on_cpu emits=program
  [ "$kind" != cuda ] || target=cuda
  [ "$kind" != library ] || emits=library
  ! is_local || name+=_local stand_in+=_local
  ! is_shared "$kind" || name+=_shared
  [ "$runtime_plan" = tests/plans/pipeline/plan.lua ] || name+=_$(basename "$runtime_plan" .lua)
  "$TPGEN" "$runtime_plan" -o "$WORK/of_runtime" --target $target --emit $emits || return
  key=$({
    gcc --version
    echo "${strict[*]}, ${plain[*]}, ${sanitizers[*]}, ${cuda[*]}, ${includes[*]}"
    cat tests/scripts/programs.sh tests/tools/idle_ranks.c tests/local_mpi/*
    find "$WORK/of_runtime/runtime" tests/cuda_on_cpu/include -type f | LC_ALL=C sort | xargs cat
  } | sha256sum)
  made=$TOOLS/runtimes/$name.${key:0:16}
  mkdir -p "$TOOLS/runtimes"
  (
    flock 8 || exit
    if [ ! -d "$made" ]; then
      rm -rf "$TOOLS/runtimes/$name".*/
      compile_runtime "$kind" "$WORK/of_runtime/runtime" && mv "$WORK/of_runtime/runtime" "$made.part" &&
        mv "$made.part" "$made" || exit
    fi
    cp -r "$made" "$to"
  ) 8> "$TOOLS/runtimes/$name.lock" || return
  rm -r "$WORK/of_runtime"
  ! has_heads "$kind" || make_heads "${kind/library/plain}" || return
  [ "$kind" != cuda ] || ln -s "$TOOLS/lib$stand_in.a" "$to/stand_in.a"
}

# make_runtimes KIND...: the runtime of each kind, or the script fails.
make_runtimes() {
  local kind
  for kind; do
    make_runtime "$kind" > "$WORK/runtime.log" 2>&1 && continue
    cat "$WORK/runtime.log"
    fail "the runtime of $kind programs does not compile"
    exit 1
  done
}

# compile_runtime KIND DIRECTORY
compile_runtime() {
  local kind=$1 to=$2 sources cu way=() without='cpu_shared_memory_[a-z_]*\.c' talk=(mpi.c requests.c messages.c rings.c deferred.c)
  local without_heads=yes
  ! is_shared "$kind" || without='cpu_memory\.c\|cpu_collectives\.c\|cpu_shared_memory_beside_mpi\.c\|cpu_stages\.c' talk=(shared.c)
  ! is_local || way=(-Dmain=main_of_rank)
  # cpu/job.c as cpu_job.c, and so on: objects have names of their own.
  (cd "$to" && find . -name '*.c' -o -name '*.cu' | sed 's|^\./||' | while read -r cu; do ln -s "$cu" "${cu//\//_}"; done)
  # All but the other transport.
  mapfile -t sources < <(cd "$to" && ls -- *.c | grep -vx "$without")
  if [ "$kind" = cuda ]; then
    local transport=mpi # also for what it has in C
    mapfile -t cu < <(cd "$to" && ls -- *.cu)
    ! is_local || make_heads cuda || return
    objects "$to" cuda "${cu[@]}" && objects "$to" plain -DTPGEN_MPI "${way[@]}" "${sources[@]}" || return
  elif [ "$kind" = library ]; then
    # But library/, which has the model's header.
    mapfile -t sources < <(sed -n '/library_runtime\>/,/)/p' "$to/../CMakeLists.txt" | grep -o 'runtime/[a-z0-9_/]*\.c\>' |
      sed 's|^runtime/||; s|/|_|g' | grep -v '^library_' | sort -u)
    objects "$to" library "${sources[@]}" cpu_stages.c || return
  else
    objects "$to" "$kind" "${way[@]}" "${sources[@]}" || return
  fi
  if is_local; then
    objects "$to" plain -O2 "${talk[@]/#/$root/tests/local_mpi/}" "$root/tests/local_mpi/ranks.c"
  else
    is_shared "$kind" || objects "$to" plain "$root/tests/tools/idle_ranks.c"
  fi
}

# In a program's directory: writes all_ranks.$1, the ranks' files as one, with the names of each that are its own renamed, and
# the table that ranks.c reads. A file for each rank takes most of the time of a program of many ranks.
join_ranks() {
  local files
  mapfile -t files < <(printf '%s\n' rank*."$1" | sort -V)
  perl -0777 -ne '
    my ($rank) = $ARGV =~ /^(rank\d+)\./;
    my $own = join "|", map { /\b(\w+)(?:\[\w*\])* = /g } /^static const [^;]*/mg;
    s/(?<!\.)(?<!struct )\b($own)\b/$1_of_$rank/g;
    s/\bthis_rank\b/$rank/g;
    print;
    print map { "#undef $_\n" } /^#define (\w+)/mg; # other ranks may have other states
    push @ranks, "&$rank";
    END {
      print "extern const void *const all_ranks[];\nextern const int number_of_ranks;\n";
      printf "const void *const all_ranks[] = {%s};\nconst int number_of_ranks = %d;\n", join(", ", @ranks), scalar @ranks;
    }' "${files[@]}" > all_ranks."$1"
}

# link_ranks DIRECTORY KIND: makes rank0, rank1 ... of the objects there, or the one program `ranks`.
link_ranks() (
  cd "$1"
  kind=$2 link=(gcc) more=()
  case $kind in
  sanitized) link=(gcc "${sanitizers[@]}") ;;
  cuda) link=(g++) ;;
  esac
  if is_local; then
    [ "$kind" != library ] || more=(library*.o data.o watch.o caller.o)
    "${link[@]}" -o ranks all_ranks.o step*.o kernels.o "${more[@]}" "../$kind"/*.[oa] "${local_libraries[@]}"
    exit
  fi
  entries=$(sed -n 's/^set(RANKS \(.*\))$/\1/p' CMakeLists.txt | tr ' ' '\n' | sort -V) # stages may have them in turn
  for entry in $entries; do
    "${link[@]}" -o "rank${entry%:*}" "rank${entry%:*}.o" "${entry#*:}.o" kernels.o "../$kind"/*.[oa] \
      "${libraries[@]}" || exit 1
  done
)

# make_ranks DIRECTORY KIND: compiles and links the program in DIRECTORY, as rank0, rank1 ... there. `watched` has
# further flags.
watched=()
make_ranks() (
  cd "$1"
  kind=$2 suffix=c ranks='rank*'
  [ "$kind" != cuda ] || suffix=cu
  [ "$kind" != sanitized ] || optimized=-O0 # a sanitizer sees no less
  ! is_local || { join_ranks $suffix && ranks=all_ranks; } || exit 1
  objects . "$kind" "${watched[@]}" $ranks.$suffix step*.$suffix &&
    objects . "$kind" "${watched[@]}" $optimized kernels.$suffix || exit 1
  if [ "$kind" = library ]; then
    objects . library library_ranks.c runtime/library/*.c &&
      objects . library -Dmain=main_of_rank -o caller.o "$root/tests/covering/library.c" || exit 1
  fi
  link_ranks . "$kind" || exit 1
  # clang compiles every ninth: its warnings are the same for many.
  ! ci_cases || [ "$kind" != plain ] || (($(cksum <<< "$PWD" | cut -d ' ' -f 1) % 9)) || ! command -v clang > /dev/null ||
    clang "${strict[@]}" -fsyntax-only -I. -Iruntime "${includes[@]}" rank0.c step*.c kernels.c
)

# make NAME KIND PLAN ARGUMENTS...: generates and compiles the program $WORK/NAME.
make() {
  local to=$WORK/$1 kind=$2
  shift 2
  [ "$kind" != cuda ] || set -- "$@" --target cuda
  "$TPGEN" "$@" -o "$to" && make_ranks "$to" "$kind" || { fail "$to: no program"; return 1; }
}

# as_built DIRECTORY: run.sh there takes the programs rank0, rank1 ... for its build.
as_built() {
  local build=$1/build launcher='' kind=none
  if [ "$transport" = mpi ]; then
    build+=/mpi launcher=$(command -v mpirun) kind=other
    ! mpirun --version | finds 'Open MPI' || kind=openmpi
  fi
  mkdir -p "$build" && ln "$1"/rank[0-9] "$build" && printf '%s\n' "$launcher" > "$build/launcher" &&
    printf '%s\n' "from $1" "args ${CMAKE_ARGS:-}" "launcher $launcher" "kind $kind" > "$build/.built" &&
    touch -d '+1 minute' "$build/.built"
}

# golden_line FILE WAY: the numbers in the file's line that begins with WAY, one a line.
golden_line() { awk -v way="$2" '$1 == way { for (i = 2; i <= NF; i++) print $i }' "$1"; }

# start DIRECTORY RESULT ARGUMENTS...: runs all its ranks, for at most `patience` seconds. Writes RESULT.losses
# and RESULT.saved/.
patience=${PATIENCE:-180}
start() {
  local directory=$1 result=$2 arguments ranks=() rank
  arguments=(--metrics "$2.jsonl" --save "$2.saved" "${@:3}")
  if [ -e "$directory/ranks" ]; then
    ranks=("$directory/ranks" "${arguments[@]}")
  elif [ -e "$directory/build/.built" ]; then
    ranks=("$directory/run.sh" "${arguments[@]}")
  else
    ranks=("${launch[@]}")
    for ((rank = 0; rank < $(find "$directory" -name 'rank*.o' | wc -l); rank++)); do
      [ $rank -eq 0 ] || ranks+=(:)
      ranks+=(-n 1 "$directory/rank$rank" "${arguments[@]}")
    done
  fi
  timeout "$patience" "${ranks[@]}" < /dev/null > "$result.out" 2>&1 || {
    tail -n 20 "$result.out"
    return 1
  }
  [ ! -f "$result.jsonl" ] || losses_of "$result.jsonl" > "$result.losses"
}

# ---- equal to one rank -----------------------------------------------------------------------------

# Relative to a tensor's largest element: float32 sums in another order, of at most some hundred terms and over five
# steps. `inputs`: the arguments of runs that give their data.
tensor_tolerance=2e-5
inputs=()

# Runs one rank from weights with a rounding error, and with sums in another order, unless that was done. A gradient
# that is 0 but for the rounding of its sum, as of a number that softmax ignores, may be the same with all weights.
other_order="-O3 -fassociative-math -fno-signed-zeros -fno-trapping-math"
perturbed_runs() {
  local base=$WORK/$1 optimized=$other_order watched=() i
  [ ! -d "$base.like1.saved" ] || return 0
  start "$base" "$base.zero" --steps 0 "${inputs[@]}"
  for i in 1 2 3; do
    "$TOOLS/perturb_weights" "$base.zero.saved/model.safetensors" "$base.zero.saved/$i" $i ${rounds:-}
    start "$base" "$base.like$i" --weights "$base.zero.saved/$i" --no-verify "${inputs[@]}"
  done
  cp -r "$base" "$base.like4"
  make_ranks "$base.like4" plain && start "$base.like4" "$base.like4" "${inputs[@]}"
}

# same_tensors NAME BASE FILE: compares their saved tensors. Some gradients are sums of terms that cancel nearly
# or fully: if they exceed the tolerance, the growth of a rounding error is measured.
same_tensors() {
  local files=("$WORK/$2.saved/$3" "$WORK/$1.saved/$3")
  "$TOOLS/compare_safetensors" "${files[@]}" $tensor_tolerance 2> "$WORK/$1.difference" && return
  if [ "$3" = model.safetensors ] && [ -f "${files[1]}" ] && perturbed_runs "$2"; then
    "$TOOLS/compare_safetensors" "${files[@]}" $tensor_tolerance \
      "$WORK/$2".like[1-4].saved/model.safetensors && return
  fi
  cat "$WORK/$1.difference"
  return 1
}

# same_files MANY ONE ARGUMENTS...: what the program MANY has saved, in MANY.saved, is read back there and by the program ONE, on
# another mesh, and written again: the same numbers, and checksums that fit; what both export is the same, too.
same_files() {
  local name program steps
  steps=$(numbers step "$WORK/$1.jsonl" | tail -n 1)
  for name in "$1" "$2"; do
    program=$WORK/$name
    rm -rf "$WORK/$1.exported.$name" "$WORK/$1.again"
    timeout "$patience" "$program/ranks" --load "$WORK/$1.saved" --steps "$steps" "${@:3}" --save "$WORK/$1.again" \
      --export "$WORK/$1.exported.$name" < /dev/null > "$WORK/$1.again.out" 2>&1 ||
      { tail -n 5 "$WORK/$1.again.out"; fail "$name cannot read what $1 has saved"; return 1; }
    "$TOOLS/compare_safetensors" "$WORK/$1.saved/model.safetensors" "$WORK/$1.again/model.safetensors" 0 > "$WORK/$1.again.out" ||
      { fail "$name writes other numbers than $1"; return 1; }
  done
  "$TOOLS/compare_safetensors" "$WORK/$1.exported.$1/model.safetensors" "$WORK/$1.exported.$2/model.safetensors" 0 \
    > "$WORK/$1.again.out" || { fail "$1 exports other numbers than $2"; return 1; }
  rm -rf "$WORK/$1.exported".* "$WORK/$1.again" "$WORK/$1.again.out"
}

# ---- the Llama with PyTorch's losses and norms of gradients (tests/golden/llama) -------------------

llama=$golden/llama
golden_shape=(-D dim=128 -D n_layers=2 -D n_heads=8 -D n_kv_heads=4 -D hidden=352 -D vocab=512 -D seq=64
  -D batch=4 -D lr=1e-3 -D beta1=0.9 -D beta2=0.95 -D weight_decay=0.1 -D clip=1.0)

# numbers KEY FILE: those of the metrics, or of the golden file, one a line.
numbers() { sed -n "s/.*\"$1\": *\\([-+.0-9eE]*\\)[,}].*/\\1/p" "$2"; }
golden_numbers() { sed "s/.*\"$1\": *\\[\\([^]]*\\)\\].*/\\1/" "$llama/losses.json" | tr -d ' ' | tr , '\n' | sed -n "1,${steps}p"; }

# near NAME FILE1 FILE2: so many steps in both, twenty at most, as near as `within` says: the first ten, and all.
steps=20
within=(2e-5 2e-4)
near() {
  paste "$2" "$3" | awk -v name="$1" -v ten="${within[0]}" -v twenty="${within[1]}" -v steps="$steps" '
    function abs(x) { return x < 0 ? -x : x }
    NF == 2 { d = abs($1 - $2) / abs($2); if (d > worst) worst = d }
    !(NF == 2 && d <= (NR <= 10 ? ten : twenty)) { print "  " name ": step " NR ": " $1 ", not " $2; bad = 1 }
    END {
      if (NR != steps) { print "  " name ": " NR " steps"; bad = 1 }
      if (bad) exit 1
      printf "  %-24s at most %.1e apart\n", name, worst
    }' || fail "$1"
}

from_golden() { start "$1" "$1" --weights "$llama/llama.safetensors" --data "$llama/text.txt" --steps "$steps"; }

# near_golden NAME: compares the results of that program with the golden ones.
near_golden() {
  local key
  for key in loss grad_norm; do
    numbers $key "$WORK/$1.jsonl" > "$WORK/$1.$key"
    golden_numbers $([ $key = loss ] && echo losses || echo grad_norms) > "$WORK/$1.$key.golden"
    near "$1 $key" "$WORK/$1.$key" "$WORK/$1.$key.golden"
  done
}

# check_golden KIND NAME ARGUMENTS...: of plans/llama3.lua.
check_golden() {
  local kind=$1 name=$2 to=$WORK/$2
  shift 2
  [ "$kind" != cuda ] || set -- --target cuda "$@"
  "$TPGEN" plans/llama3.lua -o "$to" "${golden_shape[@]}" "$@" && make_ranks "$to" "$kind" ||
    fail "$name: no program"
  from_golden "$to" || fail "$name: it ended with status $?"
  near_golden "$name"
}
