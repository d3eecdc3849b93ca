// The gradients of q, k and v from that of attention's output. The weights are computed again from
// the logarithms of their rows' sums; the mean of the gradients of a row's weights is subtracted
// from each. One thread computes each sum, in a fixed order, so results repeat bit for bit: the
// gradients of k and v go over the queries, that of q over the keys, and scores are computed for
// both.

// For up to 64 rows, the logarithms of their sums and the means of the gradients of their weights,
// by 4 threads each.
static __device__ void $name$_means(float *log_sum, float *mean, const float *lse,
                                    const $type_q$ *dout, const $type_q$ *out, long rows)
{
  const int row = (int)threadIdx.x / 4;
  float sum = 0;
  if (row < rows)
    for (int c = (int)threadIdx.x % 4; c < $e$; c += 4)
      sum += to_float(dout[row * $step_dout_q$ + c]) * to_float(out[row * $step_out_q$ + c]);
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (threadIdx.x % 4 || row >= rows) return;
  mean[row] = sum;
  log_sum[row] = lse[row] == -INFINITY ? INFINITY : lse[row]; // a query that sees no key
}

// The gradients of k and v. A block has 64 keys and goes over the queries that see them, of all
// heads that share them, 64 at a time; a thread has 4 of each.
// launch: $b$ * $g$ * (($k$ + 63) / 64), 256
__global__ void $name$($type_q$ *__restrict__ dq, $type_q$ *__restrict__ dk,
                       $type_q$ *__restrict__ dv, const $type_q$ *__restrict__ dout,
                       const $type_q$ *__restrict__ q, const $type_q$ *__restrict__ k,
                       const $type_q$ *__restrict__ v, const $type_q$ *__restrict__ out,
                       const float *__restrict__ lse,
#if $biased$
                       const float *__restrict__ bias,
#endif
#if $documents$
                       const int *__restrict__ document, const int *__restrict__ key_document,
#endif
#if $places$
                       const int *__restrict__ place, const int *__restrict__ key_place,
#endif
                       long first_q, long first_k)
{
  typedef $type_q$ element;
  __shared__ __align__(16) square_row room[SQUARE], transposed[SQUARE];
  __shared__ float log_sum[SQUARE], mean[SQUARE];
  const long queries = $q$, keys = $k$, tiles = (keys + SQUARE - 1) / SQUARE;
  const bool causal = $causal$;
  const float scale = $s$;
  const long group = (long)blockIdx.x / tiles, first = (long)blockIdx.x % tiles * SQUARE;
  // b: a sample, g: a group of heads that share keys and values.
  const long b = group / $g$, g = group % $g$;
  const int t = (int)threadIdx.x, row = t / 16 * 4, column = t % 16 * 4;
  (void)dq;
  q += b * $step_q_b$ + g * $step_q_g$;
  k += b * $step_k_b$ + g * $step_k_g$ + first * $step_k_k$;
  v += b * $step_v_b$ + g * $step_v_g$ + first * $step_v_k$;
  out += b * $step_out_b$ + g * $step_out_g$;
  dout += b * $step_dout_b$ + g * $step_dout_g$;
  dk += b * $step_dk_b$ + g * $step_dk_g$ + first * $step_dk_k$;
  dv += b * $step_dv_b$ + g * $step_dv_g$ + first * $step_dv_k$;
  // Earlier queries see none of the keys.
  const long blind = causal && first_k + first > first_q ? first_k + first - first_q : 0;
#if $window$
  // Those from `last` on see none of them either; and if it is not causal, those before `near`.
  const long some_keys = keys - first < SQUARE ? keys - first : SQUARE;
  const long behind = first_k + first + some_keys - 1 + $window$ - first_q;
  const long last = behind < queries ? behind : queries;
  const long near = first_k + first - $window$ + 1 - first_q, start = near > blind ? near : blind;
#else
  const long last = queries, start = blind;
#endif
#if $documents$
  document += b * queries;
  key_document += b * keys + first;
  const document_range documents =
      range_of(key_document, keys - first < SQUARE ? (int)(keys - first) : SQUARE);
#endif
#if $places$
  key_place += first;
  const document_range places =
      range_of(key_place, keys - first < SQUARE ? (int)(keys - first) : SQUARE);
#endif
#if $biased$
  bias += b * $step_bias_b$ + g * $step_bias_g$ + first;
#endif
  const matrix_rows<element> some_k = {k, $step_k_k$, keys - first, $d$};
  const matrix_rows<element> some_v = {v, $step_v_k$, keys - first, $e$};
  float sum_k[($d$ + 63) / 64][4][4] = {}, sum_v[($e$ + 63) / 64][4][4] = {};

  for (long r = 0; r < $r$; r++) {
    for (long query = start / SQUARE * SQUARE; query < last; query += SQUARE) {
#if $documents$
      const long left = queries - query;
      if (!any_within(document + query, left < SQUARE ? (int)left : SQUARE, documents)) continue;
#endif
#if $places$
      const int some = queries - query < SQUARE ? (int)(queries - query) : SQUARE;
      if (!any_seeing(place + query, some, places, $places$ == 1, $reach$)) continue;
#endif
      const element *const here_q = q + r * $step_q_r$ + query * $step_q_q$;
      const element *const here_out = out + r * $step_out_r$ + query * $step_out_q$;
      const element *const here_dout = dout + r * $step_dout_r$ + query * $step_dout_q$;
      const matrix_rows<element> some_q = {here_q, $step_q_q$, queries - query, $d$};
      const matrix_rows<element> some_dout = {here_dout, $step_dout_q$, queries - query, $e$};
      __syncthreads();
      $name$_means(log_sum, mean, lse + (group * $r$ + r) * queries + query, here_dout, here_out,
                   queries - query);
      float weight[4][4] = {}, slope[4][4] = {};
      add_rows_by_rows(weight, some_k, some_q, room);
      add_rows_by_rows(slope, some_v, some_dout, room);
      UNROLL_FOR (int j = 0; j < 4; j++) {
        const long at = query + column + j;
        UNROLL_FOR (int i = 0; i < 4; i++) {
          const long ahead = first_k + first + row + i - first_q - at;
          bool seen = at < queries && (!causal || ahead <= 0);
          float score = scale * weight[i][j], steep = scale;
#if $softcap$
          const float share = tanhf(score / $softcap$);
          score = $softcap$ * share;
          steep *= 1 - share * share;
#endif
#if $window$
          seen = seen && ahead > -$window$ && ahead < $window$;
#endif
#if $biased$
          if (seen && first + row + i < keys)
            score += bias[r * $step_bias_r$ + at * $step_bias_q$ + row + i];
#endif
#if $documents$
          seen = seen && first + row + i < keys && key_document[row + i] == document[at];
#endif
#if $places$
          seen = seen && first + row + i < keys &&
                 is_seen(key_place[row + i], place[at], $places$ == 1, $reach$);
#endif
          weight[i][j] = seen ? expf(score - log_sum[column + j]) : 0;
          slope[i][j] = seen ? steep * weight[i][j] * (slope[i][j] - mean[column + j]) : 0;
        }
      }
      store_transposed(transposed, weight);
      add_square_by_rows(sum_v, transposed, some_dout, room);
      __syncthreads();
      store_transposed(transposed, slope);
      add_square_by_rows(sum_k, transposed, some_q, room);
    }
  }

  UNROLL_FOR (int i = 0; i < 4; i++) {
    if (first + row + i >= keys) continue;
    UNROLL_FOR (int j = 0; j < 4; j++) {
      UNROLL_FOR (int n = 0; n < ($d$ + 63) / 64; n++) {
        const int c = n * SQUARE + column + j;
        if (c < $d$) put_float(dk + (row + i) * $step_dk_k$ + c, sum_k[n][i][j]);
      }
      UNROLL_FOR (int n = 0; n < ($e$ + 63) / 64; n++) {
        const int c = n * SQUARE + column + j;
        if (c < $e$) put_float(dv + (row + i) * $step_dv_k$ + c, sum_v[n][i][j]);
      }
    }
  }
}

// The gradient of q. A block has 64 queries of a head and goes over the keys that they see, 64 at a
// time; a thread has 4 of each. The last queries come first: they see the most keys.
// launch: $b$ * $g$ * $r$ * (($q$ + 63) / 64), 256
__global__ void $name$_2nd($type_q$ *__restrict__ dq, $type_q$ *__restrict__ dk,
                           $type_q$ *__restrict__ dv, const $type_q$ *__restrict__ dout,
                           const $type_q$ *__restrict__ q, const $type_q$ *__restrict__ k,
                           const $type_q$ *__restrict__ v, const $type_q$ *__restrict__ out,
                           const float *__restrict__ lse,
#if $biased$
                           const float *__restrict__ bias,
#endif
#if $documents$
                           const int *__restrict__ document, const int *__restrict__ key_document,
#endif
#if $places$
                           const int *__restrict__ place, const int *__restrict__ key_place,
#endif
                           long first_q, long first_k)
{
  typedef $type_q$ element;
  __shared__ __align__(16) square_row room[SQUARE], transposed[SQUARE];
  __shared__ float log_sum[SQUARE], mean[SQUARE];
  const long queries = $q$, keys = $k$, tiles = (queries + SQUARE - 1) / SQUARE;
  const bool causal = $causal$;
  const float scale = $s$;
  const long head = (long)blockIdx.x / tiles;
  const long first = (tiles - 1 - (long)blockIdx.x % tiles) * SQUARE;
  const long b = head / ($g$ * $r$), g = head / $r$ % $g$, r = head % $r$;
  const int t = (int)threadIdx.x, row = t / 16 * 4, column = t % 16 * 4;
  (void)dk, (void)dv;
  q += b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + first * $step_q_q$;
  k += b * $step_k_b$ + g * $step_k_g$;
  v += b * $step_v_b$ + g * $step_v_g$;
  out += b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + first * $step_out_q$;
  dout += b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$ + first * $step_dout_q$;
  dq += b * $step_dq_b$ + g * $step_dq_g$ + r * $step_dq_r$ + first * $step_dq_q$;
  const long here = queries - first < SQUARE ? queries - first : SQUARE;
  const long before = first_q + first + here - first_k,
             seen = causal && before < keys ? before : keys;
#if $window$
  const long far = first_q + first - $window$ + 1 - first_k, near = before - 1 + $window$;
  const long begin = far > 0 ? far : 0, end = near < seen ? near : seen;
#else
  const long begin = 0, end = seen;
#endif
#if $documents$
  document += b * queries + first;
  key_document += b * keys;
  const document_range documents = range_of(document, (int)here);
#endif
#if $places$
  place += first;
  const document_range places = range_of(place, (int)here);
#endif
#if $biased$
  bias += b * $step_bias_b$ + g * $step_bias_g$ + r * $step_bias_r$ + first * $step_bias_q$;
#endif
  const matrix_rows<element> some_q = {q, $step_q_q$, here, $d$};
  const matrix_rows<element> some_dout = {dout, $step_dout_q$, here, $e$};
  float sum[($d$ + 63) / 64][4][4] = {};
  $name$_means(log_sum, mean, lse + head * queries + first, dout, out, here);

  for (long key = begin; key < end; key += SQUARE) {
#if $documents$
    const long left = keys - key;
    if (!any_within(key_document + key, left < SQUARE ? (int)left : SQUARE, documents)) continue;
#endif
#if $places$
    const int some = keys - key < SQUARE ? (int)(keys - key) : SQUARE;
    if (!any_seen(key_place + key, some, places, $places$ == 1, $reach$)) continue;
#endif
    const matrix_rows<element> some_k = {k + key * $step_k_k$, $step_k_k$, keys - key, $d$};
    const matrix_rows<element> some_v = {v + key * $step_v_k$, $step_v_k$, keys - key, $e$};
    float weight[4][4] = {}, slope[4][4] = {};
    add_rows_by_rows(weight, some_q, some_k, room);
    add_rows_by_rows(slope, some_dout, some_v, room);
    UNROLL_FOR (int i = 0; i < 4; i++) {
      UNROLL_FOR (int j = 0; j < 4; j++) {
        const long at = key + column + j;
        const long ahead = first_k + at - first_q - first - row - i;
        bool sees = row + i < here && at < keys && (!causal || ahead <= 0);
        float score = scale * weight[i][j], steep = scale;
#if $softcap$
        const float share = tanhf(score / $softcap$);
        score = $softcap$ * share;
        steep *= 1 - share * share;
#endif
#if $window$
        sees = sees && ahead > -$window$ && ahead < $window$;
#endif
#if $biased$
        if (sees) score += bias[(row + i) * $step_bias_q$ + at];
#endif
#if $documents$
        sees = sees && document[row + i] == key_document[at];
#endif
#if $places$
        sees = sees && is_seen(key_place[at], place[row + i], $places$ == 1, $reach$);
#endif
        const float w = sees ? expf(score - log_sum[row + i]) : 0;
        slope[i][j] = sees ? steep * w * (slope[i][j] - mean[row + i]) : 0;
      }
    }
    store_transposed(transposed, slope);
    add_square_by_rows(sum, transposed, some_k, room);
  }

  UNROLL_FOR (int i = 0; i < 4; i++) {
    if (row + i >= here) continue;
    UNROLL_FOR (int n = 0; n < ($d$ + 63) / 64; n++) {
      UNROLL_FOR (int j = 0; j < 4; j++) {
        const int c = n * SQUARE + column + j;
        if (c < $d$) put_float(dq + (row + i) * $step_dq_q$ + c, sum[n][i][j]);
      }
    }
  }
}
