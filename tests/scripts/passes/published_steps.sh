#!/usr/bin/env bash
# Simulated steps beside published ones (golden/published_steps.tsv), on the clusters where they were measured: how far they are
# apart, and whether two ways to train one model are in the right order. The mean of |log(simulated / measured)| is at most 0.10 on
# A100 and 0.15 on H100, and of the pairs that are measured more than 5 % apart one in 20 at most is not in order.
#
# Steps of A100 with 40 GB, ids that end with a10040, are simulated with their memory's bandwidth, and compared with those of all A100.
#
# ZeRO-3 of DeepSpeed in 2021 is told, and not counted: it left a node by one card, which the table's cluster does not say.
#   Every twelfth row; CASES=all: all, and how well the order can be simulated at all (tools/published_limits.py)
#   WRITTEN_OUT   1: Megatron's rows of 2021 and 2022 have attention in products and a softmax, as its programs had then. It tells the
#                 order of those that tpgen has the memory for, and compares nothing else.
. "$(dirname "$0")/../common.sh"
every=12
! all_cases || every=1
awk -v every=$every '!/^#/ && n++ % every == 0' "$golden/published_steps.tsv" > "$WORK/rows"
while IFS=$'\t' read -r source id device devices intra inter seconds model operations plan settings; do
  arguments=()
  for setting in $settings; do arguments+=(-D "$setting"); done
  if [ -n "${WRITTEN_OUT:-}" ]; then
    [[ $source == Megatron_202* && $id != *zero3* ]] || continue
    arguments+=(-D attention_dropout=0.1)
  fi
  node=$((devices < 8 ? devices : 8)) card=$device
  [[ $id != *-a10040 ]] || card=A100-40GB
  printf '{"name": "%s", "device": "%s", "nodes": %d, "devices_per_node": %d,\n "intra": {"bandwidth": %se9}, "inter": {"bandwidth": %se9, "cards": %d}}\n' \
    "$source" "$card" $((devices / node)) $node "$intra" "$inter" $node > "$WORK/cluster.json"
  "$TPGEN" "$plan" -o "$WORK/out" --target cuda --ranks 0 -D "cluster=$WORK/cluster.json" "${arguments[@]}" 2> "$WORK/err" ||
    { [ -n "${WRITTEN_OUT:-}" ] && echo "  $id: $(head -n 1 "$WORK/err")" >&3 || fail "$id: $(head -n 1 "$WORK/err")"; continue; }
  simulated=$(sed -n '/"simulated_step"/,/}/s/^ *"seconds": \([0-9.e+-]*\),*$/\1/p' "$WORK/out/plan.json")
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$source" "$id" "$device" "$seconds" "$simulated" "$model" "$operations $devices"
done < "$WORK/rows" 3>&1 > "$WORK/steps"
! all_cases || python3 tests/tools/published_limits.py "$golden/published_steps.tsv" "$WORK/steps"
[ -z "${WRITTEN_OUT:-}" ] || finish "$(wc -l < "$WORK/steps") of Megatron's steps with attention written out"
[ -z "${WRITTEN_OUT:-}" ] || exit 0
awk -F '\t' '
  function abs(x) { return x < 0 ? -x : x }
  {
    apart = abs(log($5 / $4))
    n[$1]++; sum[$1] += apart
    if (apart > worst[$1]) worst[$1] = apart
    if ($2 ~ /zero3/) next
    all[$3]++; of_all[$3] += apart
  }
  END {
    for (s in n) printf "  %-26s %3d rows, mean %.3f, worst %.3f\n", s, n[s], sum[s] / n[s], worst[s]
    for (d in all) printf "%s %d %.3f\n", d, all[d], of_all[d] / all[d] > "'"$WORK/means"'"
  }' "$WORK/steps" | sort
while read -r device rows mean; do
  printf '  %-26s %3d rows, mean %s\n' "all $device" "$rows" "$mean"
  awk -v mean="$mean" -v most="$([ "$device" = A100 ] && echo 0.10 || echo 0.15)" 'BEGIN { exit !(mean <= most) }' ||
    fail "$device: simulated steps are $mean from published ones in the mean of |log|"
done < "$WORK/means"
# Pairs of one model on one device, by the operations a second of a device.
awk -F '\t' '
  function abs(x) { return x < 0 ? -x : x }
  $2 !~ /zero3/ {
    split($7, of, " ")
    n++
    model[n] = $3 " " $6; id[n] = $2; measured[n] = log(of[1] / of[2] / $4); simulated[n] = log(of[1] / of[2] / $5)
    for (i = 1; i < n; i++) {
      if (model[i] != model[n] || abs(measured[i] - measured[n]) <= 0.05) continue
      pairs++
      if ((measured[i] - measured[n]) * (simulated[i] - simulated[n]) > 0) right++
    }
  }
  END { print right + 0, pairs + 0 }' "$WORK/steps" > "$WORK/pairs"
read -r right pairs < "$WORK/pairs"
((20 * (pairs - right) < pairs + 20)) || fail "only $right of $pairs pairs are in order"
finish "$(wc -l < "$WORK/steps") published steps; $right of $pairs pairs in order"
