#!/usr/bin/env bash
# tpgen and the unit tests under the address and undefined-behaviour sanitizers. Leaks are not looked
# for: what tpgen takes it keeps until it ends. SOAK=1: with every row and all mutants.
. "$(dirname "$0")/../common.sh"

export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
build=$(dirname "$WORK")/sanitize-build
by_force='^unit\.(rule|sharded)$'
apart='^unit\.(kernel|kernel_file|matmul|bf16|offers)$'
# The programs of those tests that are run, and what the scripts use.
targets() {
  cmake --build "$build" --target help | sed -nE 's/^((unit|runtime)_[a-z0-9_]+):.*/\1/p' |
    while read -r name; do [[ ${name/_/.} =~ $apart ]] || echo "$name"; done
  echo tpgen mutate mutate_dump fuzz_archive fuzz_archive_reader fuzz_config fuzz_safetensors fuzz_text
}

unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER # nothing is compiled twice
cmake --preset sanitize -B "$build" > "$WORK/log" 2>&1 &&
  cmake --build "$build" --parallel 2 --target $(targets) >> "$WORK/log" 2>&1 || {
  tail -n 60 "$WORK/log"
  fail "the build failed: see above"
  finish
}
# In that build: the cmocka programs, but for those that mostly compile what was generated or try what another
# tries, the pairs of plans and dumps, fewer of the mutants, and each plan of tests/equal on one of its meshes
# (CASES=all: on all), for the two targets in turn (SOAK=1: for both).
# Those that try every operator by force try some of every sort.
rows="matmul add maximum where cast dropout tril rotary sum amax expand permute view cat narrow pad gather
  scatter_add index_select embedding cumsum argsort attention attention_back conv2d max_pool2d custom"
run_units() {
  ctest --test-dir "$build" --output-on-failure -j 2 -L 'unit|runtime' "$@" > "$WORK/log" 2>&1 || {
    cat "$WORK/log"
    fail "unit tests"
  }
}
# The planner's two largest tests take minutes here: a soak has them; unit.threads asks the planner, too.
run_units -E "$by_force|$apart$([ -n "${SOAK:-}" ] || echo "|^unit\.(moves|redistribute)$")"
[ -n "${SOAK:-}" ] || export TPGEN_ROWS=$(tr -s "\n " " " <<< "$rows")
run_units -R "$by_force"
unset TPGEN_ROWS
mutants=${SOAK:+1000}
MUTANTS=${mutants:-200} ctest --test-dir "$build" -C ci --output-on-failure -R '^(pairs|mutate)$' > "$WORK/log" 2>&1 || {
  cat "$WORK/log"
  fail "scripts"
}
# Many times as many dumps: after each pass of three plans.
dumps=${SOAK:+300}
TPGEN="$build/tpgen" TOOLS="$build/tests" WORK="$WORK/dumps" MUTANTS=${dumps:-5} bash tests/scripts/passes/mutated_dumps.sh > "$WORK/log" 2>&1 || {
  cat "$WORK/log"
  fail "mutants of dumps"
}
# Mutants of archives, as tpgen and as the runtime reads them.
for tool in fuzz_archive fuzz_archive_reader; do
  "$build/tests/$tool" "$golden/torch_export/storages.pt2" "$WORK/mutant.pt2" 10000 ${SOAK:+100}200 > "$WORK/log" 2>&1 || {
    cat "$WORK/log"
    fail "$tool"
  }
done
# Mutants of a config.json of each family: a plan makes a program, or says why not in words of its own.
for config in "$golden"/families/*/config.json; do
  for plan in "causal_lm seq=16" "generate context=32"; do
    read -ra words <<< "$plan"
    "$build/tests/fuzz_config" "plans/${words[0]}.lua" "$config" "$WORK/config.json" 10000 ${SOAK:+50}6 "${words[@]:1}" > "$WORK/log" 2>&1 || {
      cat "$WORK/log"
      fail "fuzz_config of $config for ${words[0]}"
    }
  done
done
# Mutants of files of weights, plain and packed, and of an index.
mkdir "$WORK/indexed"
for name in qwen3_moe gpt_oss_mxfp4; do cp "$golden/families/$name/model.safetensors" "$WORK/indexed/$name.safetensors"; done
head -n 1 "$WORK/indexed/qwen3_moe.safetensors" | tail -c +9 | grep -ao '"[a-z_0-9.]*":{"dtype"' | cut -d '"' -f 2 |
  sed 's/.*/"&": "qwen3_moe.safetensors"/' | paste -sd , | sed 's/.*/{"weight_map": {&}}/' > "$WORK/indexed/model.safetensors.index.json"
for name in qwen3_moe.safetensors gpt_oss_mxfp4.safetensors model.safetensors.index.json; do
  "$build/tests/fuzz_safetensors" "$WORK/indexed/$name" "$WORK/indexed/mutant.$name" 10000 ${SOAK:+100}300 > "$WORK/log" 2>&1 || {
    cat "$WORK/log"
    fail "fuzz_safetensors of $name"
  }
done
for file in "$golden"/tokenizer/*/tokenizer.json; do
  "$build/tests/fuzz_text" "$file" "$WORK/mutant.json" 10000 ${SOAK:+10}500 > "$WORK/log" 2>&1 || {
    cat "$WORK/log"
    fail "fuzz_text of $file"
  }
done
# generate_for TARGETS PLAN ARGUMENTS...
generate_for() {
  local target
  for target in $1; do
    "$build/tpgen" "${@:2}" -o "$WORK/out" --target $target || fail "${*:2} for $target: status $?"
    rm -rf "$WORK/out"
  done
}
for plan in plans/*.lua; do
  arguments=()
  [ "$plan" != plans/torch_export.lua ] || arguments=(-D "model=$golden/torch_export/gpt2.pt2" -D tp=2)
  generate_for "cpu cuda" "$plan" "${arguments[@]}"
done
# Its plan makes modules after auto().
generate_for cpu plans/torch_export.lua -D "model=$golden/torch_export/decompositions.core.pt2" -D loss=mse -D tp=2
both=(cpu cuda) turn=0
for plan in tests/equal/*.lua; do
  mapfile -t meshes < <(sed -n 's/^-- mesh: *//p' "$plan")
  mapfile -t of_cuda < <(sed -n 's/^-- cuda: *//p' "$plan")
  all_cases || [ ${#meshes[@]} -lt 2 ] || meshes=("${meshes[turn % ${#meshes[@]}]}")
  for i in "${!meshes[@]}"; do
    targets=${both[turn++ % 2]}
    [ -z "${SOAK:-}" ] || targets=${both[*]}
    ! grep -q '^-- targets: cpu' "$plan" || targets=cpu
    for target in $targets; do
      # Some meshes, with a limit of memory, are for one target.
      mesh=${meshes[i]}
      [ "$target" = cpu ] || [ ${#of_cuda[@]} -eq 0 ] || mesh=${of_cuda[i % ${#of_cuda[@]}]}
      read -ra words <<< "$mesh"
      generate_for "$target" "$plan" "${words[@]/#/-D}"
    done
  done
done
finish "no sanitizer had anything to say"
