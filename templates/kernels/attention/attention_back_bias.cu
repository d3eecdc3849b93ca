// The gradient of what is added to attention's scores: the weights, which are computed again from
// the logarithms of their rows' sums, times the gradients of weights less their mean. A block has
// 64 queries and 64 keys of the bias and goes over all sequences and heads that share them, and if
// all queries share the bias's row over all of them; a thread has 4 of each. One thread computes
// each sum, in a fixed order.

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

// launch: $size_dbias_b$ * $size_dbias_g$ * $size_dbias_r$ * (($size_dbias_q$ + 63) / 64) * (($k$ + 63) / 64), 256
__global__ void $name$(float *__restrict__ dbias, const $type_q$ *__restrict__ dout,
                       const $type_q$ *__restrict__ q, const $type_q$ *__restrict__ k,
                       const $type_q$ *__restrict__ v, const $type_q$ *__restrict__ out,
                       const float *__restrict__ lse, const float *__restrict__ bias, long first_q,
                       long first_k)
{
  typedef $type_q$ element;
  __shared__ __align__(16) square_row room[SQUARE];
  __shared__ float log_sum[SQUARE], mean[SQUARE];
  const long queries = $q$, keys = $k$, tiles = (keys + SQUARE - 1) / SQUARE;
  const long query_tiles = ($size_dbias_q$ + SQUARE - 1) / SQUARE;
  const bool causal = $causal$;
  const float scale = $s$;
  const long n = (long)blockIdx.x / tiles, key = (long)blockIdx.x % tiles * SQUARE;
  const long own = n / query_tiles, tile = n % query_tiles * SQUARE;
  const long own_b = own / $size_dbias_r$ / $size_dbias_g$,
             own_g = own / $size_dbias_r$ % $size_dbias_g$, own_r = own % $size_dbias_r$;
  const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
  const long same_b = $b$ / $size_dbias_b$, same_g = $g$ / $size_dbias_g$,
             same_r = $r$ / $size_dbias_r$;
  const long end = $step_dbias_q$ ? tile + 1 : queries;
  float sum[4][4] = {};

  for (long m = 0; m < same_b * same_g * same_r; m++) {
    const long b = own_b + m / same_r / same_g, g = own_g + m / same_r % same_g;
    const long r = own_r + m % same_r;
    for (long first = tile; first < end; first += SQUARE) {
      const long here = queries - first < SQUARE ? queries - first : SQUARE;
      const element *const some_q =
          q + b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + first * $step_q_q$;
      const element *const some_out =
          out + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + first * $step_out_q$;
      const element *const some_dout =
          dout + b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$ + first * $step_dout_q$;
      const element *const some_k = k + b * $step_k_b$ + g * $step_k_g$ + key * $step_k_k$;
      const element *const some_v = v + b * $step_v_b$ + g * $step_v_g$ + key * $step_v_k$;
      const float *const some_bias =
          bias + b * $step_bias_b$ + g * $step_bias_g$ + r * $step_bias_r$ + first * $step_bias_q$;
      const matrix_rows<element> rows_q = {some_q, $step_q_q$, here, $d$};
      const matrix_rows<element> rows_dout = {some_dout, $step_dout_q$, here, $e$};
      const matrix_rows<element> rows_k = {some_k, $step_k_k$, keys - key, $d$};
      const matrix_rows<element> rows_v = {some_v, $step_v_k$, keys - key, $e$};
      float weight[4][4] = {}, slope[4][4] = {};
      __syncthreads();
      $name$_means(log_sum, mean, lse + ((b * $g$ + g) * $r$ + r) * queries + first, some_dout,
                   some_out, here);
      add_rows_by_rows(weight, rows_q, rows_k, room);
      add_rows_by_rows(slope, rows_dout, rows_v, room);
      UNROLL_FOR (int i = 0; i < 4; i++) {
        UNROLL_FOR (int j = 0; j < 4; j++) {
          const long at = key + column + j, ahead = first_k + at - first_q - first - row - i;
          bool sees = row + i < here && at < keys && (!causal || ahead <= 0);
          float score = scale * weight[i][j];
#if $softcap$
          score = $softcap$ * tanhf(score / $softcap$);
#endif
#if $window$
          sees = sees && ahead > -$window$ && ahead < $window$;
#endif
          if (sees) score += some_bias[(row + i) * $step_bias_q$ + at];
          if (sees) sum[i][j] += expf(score - log_sum[row + i]) * (slope[i][j] - mean[row + i]);
        }
      }
    }
  }

  __syncthreads();
  UNROLL_FOR (int i = 0; i < 4; i++) {
    UNROLL_FOR (int j = 0; j < 4; j++) room[row + i][column + j] = sum[i][j];
  }
  __syncthreads();
  dbias += own_b * $step_dbias_b$ + own_g * $step_dbias_g$ + own_r * $step_dbias_r$ +
           tile * $step_dbias_q$ + key;
  for (int at = (int)threadIdx.x; at < SQUARE * SQUARE; at += 256) {
    const int i = at / SQUARE, j = at % SQUARE;
    if (key + j >= keys || tile + i >= $size_dbias_q$) continue;
    float all = room[i][j];
    for (int more = 1; !$step_dbias_q$ && more < SQUARE; more++) all += room[more][j];
    dbias[i * $step_dbias_q$ + j] = all;
  }
}
