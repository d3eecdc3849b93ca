// The gradient of what is added to attention's scores: the weights, which are computed again from
// the logarithms of their rows' sums, times the gradients of weights less their mean. A tile of
// queries of the bias goes over all sequences and heads that share it, and over the keys that they
// see. In a tile of scores the queries of one key are contiguous.
enum { $name$_QUERIES = 64, $name$_KEYS = 64 };

// Transposes rows, times the factor; zeros beyond the rows that exist.
static void $name$_transpose(float (*restrict transposed)[$name$_QUERIES],
                             const $type_q$ *restrict row, long step, int here, int width,
                             float factor)
{
  for (int i = 0; i < $name$_QUERIES; i++)
    for (int c = 0; c < width; c++)
      transposed[c][i] = i < here ? factor * $float_q$(row[i * step + c]) : 0;
}

static void $name$_widen(float *restrict to, const $type_q$ *restrict row, long step, int rows,
                         int width)
{
  for (int i = 0; i < rows; i++)
    for (int c = 0; c < width; c++) to[i * width + c] = $float_q$(row[i * step + c]);
}

// Adds the gradients of the scores of a tile of queries of one head, whose place among the keys is
// `place`.
static void $name$_add(float *restrict dbias, const $type_q$ *restrict dout,
                       const $type_q$ *restrict q, const $type_q$ *restrict k,
                       const $type_q$ *restrict v, const $type_q$ *restrict out,
                       const float *restrict lse, const float *restrict bias, int here, long place)
{
  enum { QUERIES = $name$_QUERIES, KEYS = $name$_KEYS, DEPTH = $d$, WIDTH = $e$ };
  const long keys = $k$, last = $causal$ && place + here < keys ? place + here : keys;
#if $window$
  const long far = place - $window$ + 1, near = place + here - 1 + $window$;
  const long begin = far > 0 ? far : 0, end = near < last ? near : last;
#else
  const long begin = 0, end = last;
#endif
  float transposed[DEPTH][QUERIES], transposed_dout[WIDTH][QUERIES], some_k[KEYS][DEPTH] = {{0}};
  float some_v[KEYS][WIDTH] = {{0}}, score[KEYS][QUERIES], slope[KEYS][QUERIES];
  float log_sum[QUERIES], mean[QUERIES];
  $name$_transpose(transposed, q, $step_q_q$, here, DEPTH, $s$);
  $name$_transpose(transposed_dout, dout, $step_dout_q$, here, WIDTH, 1);
  for (int i = 0; i < here; i++) {
    double sum = 0;
    for (int c = 0; c < WIDTH; c++)
      sum += (double)transposed_dout[c][i] * (double)$float_q$(out[i * $step_out_q$ + c]);
    mean[i] = (float)sum;
    log_sum[i] = lse[i] == -INFINITY ? INFINITY : lse[i]; // a query that sees no key
  }
  for (long key = begin; key < end; key += KEYS) {
    const int some = end - key < KEYS ? (int)(end - key) : KEYS;
    $name$_widen(some_k[0], k + key * $step_k_k$, $step_k_k$, some, DEPTH);
    $name$_widen(some_v[0], v + key * $step_v_k$, $step_v_k$, some, WIDTH);
    tile_product(score[0], QUERIES, some_k[0], DEPTH, 1, transposed[0], QUERIES, some, QUERIES,
                 DEPTH, false);
    tile_product(slope[0], QUERIES, some_v[0], WIDTH, 1, transposed_dout[0], QUERIES, some, QUERIES,
                 WIDTH, false);
    for (int j = 0; j < some; j++) {
#if $softcap$
      bound_scores(score[j], NULL, here, $softcap$);
#endif
      for (int i = 0; i < here; i++) score[j][i] += bias[i * $step_bias_q$ + key + j];
#if $window$
      const long before = key + j - place;
      hide_outside(score[j], $causal$ ? before : before - $window$ + 1, before + $window$, here);
#else
      hide_outside(score[j], $causal$ ? key + j - place : 0, here, here);
#endif
      for (int i = 0; i < here; i++)
        dbias[i * $step_dbias_q$ + key + j] +=
            tile_exp(score[j][i] - log_sum[i]) * (slope[j][i] - mean[i]);
    }
  }
}

void $name$(float *restrict dbias, const $type_q$ *restrict dout, const $type_q$ *restrict q,
            const $type_q$ *restrict k, const $type_q$ *restrict v, const $type_q$ *restrict out,
            const float *restrict lse, const float *restrict bias, long first_q, long first_k)
{
  enum { QUERIES = $name$_QUERIES };
  const long queries = $q$, keys = $k$, tiles = (queries + QUERIES - 1) / QUERIES;
  // the sequences, heads and tiles of queries that the bias has; and those that share one
  const long own_b = $size_dbias_b$, own_g = $size_dbias_g$, own_r = $size_dbias_r$;
  const long own_tiles = ($size_dbias_q$ + QUERIES - 1) / QUERIES, same_tiles = tiles / own_tiles;
  const long same_b = $b$ / own_b, same_g = $g$ / own_g, same_r = $r$ / own_r;
  const long all = own_b * own_g * own_r * own_tiles, same = same_b * same_g * same_r;
#pragma omp parallel for schedule(dynamic)
  for (long n = 0; n < all; n++) {
    const long first_b = n / own_tiles / own_r / own_g, head_g = n / own_tiles / own_r % own_g;
    const long head_r = n / own_tiles % own_r, tile = n % own_tiles;
    float *const to = dbias + first_b * $step_dbias_b$ + head_g * $step_dbias_g$ +
                      head_r * $step_dbias_r$ + tile * QUERIES * $step_dbias_q$;
    const long rows = $size_dbias_q$ - tile * QUERIES;
    for (long i = 0; i < rows && i < QUERIES; i++)
      memset(to + i * $step_dbias_q$, 0, (size_t)keys * sizeof *to);
    for (long m = 0; m < same * same_tiles; m++) {
      const long b = first_b + m / same_tiles / same_r / same_g;
      const long g = head_g + m / same_tiles / same_r % same_g;
      const long r = head_r + m / same_tiles % same_r;
      const long first = (tile + m % same_tiles) * QUERIES;
      const long head = (b * $g$ + g) * $r$ + r;
      $name$_add(
          to,
          dout + b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$ + first * $step_dout_q$,
          q + b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + first * $step_q_q$,
          k + b * $step_k_b$ + g * $step_k_g$, v + b * $step_v_b$ + g * $step_v_g$,
          out + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + first * $step_out_q$,
          lse + head * queries + first,
          bias + b * $step_bias_b$ + g * $step_bias_g$ + r * $step_bias_r$ + first * $step_bias_q$,
          queries - first < QUERIES ? (int)(queries - first) : QUERIES, first_q + first - first_k);
    }
  }
}
