// The gradients of q, k and v from that of attention's output. The weights are computed again from
// the logarithms of their rows' sums; the mean of the gradients of a row's weights is subtracted
// from each. One thread has the heads that share keys and values. A tile of queries of a head goes
// over the keys that they see, tile by tile; in a tile of scores the queries of one key are
// contiguous.
enum { $name$_QUERIES = 64, $name$_KEYS = 64 };

// Transposes rows, times the factor; zeros beyond the rows that exist.
static void $name$_transpose(float (*restrict transposed)[$name$_QUERIES],
                             const float *restrict row, long step, int here, int width,
                             float factor)
{
  for (int i = 0; i < $name$_QUERIES; i++)
    for (int c = 0; c < width; c++) transposed[c][i] = i < here ? factor * row[i * step + c] : 0;
}

static void $name$_clear(float *restrict row, long step, long here, int width)
{
  for (long i = 0; i < here; i++) memset(row + i * step, 0, (size_t)width * sizeof *row);
}

// Turns scores into weights, and the gradients of weights into those of scores.
static void $name$_weigh(float (*restrict score)[$name$_QUERIES],
                         float (*restrict slope)[$name$_QUERIES], int keys,
                         const float *restrict log_sum, const float *restrict mean)
{
  for (int j = 0; j < keys; j++)
    for (int i = 0; i < $name$_QUERIES; i++) {
      score[j][i] = tile_exp(score[j][i] - log_sum[i]);
      slope[j][i] = $s$ * score[j][i] * (slope[j][i] - mean[i]);
    }
}

void $name$(float *restrict dq, float *restrict dk, float *restrict dv, const float *restrict dout,
            const float *restrict q, const float *restrict k, const float *restrict v,
            const float *restrict out, const float *restrict lse,
#if $biased$
            const float *restrict bias,
#endif
#if $documents$
            const int *restrict document, const int *restrict key_document,
#endif
#if $places$
            const int *restrict place, const int *restrict key_place,
#endif
            long first_q, long first_k)
{
  enum { QUERIES = $name$_QUERIES, KEYS = $name$_KEYS, DEPTH = $d$, WIDTH = $e$ };
  const long groups = (long)$b$ * $g$, queries = $q$, keys = $k$;
  const long tiles = (queries + QUERIES - 1) / QUERIES;
  const bool causal = $causal$;
#pragma omp parallel for schedule(dynamic) if (groups * $r$ * queries * keys >= 16384)
  for (long group = 0; group < groups; group++) {
    // b: a sample, g: a group of heads that share keys and values.
    const long b = group / $g$, g = group % $g$;
    const float *const group_k = k + b * $step_k_b$ + g * $step_k_g$;
    const float *const group_v = v + b * $step_v_b$ + g * $step_v_g$;
    float *const group_dk = dk + b * $step_dk_b$ + g * $step_dk_g$;
    float *const group_dv = dv + b * $step_dv_b$ + g * $step_dv_g$;
    $name$_clear(group_dk, $step_dk_k$, keys, DEPTH);
    $name$_clear(group_dv, $step_dv_k$, keys, WIDTH);
    for (long tile = 0; tile < $r$ * tiles; tile++) {
      const long r = tile / tiles, first = tile % tiles * QUERIES;
      const int here = queries - first < QUERIES ? (int)(queries - first) : QUERIES;
      const long seen = first_q + first + here - first_k,
                 last = causal && seen < keys ? seen : keys;
#if $window$
      const long far = first_q + first - $window$ + 1 - first_k, near = seen - 1 + $window$;
      const long begin = far > 0 ? far : 0, end = near < last ? near : last;
#else
      const long begin = 0, end = last;
#endif
#if $documents$
      const int *const some_document = document + b * queries + first;
      const struct tile_range documents = tile_range(some_document, here);
#endif
#if $places$
      const int *const some_place = place + first;
      const struct tile_range places = tile_range(some_place, here);
#endif
      const float *const some_q =
          q + b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + first * $step_q_q$;
      const float *const some_out =
          out + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + first * $step_out_q$;
      const float *const some_dout =
          dout + b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$ + first * $step_dout_q$;
      float *const some_dq =
          dq + b * $step_dq_b$ + g * $step_dq_g$ + r * $step_dq_r$ + first * $step_dq_q$;
      float transposed[DEPTH][QUERIES], transposed_dout[WIDTH][QUERIES];
      float score[KEYS][QUERIES], slope[KEYS][QUERIES], log_sum[QUERIES], mean[QUERIES];
#if $softcap$
      float steep[KEYS][QUERIES]; // the slopes of the bounded scores
#endif
      $name$_transpose(transposed, some_q, $step_q_q$, here, DEPTH, $s$);
      $name$_transpose(transposed_dout, some_dout, $step_dout_q$, here, WIDTH, 1);
      $name$_clear(some_dq, $step_dq_q$, here, DEPTH);
      for (int i = 0; i < QUERIES; i++) {
        const float known = i < here ? lse[(group * $r$ + r) * queries + first + i] : -INFINITY;
        double sum = 0;
        for (int c = 0; i < here && c < WIDTH; c++)
          sum += (double)some_dout[i * $step_dout_q$ + c] * (double)some_out[i * $step_out_q$ + c];
        mean[i] = (float)sum;
        log_sum[i] = known == -INFINITY ? INFINITY : known; // a query that sees no key
      }
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
        const float *const some_k = group_k + key * $step_k_k$;
        const float *const some_v = group_v + key * $step_v_k$;
        tile_product(score[0], QUERIES, some_k, $step_k_k$, 1, transposed[0], QUERIES, some,
                     QUERIES, DEPTH, false);
        tile_product(slope[0], QUERIES, some_v, $step_v_k$, 1, transposed_dout[0], QUERIES, some,
                     QUERIES, WIDTH, false);
#if $softcap$
        for (int j = 0; j < some; j++) bound_scores(score[j], steep[j], QUERIES, $softcap$);
#endif
#if $biased$
        const float *const some_bias = bias + b * $step_bias_b$ + g * $step_bias_g$ +
                                       r * $step_bias_r$ + first * $step_bias_q$ + key;
        for (int j = 0; j < some; j++)
          for (int i = 0; i < here; i++) score[j][i] += some_bias[i * $step_bias_q$ + j];
#endif
#if $window$
        for (int j = 0; j < some; j++) {
          const long before = first_k + key + j - first_q - first;
          hide_outside(score[j], causal ? before : before - $window$ + 1, before + $window$,
                       QUERIES);
        }
#else
        for (int j = 0; causal && j < some; j++) {
          const long before = first_k + key + j - first_q - first;
          const long blind = before < QUERIES ? before : QUERIES;
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
        $name$_weigh(score, slope, some, log_sum, mean);
#if $softcap$
        for (int j = 0; j < some; j++)
          for (int i = 0; i < QUERIES; i++) slope[j][i] *= steep[j][i];
#endif
        tile_product(group_dv + key * $step_dv_k$, $step_dv_k$, score[0], QUERIES, 1, some_dout,
                     $step_dout_q$, some, WIDTH, here, true);
        tile_product(group_dk + key * $step_dk_k$, $step_dk_k$, slope[0], QUERIES, 1, some_q,
                     $step_q_q$, some, DEPTH, here, true);
        tile_product(some_dq, $step_dq_q$, slope[0], 1, QUERIES, some_k, $step_k_k$, here, DEPTH,
                     some, true);
      }
    }
  }
}
