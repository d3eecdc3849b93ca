#!/usr/bin/env bash
# The kernel of AdamW that tpgen traces from Lua, beside a loop written by hand in C (adamw.c): the same compiler
# and flags, in turn, in one process.
#   ROUNDS   (30)
#   SIZES    (256 2048)     of the square matrices: in the cache, and beyond it
set -euo pipefail
. "$(dirname "$0")/common.sh"

cat > "$work/plan.lua" << 'END'
local mesh, n = device_mesh{ {"dp", 1} }, args.n
local Model = nn.module("Model", function(self)
  self.weight = nn.Parameter{n, n, init = nn.init.normal(0, 0.02)}
  function self:forward(x) return x + self.weight end
end)
return train{
  model = Model(), batch = distribute({input = randn{n, n}}, mesh.dp, Shard(0)),
  loss = function(y) return y:square():mean() end, optimizer = AdamW{}, steps = 1,
}
END

for n in ${SIZES:-$(short_or 32 "256 2048")}; do
  "$TPGEN" "$work/plan.lua" -o "$work/$n" -D "n=$n"
  flags=$(sed -n 's/^set(CMAKE_C_FLAGS "\([^"]*\)".*/\1/p' "$work/$n/CMakeLists.txt")
  for file in "$work/$n/kernels.c" "$root/tests/bench/adamw.c"; do
    # shellcheck disable=SC2086
    ${CC:-cc} $flags -fopenmp -DKERNEL="adamw_$((n * n))" -DN=$((n * n)) -I "$work/$n" -I "$work/$n/runtime" \
      -c "$file" -o "$work/$(basename "$file").o"
  done
  ${CC:-cc} -fopenmp "$work/kernels.c.o" "$work/adamw.c.o" -lm -o "$work/bench"
  "$work/bench" "${ROUNDS:-$(short_or 2 30)}"
done
