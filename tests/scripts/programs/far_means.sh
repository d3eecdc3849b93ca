#!/usr/bin/env bash
# Batch norms of numbers whose mean is far above their deviation: what comes out, the gradient and the running
# statistics are at most twice as far from float64 as PyTorch's (tests/golden/far_means), on one rank, on meshes and
# on the stand-in.
. "$(dirname "$0")/../common.sh"
local_mpi=yes
. "$root/tests/scripts/programs.sh"
facts=$golden/far_means
make_runtimes plain cuda

# is_near NAME KIND DATA ARGUMENTS...
is_near() {
  local name=$1.$2.$3 mean
  [ "$3" = images ] || set -- "$@" -D row=1
  for mean in 10 100 1000; do
    make "$name.$mean" "$2" tests/plans/far_means/plan.lua -D "mean=$mean" "${@:4}" || return
    start "$WORK/$name.$mean" "$WORK/$name.$mean" --data "$facts/$3.safetensors" || { fail "$name.$mean"; return; }
    "$TOOLS/distances" "$facts/$3.safetensors" "$WORK/$name.$mean.saved/model.safetensors" $mean > "$WORK/$name.$mean.distances" ||
      { fail "$name.$mean"; return; }
    paste <(awk -v data="$3" -v mean=$mean '$1 == data && $2 == mean' "$facts/distances.tsv") "$WORK/$name.$mean.distances" |
      awk -v name="$name.$mean" '
        BEGIN { split("value gradient running_mean running_var", what) }
        {
          for (i = 1; i <= 4; i++) {
            most = 2 * $(i + 2)
            if (i == 4 && most < 2.4e-7) most = 2.4e-7 # two of its last bit
            line = line sprintf("  %s %s of %s", what[i], $(i + 6), $(i + 2))
            if (!($(i + 6) <= most)) bad = bad " " what[i]
          }
        }
        END { print "  " name ":" line; if (NR != 1 || bad) { print "  too far:" bad; exit 1 } }' ||
      fail "$name.$mean: farther from float64 than twice PyTorch"
  done
}
beside "$WORK/one.log" is_near one plain images
beside "$WORK/cuda.log" is_near one cuda images
beside "$WORK/mesh.log" is_near mesh plain images -D dp=2
beside "$WORK/rows.log" is_near one plain rows
beside "$WORK/rows_mesh.log" is_near mesh cuda rows -D dp=2
all_are_done
cat "$WORK"/{one,cuda,mesh,rows,rows_mesh}.log

finish "batch norms round no more than twice as much as PyTorch's"
