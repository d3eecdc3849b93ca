#!/usr/bin/env bash
# Models as modules for Python (--emit python): under mpirun, and as one process without it, they have the losses of the
# programs, also of a smaller last batch; the learning rate can be scaled; what does not fit is an error.
. "$(dirname "$0")/../common.sh"
command -v python3 > /dev/null || { echo "python: there is no python3"; exit 0; }
local_mpi=yes
. "$root/tests/scripts/programs.sh"
# Programs and libraries have the bits of the same products, also where an OpenBLAS does not know the processor.
export OPENBLAS_CORETYPE=Prescott OMP_NUM_THREADS=1
make_runtimes plain
samples=(tests/plans/data_sets/plan.lua -D last=smaller)
data=$golden/data_sets/data.safetensors

# module NAME PLAN ARGUMENTS...: in $WORK/NAME/build.
module() {
  "$TPGEN" "${@:2}" --emit python -o "$WORK/$1" > "$WORK/$1.log" 2>&1 && cmake -S "$WORK/$1" -B "$WORK/$1/build" -DCMAKE_BUILD_TYPE= \
    >> "$WORK/$1.log" 2>&1 && cmake --build "$WORK/$1/build" --parallel 2 >> "$WORK/$1.log" 2>&1 ||
    { tail -n 20 "$WORK/$1.log"; fail "$1: no module"; finish; }
}
drive() { PYTHONPATH=$WORK/$1/build timeout 100 "${@:3}" python3 tests/plans/library/drive.py "$2" "$data" "$WORK/$1.saved" 2> "$WORK/$1.err"; }

module toy plans/toy.lua -D tp=2
drive toy toy "${launch[@]}" -n 2 > "$WORK/toy.losses" || { cat "$WORK/toy.err"; fail "toy"; }
same_losses toy "$WORK/toy.losses" examples/library/expected.txt 1e-6

module samples "${samples[@]}"
make program plain "${samples[@]}" && start "$WORK/program" "$WORK/program" --data "$data" || fail "the program"
drive samples samples > "$WORK/samples.losses" || { cat "$WORK/samples.err"; fail "samples"; }
# The two are compiled by other flags.
same_losses samples "$WORK/samples.losses" "$WORK/program.losses" 1e-6
"$TOOLS/compare_safetensors" "$WORK/samples.saved/model.safetensors" "$WORK/program.saved/model.safetensors" 1e-6 || fail "samples: another checkpoint"
drive samples refuses > "$WORK/refuses.out" || { cat "$WORK/samples.err"; fail "refuses"; }
for words in "names the model's inputs are input, labels, not input" "shape input: its shape is (4, 5), and the model takes (4, 6)" \
  "batches a step takes 1 batches, not 2" "file rank 0: none: cannot open" "rate a factor of the learning rate is 0 or more" "label rank 0: the caller's data"; do
  grep -qF -- "$words" "$WORK/refuses.out" || { cat "$WORK/refuses.out"; fail "refuses: not '$words'"; }
done

# A model that generates has slots: their greedy tokens are those of transformers, with two ranks and with one.
folder=$golden/families/olmo2
for ranks in 1 2; do
  module slots_$ranks plans/generate.lua -D config="$folder/config.json" -D context=32 -D prefill=5 -D slots=3 -D tp=$ranks --library-name module
  words=$(PYTHONPATH=$WORK/slots_$ranks/build timeout 100 "${launch[@]}" -n $ranks python3 tests/plans/library/sequences.py \
    "$folder/generate.json" "$folder/model.safetensors" 2>&1) && [[ $words == *equal* ]] || { echo "$words"; fail "slots, $ranks ranks"; }
done
finish "modules for Python have the losses of the programs"
