// softmax(scale q k^T) v, and the logarithm of the sum of each row's exponentials. A tile of
// queries of a head goes over the keys that they see, tile by tile. When a query meets a larger
// score, its sums so far are rescaled. In a tile of scores the queries of one key are contiguous.
#if $bf16$
// Products are of pairs of bfloat16, and are summed in float32.
#endif
enum { $name$_QUERIES = 64, $name$_KEYS = 64 };

// Turns scores into weights, and rescales the queries' earlier sums to the same base.
static void $name$_weigh(float (*restrict score)[$name$_QUERIES], int keys, float *restrict most,
                         float *restrict total, float (*restrict sum)[$e$])
{
  enum { QUERIES = $name$_QUERIES };
  float base[QUERIES], less[QUERIES];
  for (int i = 0; i < QUERIES; i++) base[i] = most[i];
  for (int j = 0; j < keys; j++)
    for (int i = 0; i < QUERIES; i++) base[i] = score[j][i] > base[i] ? score[j][i] : base[i];
  for (int i = 0; i < QUERIES; i++) {
    less[i] = most[i];
    most[i] = base[i];
    base[i] = base[i] == -INFINITY ? 0 : base[i];
  }
  for (int i = 0; i < QUERIES; i++) {
    less[i] = tile_exp(less[i] - base[i]);
    total[i] *= less[i];
  }
  for (int j = 0; j < keys; j++)
    for (int i = 0; i < QUERIES; i++) {
      score[j][i] = tile_exp(score[j][i] - base[i]);
      total[i] += score[j][i];
    }
  for (int i = 0; i < QUERIES; i++)
    for (int c = 0; c < $e$; c++) sum[i][c] *= less[i];
}

void $name$($type_out$ *restrict out, float *restrict lse, const $type_q$ *restrict q,
            const $type_k$ *restrict k, const $type_v$ *restrict v,
#if $biased$
            const float *restrict bias,
#endif
#if $documents$
            const int *restrict document, const int *restrict key_document,
#endif
#if $places$
            const int *restrict place, const int *restrict key_place,
#endif
#if $sinks$
            const float *restrict sink,
#endif
#if $ring$
            long first_k,
#endif
            long first_q)
{
  enum { QUERIES = $name$_QUERIES, KEYS = $name$_KEYS, DEPTH = $d$, WIDTH = $e$ };
#if $bf16$
  enum { PAIRS = (DEPTH + 1) / 2 };
#endif
  const long heads = (long)$b$ * $g$ * $r$, queries = $q$, keys = $k$;
  const long tiles = (queries + QUERIES - 1) / QUERIES;
  const bool causal = $causal$;
#if $ring$
  first_q -= first_k;
#endif
#pragma omp parallel for schedule(dynamic) if (heads * queries * keys >= 16384)
  for (long tile = 0; tile < heads * tiles; tile++) {
    // b: a sample, g: a group of heads that share keys and values, r: a head of the group.
    const long head = tile / tiles, b = head / ($g$ * $r$), g = head / $r$ % $g$, r = head % $r$;
    const long first = tile % tiles * QUERIES;
    const int here = queries - first < QUERIES ? (int)(queries - first) : QUERIES;
    const long seen = first_q + first + here, last = causal && seen < keys ? seen : keys;
#if $window$
    const long far = first_q + first - $window$ + 1, near = seen - 1 + $window$;
    const long begin = far > 0 ? far : 0, end = near < last ? near : last;
#else
    const long begin = 0, end = last;
#endif
    const $type_q$ *const query =
        q + b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + first * $step_q_q$;
    const $type_k$ *const group_k = k + b * $step_k_b$ + g * $step_k_g$;
    const $type_v$ *const group_v = v + b * $step_v_b$ + g * $step_v_g$;
    $type_out$ *const to =
        out + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + first * $step_out_q$;
#if $bf16$
    bf16_pair transposed[PAIRS][QUERIES], some_k[KEYS][PAIRS], some_v[KEYS / 2][WIDTH];
    bf16_pair weight[KEYS / 2][QUERIES];
    float score[KEYS][QUERIES], sum[QUERIES][WIDTH] = {{0}};
#else
    float transposed[DEPTH][QUERIES], score[KEYS][QUERIES], sum[QUERIES][WIDTH] = {{0}};
#endif
    float most[QUERIES], total[QUERIES] = {0};
    for (int i = 0; i < QUERIES; i++) most[i] = -INFINITY;
#if $sinks$
    for (int i = 0; i < QUERIES; i++) most[i] = sink[head % ($g$ * $r$)], total[i] = 1;
#endif
#if $documents$
    const int *const some_document = document + b * queries + first;
    const struct tile_range documents = tile_range(some_document, here);
#endif
#if $places$
    const int *const some_place = place + first;
    const struct tile_range places = tile_range(some_place, here);
#endif
#if $bf16$
    tile_begin();
    pair_transposed(transposed[0], QUERIES, query, $step_q_q$, here, DEPTH);
#else
    for (int c = 0; c < DEPTH; c++)
      for (int i = 0; i < QUERIES; i++)
        transposed[c][i] = $s$ * query[(i < here ? i : here - 1) * $step_q_q$ + c];
#endif
    for (long key = begin; key < end; key += KEYS) {
      const int some = end - key < KEYS ? (int)(end - key) : KEYS;
#if $documents$
      const int *const there = key_document + b * keys + key;
      const struct tile_range of_keys = tile_range(there, some);
      if (!may_meet(documents, of_keys)) continue;
#endif
#if $places$
      const int *const place_there = key_place + key;
      const struct tile_range places_there = tile_range(place_there, some);
      if (!may_see(places, places_there, $places$ == 1, $reach$)) continue;
#endif
#if $bf16$
      pair_along(some_k[0], KEYS, group_k + key * $step_k_k$, $step_k_k$, some, DEPTH);
      pair_down(some_v[0], KEYS, group_v + key * $step_v_k$, $step_v_k$, some, WIDTH);
      tile_product_bf16(score[0], QUERIES, some_k[0], PAIRS, 1, transposed[0], QUERIES, some,
                        QUERIES, PAIRS, false);
      for (int j = 0; j < some; j++)
        for (int i = 0; i < QUERIES; i++) score[j][i] *= $s$;
#else
      tile_product(score[0], QUERIES, group_k + key * $step_k_k$, $step_k_k$, 1, transposed[0],
                   QUERIES, some, QUERIES, DEPTH, false);
#endif
#if $softcap$
      for (int j = 0; j < some; j++) bound_scores(score[j], NULL, QUERIES, $softcap$);
#endif
#if $biased$
      const float *const some_bias = bias + b * $step_bias_b$ + g * $step_bias_g$ +
                                     r * $step_bias_r$ + first * $step_bias_q$ + key;
      for (int j = 0; j < some; j++)
        for (int i = 0; i < here; i++) score[j][i] += some_bias[i * $step_bias_q$ + j];
#endif
#if $window$
      for (int j = 0; j < some; j++) {
        const long before = key + j - first_q - first;
        hide_outside(score[j], causal ? before : before - $window$ + 1, before + $window$, QUERIES);
      }
#else
      for (int j = 0; causal && j < some; j++) {
        const long before = key + j - first_q - first, blind = before < QUERIES ? before : QUERIES;
        for (long i = 0; i < blind; i++) score[j][i] = -INFINITY; // hidden by the causal mask
      }
#endif
#if $documents$
      for (int j = 0; !are_one(documents, of_keys) && j < some; j++)
        hide_others(score[j], there[j], some_document, here);
#endif
#if $places$
      for (int j = 0; !see_all(places, places_there, $places$ == 1, $reach$) && j < some; j++)
        hide_unseen(score[j], place_there[j], some_place, here, $places$ == 1, $reach$);
#endif
      $name$_weigh(score, some, most, total, sum);
#if $bf16$
      pair_down_floats(weight[0], score[0], some, QUERIES);
      tile_product_bf16(sum[0], WIDTH, weight[0], 1, QUERIES, some_v[0], WIDTH, here, WIDTH,
                        (some + 1) / 2, true);
#else
      tile_product(sum[0], WIDTH, score[0], 1, QUERIES, group_v + key * $step_v_k$, $step_v_k$,
                   here, WIDTH, some, true);
#endif
    }
    for (int i = 0; i < here; i++) {
      const float part = total[i] > 0 ? 1 / total[i] : 0;
      lse[head * queries + first + i] = most[i] + logf(total[i]);
      for (int c = 0; c < WIDTH; c++) to[i * $step_out_q$ + c] = $from_float_out$(part * sum[i][c]);
    }
#if $bf16$
    tile_end();
#endif
  }
}
