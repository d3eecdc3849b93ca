# Trains models of Hugging Face transformers from their config.json and weights, and compares with its losses; for scripts
# that set `models` (a folder of tests/golden) and `steps`; sourced after programs.sh. MODELS: only these.
export OMP_NUM_THREADS=1
within=(${WITHIN:-2e-5 2e-4})

# trains MODEL PLAN KIND MESH ARGUMENTS...: MESH is as dp=2,tp=2.
trains() {
  local of=$models/$1 kind=$3 name=$1.$3.$4 arguments=(-D config="$models/$1/config.json" -D batch=4)
  [[ " $* " == *" lr="* ]] || arguments+=(-D lr=1e-2)
  local to=$WORK/$name mesh data
  IFS=, read -ra mesh <<< "$4"
  [ "$kind" != cuda ] || arguments+=(--target cuda)
  data=$of/batch.safetensors
  [ -e "$data" ] || data=$of/tokens.u16
  "$TPGEN" "plans/$2.lua" -o "$to" "${arguments[@]}" "${mesh[@]/#/-D}" "${@:5}" && make_ranks "$to" "$kind" &&
    start "$to" "$to" --weights "$of/model.safetensors" --data "$data" --steps $steps ||
    { fail "$name: no program, or it failed"; return; }
  numbers loss "$to.jsonl" > "$to.loss"
  tr -d '[] ' < "$of/losses.json" | tr , '\n' > "$to.golden"
  echo >> "$to.golden"
  near "$name" "$to.loss" "$to.golden"
}

# on_meshes MODEL PLAN ARGUMENTS...: on those in `meshes`.
on_meshes() {
  local mesh
  [[ -z ${MODELS:-} || " $MODELS " == *" $1 "* ]] || return 0
  for mesh in "${meshes[@]}"; do beside "$WORK/$1.$mesh.log" trains "$1" "$2" plain "$mesh" "${@:3}"; done
}
