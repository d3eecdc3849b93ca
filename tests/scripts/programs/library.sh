#!/usr/bin/env bash
# Models as libraries: three of them in one program, which trains, saves, loads and fails (library/driver.c),
# under the sanitizers, has the losses and outputs of the programs of the same plans, to the bit, and leaves no
# memory; and so have the examples in C and Fortran, which find the installed library by CMake, and that in C with a
# model that torch.export saved, and with the stages of a pipeline. A library has no other symbols than the functions of its header.
local_mpi=yes
. "$(dirname "$0")/../common.sh"
. "$root/tests/scripts/programs.sh"
# Programs and libraries have the bits of the same products, also where an OpenBLAS does not know the processor.
export OPENBLAS_CORETYPE=Prescott OMP_NUM_THREADS=2
unset CC CXX FC

prefix=$WORK/prefix
flags=(-DCMAKE_BUILD_TYPE= "-DCMAKE_C_FLAGS=${sanitizers[*]} -O1" -DCMAKE_INSTALL_LIBDIR=lib)
! command -v ninja > /dev/null || flags+=(-G Ninja)

# library NAME PLAN ARGUMENTS...: tpgen's folder $WORK/NAME, built and installed. `archive`, `stages` and `metrics` are called
# `model`, too, and stand elsewhere.
library() {
  local to=$WORK/$1 name=$1 prefix=$prefix
  [[ $name != archive && $name != stages && $name != metrics ]] || name=model prefix=$to/prefix
  "$TPGEN" "${@:2}" -o "$to" && cmake -S "$to" -B "$to/build" "${flags[@]}" "-DCMAKE_INSTALL_PREFIX=$prefix" &&
    cmake --build "$to/build" --parallel 2 && cmake --install "$to/build" || return
  local others
  others=$(nm -g --defined-only "$prefix/lib/lib$name.a" | awk 'NF == 3 { print $3 }' | grep -v "^${name}_") || true
  [ -z "$others" ] || { echo "lib$name.a also has" $others; return 1; }
  [ ! -e "$to/build/rank0" ] || { echo "the program was built, too"; return 1; }
}
export=(plans/torch_export.lua -D "model=$golden/torch_export/mlp.pt2" -D loss=mse -D tp=2)
pipeline=(plans/llama3.lua -D pp=2 -D microbatches=3 -D batch=4 -D n_layers=3 -D dim=16 -D n_heads=2 -D n_kv_heads=1
  -D hidden=20 -D vocab=16 -D seq=8 -D clip=1 -D tied=true -D lr=0.01)
for one in 'model plans/toy.lua -D tp=2 --emit library' 'ocean tests/plans/library/ocean.lua' \
  'pond tests/equal/outputs.lua -D tp=2 --emit library --library-name pond' "archive ${export[*]} --emit library" \
  "stages ${pipeline[*]} --emit library" 'metrics tests/plans/library/metrics.lua'; do
  library $one > "$WORK/log" 2>&1 || {
    tail -n 40 "$WORK/log"
    fail "no library of $one"
    finish
  }
done

# ---- names -----------------------------------------------------------------------------------------

for name in Model int tensor memory math mpi a-b "" program 2a "$(printf 'x%.0s' {1..40})"; do
  "$TPGEN" plans/toy.lua -o "$WORK/refused" --emit library --library-name "$name" > "$WORK/log" 2>&1 && fail "a library called '$name'"
  grep -q 'a library cannot be called' "$WORK/log" && [ ! -e "$WORK/refused" ] || { cat "$WORK/log"; fail "the message for '$name'"; }
done
"$TPGEN" plans/toy.lua -o "$WORK/refused" --emit library --ranks 0 > "$WORK/log" 2>&1 && fail "a library without some ranks"
grep -q 'leave out --ranks' "$WORK/log" || fail "$(cat "$WORK/log")"

# ---- the programs of the same plans -----------------------------------------------------------------

make_runtimes plain
make stages_program plain "${pipeline[@]}"
make model_program plain plans/toy.lua -D tp=2
make ocean_program plain tests/plans/library/ocean.lua --emit program
make pond_program plain tests/equal/outputs.lua -D tp=2
make archive_program plain "${export[@]}"
grep -q Thread_local "$WORK/ocean/memory.h" && ! grep -q Thread_local "$WORK/ocean_program/memory.h" ||
  fail "the state of a library, and of none, is that of a thread"

cd "$WORK"
# shellcheck disable=SC2046
gcc "${strict[@]}" "${sanitizers[@]}" "-I$prefix/include" "${includes[@]}" -o driver "$root/tests/plans/library/driver.c" \
  "$prefix"/lib/lib{model,ocean,pond}.a $(! ldconfig -p | finds libdnnl || echo -ldnnl) "${libraries[@]}" ||
  { fail "the driver does not link"; finish; }
mkdir -p data/model data/ocean
(cd data && ../driver data) || fail "the driver writes no data"
ASAN_OPTIONS=detect_leaks=1:leak_check_at_exit=0 timeout 300 "${launch[@]}" -n 2 ./driver run > driver.log 2>&1 || {
  cat driver.log
  fail "the driver"
}

# same WHAT A B: two files of losses.
same() { [ -s "$3" ] && diff "$2" "$3" > diff.log || { paste "$2" "$3"; fail "$1 has other losses"; }; }
start "$WORK/model_program" "$WORK/program" --steps 5 --data data/model/input.npy --data data/model/target.npy
for way in place whole; do same "model, $way" program.losses model.$way; done
same "threads" <(cat program.losses program.losses program.losses) model.threads
start "$WORK/ocean_program" "$WORK/of_ocean" --data data/ocean/input.npy --data data/ocean/target.npy
same "ocean" of_ocean.losses ocean.whole
same "ocean, resumed" <(sed -n 4p of_ocean.losses) ocean.resumed

# Either loads what the other saved.
start "$WORK/ocean_program" "$WORK/goes_on" --load ocean.saved --steps 4 || fail "the program does not load the checkpoint"
cmp -s <(tail -c 2680 program.saved/model.safetensors) <(tail -c 2680 model.saved/model.safetensors) ||
  fail "the checkpoints of program and library differ"
start "$WORK/model_program" "$WORK/exported" --steps 0 --weights model.exported > /dev/null || fail "the export does not load"

# The outputs lie in the file one after the other.
outputs() {
  tr -d '{}' < <(head -c 4096 forward.saved/outputs.safetensors) | grep -ao '"[a-z]*":"dtype":"F32","shape":\[[0-9,]*\],"data_offsets":\[[0-9]*' |
    sed 's/^"\([a-z]*\)".*\[\([0-9]*\)$/\2 pond.\1.0/' | sort -n | cut -d ' ' -f 2
}
start "$WORK/pond_program" "$WORK/forward" || fail "pond's program"
for name in again columns hidden input largest mean output rows twice; do
  cmp "pond.$name.0" "pond.$name.1" || fail "pond: ranks have another $name"
done
data=$(cat pond.{again,columns,hidden,input,largest,mean,output,rows,twice}.0 | wc -c)
cmp <(tail -c "$data" forward.saved/outputs.safetensors) <(cat $(outputs)) || fail "pond has other outputs than its program"

# ---- the examples --------------------------------------------------------------------------------

cmake -S "$root/examples/library" -B examples "${flags[@]}" "-DCMAKE_PREFIX_PATH=$prefix" \
  "-DCMAKE_Fortran_FLAGS=${sanitizers[*]}" > log 2>&1 && cmake --build examples >> log 2>&1 || {
  tail -n 40 log
  fail "the examples do not build"
}
start "$WORK/model_program" "$WORK/example_program"
ways="C"
"${launch[@]}" -n 2 examples/example > example.c 2> log || { cat log; fail "the example in C"; }
same "the example in C" example_program.losses example.c
if [ -e examples/example_fortran ]; then
  ways+=" and Fortran"
  "${launch[@]}" -n 2 examples/example_fortran > example.f90 2> log || { cat log; fail "the example in Fortran"; }
  for file in example_program.losses example.f90; do awk '{ printf "%.8e\n", $1 }' "$file" > "$file.digits"; done
  same "the example in Fortran" {example_program.losses,example.f90}.digits
else
  echo "library: no Fortran compiler: the example in Fortran was not tried"
fi

# like_program NAME WHAT: the example with the model of $WORK/NAME; it saves its checkpoint there.
like_program() {
  # shellcheck disable=SC2046
  gcc "${strict[@]}" "${sanitizers[@]}" "-I$1/prefix/include" "${includes[@]}" -o "of_$1" "$root/examples/library/example.c" \
    "$1/prefix/lib/libmodel.a" $(! ldconfig -p | finds libdnnl || echo -ldnnl) "${libraries[@]}" &&
    "${launch[@]}" -n 2 "./of_$1" "$1.checkpoint" > "$1.c" 2> log || { cat log; fail "the example with $2"; }
  start "$WORK/$1_program" "$WORK/$1" --steps 10
  same "the example with $2" "$1.losses" "$1.c"
}
like_program archive "an exported model"
like_program stages "stages of a pipeline"
"$TOOLS/compare_safetensors" stages.saved/model.safetensors stages.checkpoint/model.safetensors 0 || fail "stages: another checkpoint"

# shellcheck disable=SC2046
gcc "${strict[@]}" "${sanitizers[@]}" "-Imetrics/prefix/include" "${includes[@]}" -o of_metrics "$root/tests/plans/library/metrics.c" \
  metrics/prefix/lib/libmodel.a $(! ldconfig -p | finds libdnnl || echo -ldnnl) "${libraries[@]}" &&
  "${launch[@]}" -n 2 ./of_metrics > log 2>&1 || { cat log; fail "the outputs of a model with metrics"; }

finish "three libraries in one program; the examples in $ways; an exported model; stages of a pipeline"
