#!/usr/bin/env bash
# Norms of numbers whose mean is far above their deviation: what comes out, the gradient and a batch norm's running
# statistics are at most twice as far from float64 as PyTorch's (tests/golden/far_means), on one rank, on meshes and
# on the stand-in.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
facts=$golden/far_means
make_runtimes plain cuda

# is_near NAME KIND DATA TOGETHER ARGUMENTS...
is_near() {
  local name=$1.$2.$3.$4 mean
  [ "$3" = images ] || set -- "$@" -D row=1
  for mean in 10 100 1000; do
    make "$name.$mean" "$2" tests/plans/far_means/plan.lua -D "mean=$mean" -D "together=$4" "${@:5}" || return
    start "$WORK/$name.$mean" "$WORK/$name.$mean" --data "$facts/$3.safetensors" || { fail "$name.$mean"; return; }
    "$TOOLS/distances" "$facts/$3.safetensors" "$WORK/$name.$mean.saved/model.safetensors" $mean "$4" > "$WORK/$name.$mean.distances" ||
      { fail "$name.$mean"; return; }
    paste <(awk -v data="$3" -v mean=$mean -v together="$4" '$1 == data && $2 == mean && $3 == together' "$facts/distances.tsv") "$WORK/$name.$mean.distances" |
      awk -v name="$name.$mean" '
        BEGIN { split("value gradient running_mean running_var", what) }
        {
          n = (NF - 3) / 2
          if (n != 2 && n != 4) bad = " numbers"
          for (i = 1; i <= n; i++) {
            most = 2 * $(i + 3)
            if (i == 4 && most < 2.4e-7) most = 2.4e-7 # two of its last bit
            line = line sprintf("  %s %s of %s", what[i], $(i + 3 + n), $(i + 3))
            if (!($(i + 3 + n) <= most)) bad = bad " " what[i]
          }
        }
        END { print "  " name ":" line; if (NR != 1 || bad) { print "  too far:" bad; exit 1 } }' ||
      fail "$name.$mean: farther from float64 than twice PyTorch"
  done
}
beside "$WORK/one.log" is_near one plain images 0
beside "$WORK/cuda.log" is_near one cuda images 0
beside "$WORK/mesh.log" is_near mesh plain images 0 -D dp=2
beside "$WORK/rows.log" is_near one plain rows 0
beside "$WORK/rows_mesh.log" is_near mesh cuda rows 0 -D dp=2
for together in 256 128 64; do
  beside "$WORK/images.$together.log" is_near one plain images $together
  beside "$WORK/images_mesh.$together.log" is_near mesh plain images $together -D dp=2 -D tp=2
  in_ci beside "$WORK/images_cuda.$together.log" is_near one cuda images $together
done
beside "$WORK/rows_layer.log" is_near one plain rows 4
beside "$WORK/rows_layer_mesh.log" is_near mesh cuda rows 4 -D tp=2
all_are_done
cat "$WORK"/*.log

finish "norms round no more than twice as much as PyTorch's"
