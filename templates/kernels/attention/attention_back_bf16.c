// The gradients of bfloat16 q, k and v from that of attention's output, summed in float32. The
// weights are computed again from the logarithms of their rows' sums; the mean of the gradients of
// a row's weights is subtracted from each. Each sum is rounded once, when it is complete: a tile of
// keys goes over all queries that see it, and a tile of queries over all keys that it sees, so
// weights are computed for both.
enum { $name$_QUERIES = 64, $name$_KEYS = 64 };

static void $name$_narrow(bf16 *restrict row, long step, const float *restrict from, int rows,
                          int width)
{
  for (int i = 0; i < rows; i++)
    for (int c = 0; c < width; c++) row[i * step + c] = float_to_bf16(from[i * width + c]);
}

// The sum of the products of n pairs, in 16 parts.
static float $name$_dot(const bf16 *restrict x, const bf16 *restrict y, int n)
{
  float part[16] = {0}, sum = 0;
  for (int c = 0; c < n / 16 * 16; c += 16)
    for (int i = 0; i < 16; i++) part[i] += bf16_to_float(x[c + i]) * bf16_to_float(y[c + i]);
  for (int c = n / 16 * 16; c < n; c++) sum += bf16_to_float(x[c]) * bf16_to_float(y[c]);
  for (int i = 0; i < 16; i++) sum += part[i];
  return sum;
}

// What the weights of a tile of queries need; queries from `here` on get weight 0.
struct $name$_sums {
  float log_sum[$name$_QUERIES], mean[$name$_QUERIES];
};

static struct $name$_sums $name$_sums_of(const float *lse, const bf16 *dout, const bf16 *out,
                                         int here)
{
  struct $name$_sums of;
  for (int i = 0; i < $name$_QUERIES; i++) {
    const float known = i < here ? lse[i] : -INFINITY;
    of.mean[i] = i < here ? $name$_dot(dout + i * $step_dout_q$, out + i * $step_out_q$, $e$) : 0;
    of.log_sum[i] = known == -INFINITY ? INFINITY : known; // a query that sees no key
  }
  return of;
}

// From a score and a product of dout and v: the weight, and the gradient of the score's product.
static inline void $name$_weigh(float *score, float *slope, float log_sum, float mean)
{
  *score = tile_exp(*score - log_sum);
  *slope = $s$ * *score * (*slope - mean);
}

// Adds the share of a tile of queries to the gradients of a tile of keys and values, which are
// transposed. In the scores, the keys of one query are contiguous. `behind`: the first key's index
// minus the first query's.
static void $name$_add(float (*restrict sum_k)[$d$], float (*restrict sum_v)[$e$],
                       const bf16_pair *restrict transposed_k,
                       const bf16_pair *restrict transposed_v, int keys, const bf16 *q,
                       const bf16 *dout, const bf16 *out, const float *lse,
#if $biased$
                       const float *bias,
#endif
#if $documents$
                       const int *document, const int *key_document,
#endif
#if $places$
                       const int *place, const int *key_place,
#endif
                       int here, long behind)
{
  enum { QUERIES = $name$_QUERIES, KEYS = $name$_KEYS, DEPTH = $d$, WIDTH = $e$ };
  enum { PAIRS_Q = (DEPTH + 1) / 2, PAIRS_V = (WIDTH + 1) / 2 };
  const bool causal = $causal$;
  float score[QUERIES][KEYS], slope[QUERIES][KEYS];
#if $softcap$
  float steep[QUERIES][KEYS]; // the slopes of the bounded scores
#endif
  bf16_pair some_q[QUERIES][PAIRS_Q], some_dout[QUERIES][PAIRS_V];
  bf16_pair weight[QUERIES / 2][KEYS] = {{0}};
  bf16_pair below_q[QUERIES / 2][DEPTH], below_dout[QUERIES / 2][WIDTH];
  const struct $name$_sums by = $name$_sums_of(lse, dout, out, here);
  pair_along(some_q[0], QUERIES, q, $step_q_q$, here, DEPTH);
  pair_along(some_dout[0], QUERIES, dout, $step_dout_q$, here, WIDTH);
  pair_down(below_q[0], QUERIES, q, $step_q_q$, here, DEPTH);
  pair_down(below_dout[0], QUERIES, dout, $step_dout_q$, here, WIDTH);
  tile_product_bf16(score[0], KEYS, some_q[0], PAIRS_Q, 1, transposed_k, KEYS, here, KEYS, PAIRS_Q,
                    false);
  tile_product_bf16(slope[0], KEYS, some_dout[0], PAIRS_V, 1, transposed_v, KEYS, here, KEYS,
                    PAIRS_V, false);
  for (int i = 0; i < here; i++) {
    const long sees = i - behind + 1;
    for (int j = 0; j < KEYS; j++) score[i][j] *= $s$;
#if $softcap$
    bound_scores(score[i], steep[i], KEYS, $softcap$);
#endif
#if $biased$
    for (int j = 0; j < keys; j++) score[i][j] += bias[i * $step_bias_q$ + j];
#endif
#if $documents$
    hide_others(score[i], document[i], key_document, keys);
#endif
#if $places$
    hide_unseeing(score[i], place[i], key_place, keys, $places$ == 1, $reach$);
#endif
#if $window$
    hide_outside(score[i], sees - $window$, causal ? sees : sees - 1 + $window$, KEYS);
#endif
    for (int j = 0; j < KEYS; j++)
      $name$_weigh(&score[i][j], &slope[i][j], by.log_sum[i], by.mean[i]);
#if $softcap$
    for (int j = 0; j < KEYS; j++) slope[i][j] *= steep[i][j];
#endif
    for (long j = sees > 0 ? sees : 0; causal && j < KEYS; j++) score[i][j] = slope[i][j] = 0;
  }
  pair_down_floats(weight[0], score[0], here, KEYS);
  tile_product_bf16(sum_v[0], WIDTH, weight[0], 1, KEYS, below_dout[0], WIDTH, keys, WIDTH,
                    (here + 1) / 2, true);
  pair_down_floats(weight[0], slope[0], here, KEYS);
  tile_product_bf16(sum_k[0], DEPTH, weight[0], 1, KEYS, below_q[0], DEPTH, keys, DEPTH,
                    (here + 1) / 2, true);
}

// Adds the share of a tile of keys and values to the gradients of a tile of queries; these and the
// outputs' gradients are transposed. In the scores, the queries of one key are contiguous.
static void $name$_add_to_queries(float (*restrict sum)[$d$],
                                  const bf16_pair *restrict transposed_q,
                                  const bf16_pair *restrict transposed_dout,
                                  const struct $name$_sums *by, int here, const bf16 *k,
                                  const bf16 *v,
#if $biased$
                                  const float *bias,
#endif
#if $documents$
                                  const int *document, const int *key_document,
#endif
#if $places$
                                  const int *place, const int *key_place,
#endif
                                  int keys, long behind)
{
  enum { QUERIES = $name$_QUERIES, KEYS = $name$_KEYS, DEPTH = $d$, WIDTH = $e$ };
  enum { PAIRS_Q = (DEPTH + 1) / 2, PAIRS_V = (WIDTH + 1) / 2 };
  const bool causal = $causal$;
  float score[KEYS][QUERIES], slope[KEYS][QUERIES];
#if $softcap$
  float steep[KEYS][QUERIES]; // the slopes of the bounded scores
#endif
  bf16_pair some_k[KEYS][PAIRS_Q], some_v[KEYS][PAIRS_V], below_k[KEYS / 2][DEPTH];
  bf16_pair slopes[KEYS / 2][QUERIES];
  pair_along(some_k[0], KEYS, k, $step_k_k$, keys, DEPTH);
  pair_along(some_v[0], KEYS, v, $step_v_k$, keys, WIDTH);
  pair_down(below_k[0], KEYS, k, $step_k_k$, keys, DEPTH);
  tile_product_bf16(score[0], QUERIES, some_k[0], PAIRS_Q, 1, transposed_q, QUERIES, keys, QUERIES,
                    PAIRS_Q, false);
  tile_product_bf16(slope[0], QUERIES, some_v[0], PAIRS_V, 1, transposed_dout, QUERIES, keys,
                    QUERIES, PAIRS_V, false);
  for (int j = 0; j < keys; j++) {
    // fewer than all: the last one sees every key of the tile
    const long blind = causal ? behind + j : 0;
    for (int i = 0; i < QUERIES; i++) score[j][i] *= $s$;
#if $softcap$
    bound_scores(score[j], steep[j], QUERIES, $softcap$);
#endif
#if $biased$
    for (int i = 0; i < here; i++) score[j][i] += bias[i * $step_bias_q$ + j];
#endif
#if $documents$
    hide_others(score[j], key_document[j], document, here);
#endif
#if $places$
    hide_unseen(score[j], key_place[j], place, here, $places$ == 1, $reach$);
#endif
#if $window$
    const long before = behind + j;
    hide_outside(score[j], causal ? before : before - $window$ + 1, before + $window$, QUERIES);
#endif
    for (int i = 0; i < QUERIES; i++)
      $name$_weigh(&score[j][i], &slope[j][i], by->log_sum[i], by->mean[i]);
#if $softcap$
    for (int i = 0; i < QUERIES; i++) slope[j][i] *= steep[j][i];
#endif
    for (long i = 0; i < blind; i++) slope[j][i] = 0; // hidden by the causal mask
  }
  pair_down_floats(slopes[0], slope[0], keys, QUERIES);
  tile_product_bf16(sum[0], DEPTH, slopes[0], 1, QUERIES, below_k[0], DEPTH, here, DEPTH,
                    (keys + 1) / 2, true);
}

void $name$(bf16 *restrict dq, bf16 *restrict dk, bf16 *restrict dv, const bf16 *restrict dout,
            const bf16 *restrict q, const bf16 *restrict k, const bf16 *restrict v,
            const bf16 *restrict out, const float *restrict lse,
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
  enum { PAIRS_Q = (DEPTH + 1) / 2, PAIRS_V = (WIDTH + 1) / 2 };
  const long groups = (long)$b$ * $g$, heads = groups * $r$, queries = $q$, keys = $k$;
  const long tiles = (queries + QUERIES - 1) / QUERIES, key_tiles = (keys + KEYS - 1) / KEYS;
  const bool causal = $causal$;

#pragma omp parallel for schedule(dynamic) if (heads * queries * keys >= 16384)
  for (long tile = 0; tile < groups * key_tiles; tile++) {
    const long group = tile / key_tiles, key = tile % key_tiles * KEYS;
    // b: a sample, g: a group of heads that share keys and values.
    const long b = group / $g$, g = group % $g$;
    const int some = keys - key < KEYS ? (int)(keys - key) : KEYS;
    float sum_k[KEYS][DEPTH] = {{0}}, sum_v[KEYS][WIDTH] = {{0}};
    bf16_pair transposed_k[PAIRS_Q][KEYS], transposed_v[PAIRS_V][KEYS];
    tile_begin();
    pair_transposed(transposed_k[0], KEYS, k + b * $step_k_b$ + g * $step_k_g$ + key * $step_k_k$,
                    $step_k_k$, some, DEPTH);
    pair_transposed(transposed_v[0], KEYS, v + b * $step_v_b$ + g * $step_v_g$ + key * $step_v_k$,
                    $step_v_k$, some, WIDTH);
#if $documents$
    const int *const there = key_document + b * keys + key;
    const struct tile_range of_keys = tile_range(there, some);
#endif
#if $places$
    const int *const place_there = key_place + key;
    const struct tile_range places_there = tile_range(place_there, some);
#endif
    for (long n = 0; n < $r$ * tiles; n++) {
      const long r = n / tiles, first = n % tiles * QUERIES;
      const long behind = first_k + key - first_q - first;
      const int here = queries - first < QUERIES ? (int)(queries - first) : QUERIES;
      if (causal && behind >= QUERIES) continue;
#if $window$
      if (behind + some - 1 <= -$window$ || behind - here + 1 >= $window$) continue;
#endif
#if $documents$
      const int *const some_document = document + b * queries + first;
      if (!may_meet(tile_range(some_document, here), of_keys)) continue;
#endif
#if $places$
      const int *const some_place = place + first;
      if (!may_see(tile_range(some_place, here), places_there, $places$ == 1, $reach$)) continue;
#endif
      $name$_add(
          sum_k, sum_v, transposed_k[0], transposed_v[0], some,
          q + b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + first * $step_q_q$,
          dout + b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$ + first * $step_dout_q$,
          out + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + first * $step_out_q$,
          lse + (group * $r$ + r) * queries + first,
#if $biased$
          bias + b * $step_bias_b$ + g * $step_bias_g$ + r * $step_bias_r$ + first * $step_bias_q$ +
              key,
#endif
#if $documents$
          some_document, there,
#endif
#if $places$
          some_place, place_there,
#endif
          here, behind);
    }
    tile_end();
    $name$_narrow(dk + b * $step_dk_b$ + g * $step_dk_g$ + key * $step_dk_k$, $step_dk_k$, sum_k[0],
                  some, DEPTH);
    $name$_narrow(dv + b * $step_dv_b$ + g * $step_dv_g$ + key * $step_dv_k$, $step_dv_k$, sum_v[0],
                  some, WIDTH);
  }

#pragma omp parallel for schedule(dynamic) if (heads * queries * keys >= 16384)
  for (long tile = 0; tile < heads * tiles; tile++) {
    const long head = tile / tiles, b = head / ($g$ * $r$), g = head / $r$ % $g$, r = head % $r$;
    const long first = tile % tiles * QUERIES;
    const int here = queries - first < QUERIES ? (int)(queries - first) : QUERIES;
    const long seen = first_q + first + here - first_k, last = causal && seen < keys ? seen : keys;
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
    const bf16 *const some_q =
        q + b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + first * $step_q_q$;
    const bf16 *const some_dout =
        dout + b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$ + first * $step_dout_q$;
    const bf16 *const some_out =
        out + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + first * $step_out_q$;
    float sum[QUERIES][DEPTH] = {{0}};
    bf16_pair transposed_q[PAIRS_Q][QUERIES], transposed_dout[PAIRS_V][QUERIES];
    const struct $name$_sums by =
        $name$_sums_of(lse + head * queries + first, some_dout, some_out, here);
    tile_begin();
    pair_transposed(transposed_q[0], QUERIES, some_q, $step_q_q$, here, DEPTH);
    pair_transposed(transposed_dout[0], QUERIES, some_dout, $step_dout_q$, here, WIDTH);
    for (long key = begin; key < end; key += KEYS) {
      const int some = end - key < KEYS ? (int)(end - key) : KEYS;
#if $documents$
      const int *const there = key_document + b * keys + key;
      if (!may_meet(documents, tile_range(there, some))) continue;
#endif
#if $places$
      const int *const place_there = key_place + key;
      if (!may_see(places, tile_range(place_there, some), $places$ == 1, $reach$)) continue;
#endif
      $name$_add_to_queries(sum, transposed_q[0], transposed_dout[0], &by, here,
                            k + b * $step_k_b$ + g * $step_k_g$ + key * $step_k_k$,
                            v + b * $step_v_b$ + g * $step_v_g$ + key * $step_v_k$,
#if $biased$
                            bias + b * $step_bias_b$ + g * $step_bias_g$ + r * $step_bias_r$ +
                                first * $step_bias_q$ + key,
#endif
#if $documents$
                            some_document, there,
#endif
#if $places$
                            some_place, place_there,
#endif
                            some, first_k + key - first_q - first);
    }
    tile_end();
    $name$_narrow(dq + b * $step_dq_b$ + g * $step_dq_g$ + r * $step_dq_r$ + first * $step_dq_q$,
                  $step_dq_q$, sum[0], here, DEPTH);
  }
}
