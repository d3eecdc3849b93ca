// The gradients of q, k and v from that of attention's output, on the tensor cores. The weights are
// computed again from the logarithms of their rows' sums; the mean of the gradients of a row's
// weights is subtracted from each.
//
// One warp computes each sum, in a fixed order, so results repeat bit for bit: the gradients of k
// and v go over the queries, that of q over the keys, and scores are computed for both. Adding to
// q's gradient from all blocks of keys would save two of seven products, but needs atomic
// additions, or memory for each block's share.

// The means, with 8 threads a row. They are kept at the start of each row of q's gradient until
// that is written.
// launch: ($b$ * $g$ * $r$ * $q$ + 31) / 32, 256
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
  const long rows = (long)$b$ * $g$ * $r$ * $q$, row = (long)blockIdx.x * 32 + threadIdx.x / 8;
  const long at = row < rows ? row : rows - 1, head = at / $q$, n = at % $q$;
  // b: a sample, g: a group of heads that share keys and values, r: a head of the group.
  const long b = head / ($g$ * $r$), g = head / $r$ % $g$, r = head % $r$;
  (void)dk, (void)dv, (void)q, (void)k, (void)v, (void)lse, (void)first_q, (void)first_k;
#if $biased$
  (void)bias;
#endif
#if $documents$
  (void)document, (void)key_document;
#endif
#if $places$
  (void)place, (void)key_place;
#endif
  dq += b * $step_dq_b$ + g * $step_dq_g$ + r * $step_dq_r$ + n * $step_dq_q$;
  out += b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + n * $step_out_q$;
  dout += b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$ + n * $step_dout_q$;
  float mean = 0;
  for (int c = (int)threadIdx.x % 8 * UNIT<element>; c < $e$; c += 8 * UNIT<element>) {
    const unit<element> x = *(const unit<element> *)(out + c);
    const unit<element> y = *(const unit<element> *)(dout + c);
    UNROLL_FOR (int i = 0; i < UNIT<element>; i++) mean += to_float(x.at[i]) * to_float(y.at[i]);
  }
  for (int d = 4; d; d /= 2) mean += __shfl_xor_sync(0xffffffffu, mean, d);
  if (threadIdx.x % 8 == 0 && row < rows) memcpy((void *)dq, &mean, sizeof mean);
}

// The gradients of k and v. A block has some keys, a warp some strips of 16 of them. It goes over
// the queries that see them, of all heads that share them, tile by tile: while it multiplies with
// one tile, the next is copied to shared memory. A score's row is a key, its column a query. If
// both gradients of a strip do not fit its registers, each of $parts$ blocks has some columns.
// launch: $b$ * $g$ * $parts$ * (($k$ + $rows_2nd$ - 1) / $rows_2nd$), 2 * $rows_2nd$ / $strips_2nd$, $shared_2nd$
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
  constexpr int STRIPS = $strips_2nd$, ROWS = $rows_2nd$, THREADS = 2 * ROWS / STRIPS;
  constexpr int QUERIES = $some_queries$, PARTS = $parts$;
  constexpr int DEPTH = WHOLE<$d$>, WIDTH = WHOLE<$e$>;
  constexpr int DEPTH_HERE = WHOLE<(DEPTH + PARTS - 1) / PARTS>;
  constexpr int WIDTH_HERE = WHOLE<(WIDTH + PARTS - 1) / PARTS>;
  constexpr int STAGE = QUERIES * (PITCH<element, DEPTH> + PITCH<element, WIDTH>);
#if $softcap$ || $biased$
  constexpr float SCALE = $s$, UNIT = 1; // differences of scores become powers of 2
#else
  constexpr float SCALE = $s$, UNIT = 1.44269504f, BITS = SCALE * UNIT; // scores as powers of 2
#endif
  constexpr bool causal = $causal$;
  DYNAMIC_SHARED(element, some_k);
  element *const some_v = some_k + ROWS * PITCH<element, DEPTH>;
  element *const stages = some_v + ROWS * PITCH<element, WIDTH>;
  // the logarithms and the means, by stage of the copies
  float *const numbers = (float *)(stages + 2 * STAGE);
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, in = lane % 4 * 2;
  constexpr int queries = $q$, keys = $k$, tiles = (keys + ROWS - 1) / ROWS;
  const int part = (int)blockIdx.x % PARTS, group = (int)blockIdx.x / PARTS / tiles;
  const int first = (int)blockIdx.x / PARTS % tiles * ROWS;
  const long b = group / $g$, g = group % $g$;
  (void)out;
  dq += b * $step_dq_b$ + g * $step_dq_g$;
  dk += b * $step_dk_b$ + g * $step_dk_g$;
  dv += b * $step_dv_b$ + g * $step_dv_g$;
  dout += b * $step_dout_b$ + g * $step_dout_g$;
  q += b * $step_q_b$ + g * $step_q_g$;
  k += b * $step_k_b$ + g * $step_k_g$ + (long)first * $step_k_k$;
  v += b * $step_v_b$ + g * $step_v_g$ + (long)first * $step_v_k$;
  lse += (long)group * $r$ * queries;
  // Earlier queries see none of the keys.
  const int shift = (int)(first_k - first_q), blind = causal ? max(0, shift + first) : 0;
#if $window$
  // Those from `last` on see none of them either; and if it is not causal, those before `near`.
  const int behind_keys = shift + min(first + ROWS, keys) - 1 + $window$;
  const int last = behind_keys < queries ? behind_keys : queries;
  const int near = shift + first - $window$ + 1;
  const int start = (near > blind ? near : blind) / QUERIES * QUERIES;
#else
  const int last = queries, start = blind / QUERIES * QUERIES;
#endif
#if $documents$
  document += b * queries;
  key_document += b * keys;
  const document_range documents =
      range_of(key_document + first, keys - first < ROWS ? keys - first : ROWS);
  const auto next_of = [&](int query) {
    while (query < last && !any_within(document + query, min(QUERIES, queries - query), documents))
      query += QUERIES;
    return query;
  };
  const int begin = next_of(start);
#else
  const int begin = start;
#endif
#if $biased$
  bias += b * $step_bias_b$ + g * $step_bias_g$;
#endif
  const auto copy_stage = [&](int stage, long r, int query) {
    const int left = queries - query;
    element *const to = stages + stage * STAGE;
    float *const logs = numbers + stage * 2 * QUERIES, *const means = logs + QUERIES;
    copy_tile<element, QUERIES, DEPTH, THREADS>(to, q + r * $step_q_r$ + (long)query * $step_q_q$,
                                                $step_q_q$, left, $d$);
    copy_tile<element, QUERIES, WIDTH, THREADS>(
        to + QUERIES * PITCH<element, DEPTH>,
        dout + r * $step_dout_r$ + (long)query * $step_dout_q$, $step_dout_q$, left, $e$);
    for (int n = (int)threadIdx.x; n < QUERIES; n += THREADS) {
      const long at = n < left ? query + n : query;
      copy_4(logs + n, lse + r * queries + at, n < left);
      copy_4(means + n, dq + r * $step_dq_r$ + at * $step_dq_q$, n < left);
    }
  };

  copy_tile<element, ROWS, DEPTH, THREADS>(some_k, k, $step_k_k$, keys - first, $d$);
  copy_tile<element, ROWS, WIDTH, THREADS>(some_v, v, $step_v_k$, keys - first, $e$);
  if (begin < last) copy_stage(0, 0, begin);
  end_copies();
  const int strip = warp * 16 * STRIPS; // where the warp's keys begin among the block's
  left_rows<element, STRIPS, DEPTH, $kept_2nd$> my_k = {some_k + strip * PITCH<element, DEPTH>, {}};
  left_rows<element, STRIPS, WIDTH, $kept_2nd$> my_v = {some_v + strip * PITCH<element, WIDTH>, {}};
  float sum_k[STRIPS][DEPTH_HERE / 8][4] = {}, sum_v[STRIPS][WIDTH_HERE / 8][4] = {};

  int stage = 0;
  for (int r = 0, query = begin; r < $r$ && begin < last; stage = 1 - stage) {
#if $documents$
    const int after = next_of(query + QUERIES);
#else
    const int after = query + QUERIES;
#endif
    const bool ends = after >= last; // of this head
    const int next_r = ends ? r + 1 : r, next = ends ? begin : after;
    if (next_r < $r$) copy_stage(1 - stage, next_r, next);
    end_copies();
    wait_for_copies<1>();
    __syncthreads();
    if (r == 0 && query == begin) {
      my_k.keep();
      my_v.keep();
    }
    const element *const some_q = stages + stage * STAGE;
    const element *const some_dout = some_q + QUERIES * PITCH<element, DEPTH>;
    const float *const logs = numbers + stage * 2 * QUERIES, *const means = logs + QUERIES;
    // The warp's first key's index minus that of the first of these queries.
    const int behind = shift + first + strip - query;
    if (first + strip < keys && (!causal || behind < QUERIES)) {
      float weight[STRIPS][QUERIES / 8][4] = {}, slope[STRIPS][QUERIES / 8][4] = {};
      add_product(weight, my_k, some_q);
      add_product(slope, my_v, some_dout);
      const bool cut = causal && behind + 16 * STRIPS > 1;
      UNROLL_FOR (int n = 0; n < QUERIES / 8; n++) {
        UNROLL_FOR (int j = 0; j < 2; j++) {
          const int column = 8 * n + in + j;
          const float log = logs[column], mean = means[column];
          const float base = log == -INFINITY ? INFINITY : log * UNIT;
          UNROLL_FOR (int m = 0; m < STRIPS; m++) {
            UNROLL_FOR (int h = j; h < 4; h += 2) {
              const int ahead = behind + 16 * m + h / 2 * 8 + lane / 4 - column;
              bool hidden = cut && ahead > 0;
#if $window$
              hidden = hidden || ahead <= -$window$ || ahead >= $window$;
#endif
#if $documents$ || $biased$ || $places$
              const int at = first + strip + 16 * m + h / 2 * 8 + lane / 4;
              const bool exists = at < keys && query + column < queries;
#endif
#if $documents$
              hidden = hidden || (exists && document[query + column] != key_document[at]);
#endif
#if $places$
              hidden = hidden || (exists && !is_seen(key_place[at], place[query + column],
                                                     $places$ == 1, $reach$));
#endif
#if $softcap$
              const float share = tanhf(SCALE / $softcap$ * weight[m][n][h]);
              slope[m][n][h] = (slope[m][n][h] - mean) * (1 - share * share) + mean;
              float score = $softcap$ * share;
#else
#if $biased$
              float score = SCALE * weight[m][n][h];
#endif
#endif
#if $biased$
              if (exists)
                score += bias[r * $step_bias_r$ + (query + column) * (long)$step_bias_q$ + at];
#endif
#if $softcap$ || $biased$
              const float w = hidden ? 0 : quick_exp2((score - base) * 1.44269504f);
#else
              const float w = hidden ? 0 : quick_exp2(weight[m][n][h] * BITS - base);
#endif
              weight[m][n][h] = w;
              slope[m][n][h] = w * (slope[m][n][h] - mean);
            }
          }
        }
      }
      add_product_of_sums<element, WIDTH>(sum_v, weight, some_dout + part * WIDTH_HERE);
      add_product_of_sums<element, DEPTH>(sum_k, slope, some_q + part * DEPTH_HERE);
    }
    __syncthreads();
    r = next_r;
    query = next;
  }

  UNROLL_FOR (int m = 0; m < STRIPS; m++) {
    UNROLL_FOR (int h = 0; h < 2; h++) {
      const int row = strip + 16 * m + 8 * h + lane / 4;
      if (first + row >= keys) continue;
      element *const to_k = dk + (long)(first + row) * $step_dk_k$ + part * DEPTH_HERE + in;
      element *const to_v = dv + (long)(first + row) * $step_dv_k$ + part * WIDTH_HERE + in;
      UNROLL_FOR (int n = 0; n < DEPTH_HERE / 8; n++) {
        if (part * DEPTH_HERE + 8 * n < $d$)
          store_two(to_k + 8 * n, SCALE * sum_k[m][n][2 * h], SCALE * sum_k[m][n][2 * h + 1]);
      }
      UNROLL_FOR (int n = 0; n < WIDTH_HERE / 8; n++) {
        if (part * WIDTH_HERE + 8 * n < $e$)
          store_two(to_v + 8 * n, sum_v[m][n][2 * h], sum_v[m][n][2 * h + 1]);
      }
    }
  }
}

// The gradient of q. A block has some queries of a head, a warp some strips of 16 of them. It goes
// over the keys that they see, tile by tile. The last queries come first: they see the most keys.
// launch: $b$ * $g$ * $r$ * (($q$ + $rows_3rd$ - 1) / $rows_3rd$), 2 * $rows_3rd$ / $strips_3rd$, $shared_3rd$
__global__ void $name$_3rd($type_q$ *__restrict__ dq, $type_q$ *__restrict__ dk,
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
  constexpr int STRIPS = $strips_3rd$, ROWS = $rows_3rd$, THREADS = 2 * ROWS / STRIPS;
  constexpr int KEYS = $some_keys$, DEPTH = WHOLE<$d$>, WIDTH = WHOLE<$e$>;
  constexpr int STAGE = KEYS * (PITCH<element, DEPTH> + PITCH<element, WIDTH>);
#if $softcap$ || $biased$
  constexpr float SCALE = $s$, UNIT = 1; // differences of scores become powers of 2
#else
  constexpr float SCALE = $s$, UNIT = 1.44269504f, BITS = SCALE * UNIT; // scores as powers of 2
#endif
  constexpr bool causal = $causal$;
  DYNAMIC_SHARED(element, some_q);
  element *const some_dout = some_q + ROWS * PITCH<element, DEPTH>;
  element *const stages = some_dout + ROWS * PITCH<element, WIDTH>;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, in = lane % 4 * 2;
  constexpr int queries = $q$, keys = $k$, tiles = (queries + ROWS - 1) / ROWS;
  const int head = (int)blockIdx.x / tiles, first = (tiles - 1 - (int)blockIdx.x % tiles) * ROWS;
  const long b = head / ($g$ * $r$), g = head / $r$ % $g$, r = head % $r$;
  (void)dk, (void)dv, (void)out;
  dq += b * $step_dq_b$ + g * $step_dq_g$ + r * $step_dq_r$;
  dout += b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$ + (long)first * $step_dout_q$;
  q += b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + (long)first * $step_q_q$;
  k += b * $step_k_b$ + g * $step_k_g$;
  v += b * $step_v_b$ + g * $step_v_g$;
  lse += (long)head * queries;
  const int row = first + warp * 16 * STRIPS; // the warp's first
  const int shift = (int)(first_k - first_q);
  const int before = (first + ROWS < queries ? first + ROWS : queries) - shift;
  const int seen = causal && before < keys ? before : keys;
#if $window$
  const int far = first - shift - $window$ + 1, near = before - 1 + $window$;
  const int nearest = far > 0 ? far : 0, last = near < seen ? near : seen;
#else
  const int nearest = 0, last = seen;
#endif
#if $documents$
  document += b * queries;
  key_document += b * keys;
  const document_range documents =
      range_of(document + first, queries - first < ROWS ? queries - first : ROWS);
  const auto next_of = [&](int key) {
    while (key < last && !any_within(key_document + key, min(KEYS, keys - key), documents))
      key += KEYS;
    return key;
  };
  const int begin = next_of(nearest);
#else
  const int begin = nearest;
#endif
#if $biased$
  bias += b * $step_bias_b$ + g * $step_bias_g$ + r * $step_bias_r$;
#endif
  const auto copy_stage = [&](int stage, int key) {
    element *const to = stages + stage * STAGE;
    copy_tile<element, KEYS, DEPTH, THREADS>(to, k + (long)key * $step_k_k$, $step_k_k$, keys - key,
                                             $d$);
    copy_tile<element, KEYS, WIDTH, THREADS>(
        to + KEYS * PITCH<element, DEPTH>, v + (long)key * $step_v_k$, $step_v_k$, keys - key, $e$);
  };

  copy_tile<element, ROWS, DEPTH, THREADS>(some_q, q, $step_q_q$, queries - first, $d$);
  copy_tile<element, ROWS, WIDTH, THREADS>(some_dout, dout, $step_dout_q$, queries - first, $e$);
  if (begin < last) copy_stage(0, begin);
  end_copies();
  const int strip = warp * 16 * STRIPS;
  left_rows<element, STRIPS, DEPTH, $kept_3rd$> my_q = {some_q + strip * PITCH<element, DEPTH>, {}};
  left_rows<element, STRIPS, WIDTH, $kept_3rd$> my_dout = {
      some_dout + strip * PITCH<element, WIDTH>, {}};
  float base[STRIPS][2], mean[STRIPS][2], sum[STRIPS][DEPTH / 8][4] = {};
  UNROLL_FOR (int m = 0; m < STRIPS; m++) {
    UNROLL_FOR (int h = 0; h < 2; h++) {
      const int at = row + 16 * m + 8 * h + lane / 4;
      const float log = at < queries ? lse[at] : -INFINITY;
      base[m][h] = log == -INFINITY ? INFINITY : log * UNIT;
      mean[m][h] = 0;
      if (at < queries) memcpy(&mean[m][h], dq + (long)at * $step_dq_q$, sizeof mean[m][h]);
    }
  }

  int stage = 0;
  for (int key = begin, after; key < last; key = after, stage = 1 - stage) {
    after = key + KEYS;
#if $documents$
    after = next_of(after);
#endif
    if (after < last) copy_stage(1 - stage, after);
    end_copies();
    wait_for_copies<1>();
    __syncthreads();
    if (key == begin) {
      my_q.keep();
      my_dout.keep();
    }
    const element *const some_k = stages + stage * STAGE;
    const element *const some_v = some_k + KEYS * PITCH<element, DEPTH>;
    // The first of these keys' index minus that of the warp's first row.
    const int behind = shift + key - row;
    if (row < queries && (!causal || behind < 16 * STRIPS)) {
      float weight[STRIPS][KEYS / 8][4] = {}, slope[STRIPS][KEYS / 8][4] = {};
      add_product(weight, my_q, some_k);
      add_product(slope, my_dout, some_v);
      const bool cut = key + KEYS > keys || (causal && behind + KEYS > 1);
      UNROLL_FOR (int n = 0; n < KEYS / 8; n++) {
        UNROLL_FOR (int j = 0; j < 4; j++) {
          const int column = 8 * n + in + j % 2;
          UNROLL_FOR (int m = 0; m < STRIPS; m++) {
            const int down = 16 * m + j / 2 * 8 + lane / 4;
            bool hidden = cut && (column >= keys - key || (causal && behind + column > down));
#if $window$
            const int ahead = behind + column - down;
            hidden = hidden || ahead <= -$window$ || ahead >= $window$;
#endif
#if $documents$ || $biased$ || $places$
            const bool exists = key + column < keys && row + down < queries;
#endif
#if $documents$
            hidden = hidden || (exists && document[row + down] != key_document[key + column]);
#endif
#if $places$
            hidden = hidden || (exists && !is_seen(key_place[key + column], place[row + down],
                                                   $places$ == 1, $reach$));
#endif
#if $softcap$
            const float share = tanhf(SCALE / $softcap$ * weight[m][n][j]);
            slope[m][n][j] =
                (slope[m][n][j] - mean[m][j / 2]) * (1 - share * share) + mean[m][j / 2];
            float score = $softcap$ * share;
#else
#if $biased$
            float score = SCALE * weight[m][n][j];
#endif
#endif
#if $biased$
            if (exists) score += bias[(row + down) * (long)$step_bias_q$ + key + column];
#endif
#if $softcap$ || $biased$
            const float w = hidden ? 0 : quick_exp2((score - base[m][j / 2]) * 1.44269504f);
#else
            const float w = hidden ? 0 : quick_exp2(weight[m][n][j] * BITS - base[m][j / 2]);
#endif
            slope[m][n][j] = w * (slope[m][n][j] - mean[m][j / 2]);
          }
        }
      }
      add_product_of_sums<element, DEPTH>(sum, slope, some_k);
    }
    __syncthreads();
  }

  __syncwarp(); // all have read the means
  UNROLL_FOR (int m = 0; m < STRIPS; m++) {
    UNROLL_FOR (int h = 0; h < 2; h++) {
      const int at = row + 16 * m + 8 * h + lane / 4;
      if (at >= queries) continue;
      element *const to = dq + (long)at * $step_dq_q$ + in;
      UNROLL_FOR (int n = 0; n < DEPTH / 8; n++) {
        if (8 * n < $d$)
          store_two(to + 8 * n, SCALE * sum[m][n][2 * h], SCALE * sum[m][n][2 * h + 1]);
      }
    }
  }
}
