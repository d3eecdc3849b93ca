// From the gradient of attention's output those of q, k and v. The weights are computed anew from
// the logarithms of their rows' sums; a row's mean of the gradients of its weights is taken off
// from each.

// The gradient of q. A block takes 32 rows of the heads that share keys and values, a warp 4 of
// them, and goes over 32 keys at a time, a lane for each.
// launch: $b$ * $g$ * (($r$ * $q$ + 31) / 32), 256
__global__ void $name$(float *__restrict__ dq, float *__restrict__ dk, float *__restrict__ dv,
                       const float *__restrict__ dout, const float *__restrict__ q,
                       const float *__restrict__ k, const float *__restrict__ v,
                       const float *__restrict__ out, const float *__restrict__ lse, long first_q,
                       long first_k)
{
  constexpr int COLUMNS = ($d$ + 31) / 32; // of the gradient, that a lane has
  __shared__ float some_q[32][33], some_out[32][33], some_dout[32][33], some_k[32][33],
      some_v[32][33];
  const long queries = $q$, rows = $r$ * queries, keys = $k$, tiles = (rows + 31) / 32;
  const int depth = $d$, width = $e$, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  const bool causal = $causal$;
  const float scale = $s$;
  const long group = (long)blockIdx.x / tiles, first = (long)blockIdx.x % tiles * 32;
  (void)dk, (void)dv;
  k += group * keys * depth;
  v += group * keys * width;
  float sums[4][COLUMNS] = {};
  for (long key = 0; key < keys; key += 32) {
    const int here = keys - key < 32 ? (int)(keys - key) : 32;
    float score[4] = {}, slope[4] = {};
    for (int from = 0; from < depth || from < width; from += 32) {
      const int c = from + lane;
      __syncthreads();
      for (int i = warp; i < 32; i += 8) {
        const long row = group * rows + first + i;
        const bool is_row = first + i < rows;
        some_q[i][lane] = is_row && c < depth ? q[row * depth + c] : 0;
        some_k[i][lane] = i < here && c < depth ? k[(key + i) * depth + c] : 0;
        some_out[i][lane] = is_row && c < width ? out[row * width + c] : 0;
        some_dout[i][lane] = is_row && c < width ? dout[row * width + c] : 0;
        some_v[i][lane] = i < here && c < width ? v[(key + i) * width + c] : 0;
      }
      __syncthreads();
      for (int n = 0; n < 32; n++) {
        for (int i = 0; i < 4; i++) {
          const int row = warp * 4 + i;
          score[i] += some_q[row][n] * some_k[lane][n];
          slope[i] += some_dout[row][n] * (some_v[lane][n] - some_out[row][n]);
        }
      }
    }
    float step[4];
    for (int i = 0; i < 4; i++) {
      const long row = first + warp * 4 + i;
      const bool sees = row < rows && lane < here &&
                        (!causal || first_k + key + lane <= first_q + row % queries);
      const float log_sum = sees ? lse[group * rows + row] : -INFINITY;
      step[i] = log_sum == -INFINITY ? 0 : scale * expf(scale * score[i] - log_sum) * slope[i];
    }
    for (int j = 0; j < here; j++) {
      float here_step[4];
      for (int i = 0; i < 4; i++) here_step[i] = __shfl_sync(0xffffffffu, step[i], j);
      for (int n = 0; n < COLUMNS; n++) {
        const int c = 32 * n + lane;
        const float x = c < depth ? k[(key + j) * depth + c] : 0;
        for (int i = 0; i < 4; i++) sums[i][n] += here_step[i] * x;
      }
    }
  }
  for (int i = 0; i < 4; i++) {
    const long row = first + warp * 4 + i;
    for (int n = 0; n < COLUMNS; n++) {
      const int c = 32 * n + lane;
      if (row < rows && c < depth) dq[(group * rows + row) * depth + c] = sums[i][n];
    }
  }
}

// The gradients of k and v. A block takes 32 keys, a warp 4 of them, and goes over 32 rows at a
// time, a lane for each.
// launch: $b$ * $g$ * (($k$ + 31) / 32), 256
__global__ void $name$_2nd(float *__restrict__ dq, float *__restrict__ dk, float *__restrict__ dv,
                           const float *__restrict__ dout, const float *__restrict__ q,
                           const float *__restrict__ k, const float *__restrict__ v,
                           const float *__restrict__ out, const float *__restrict__ lse,
                           long first_q, long first_k)
{
  constexpr int COLUMNS = ($d$ + 31) / 32, COLUMNS_V = ($e$ + 31) / 32;
  __shared__ float some_q[32][33], some_out[32][33], some_dout[32][33], some_k[32][33],
      some_v[32][33];
  const long queries = $q$, rows = $r$ * queries, keys = $k$, tiles = (keys + 31) / 32;
  const int depth = $d$, width = $e$, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  const bool causal = $causal$;
  const float scale = $s$;
  const long group = (long)blockIdx.x / tiles, first = (long)blockIdx.x % tiles * 32;
  (void)dq;
  q += group * rows * depth;
  dout += group * rows * width;
  float sums[4][COLUMNS] = {}, sums_v[4][COLUMNS_V] = {};
  for (long row = 0; row < rows; row += 32) {
    const int here = rows - row < 32 ? (int)(rows - row) : 32;
    float score[4] = {}, slope[4] = {};
    for (int from = 0; from < depth || from < width; from += 32) {
      const int c = from + lane;
      __syncthreads();
      for (int i = warp; i < 32; i += 8) {
        const long key = group * keys + first + i;
        const bool is_key = first + i < keys;
        some_q[i][lane] = i < here && c < depth ? q[(row + i) * depth + c] : 0;
        some_k[i][lane] = is_key && c < depth ? k[key * depth + c] : 0;
        some_out[i][lane] =
            i < here && c < width ? out[(group * rows + row + i) * width + c] : 0;
        some_dout[i][lane] = i < here && c < width ? dout[(row + i) * width + c] : 0;
        some_v[i][lane] = is_key && c < width ? v[key * width + c] : 0;
      }
      __syncthreads();
      for (int n = 0; n < 32; n++) {
        for (int i = 0; i < 4; i++) {
          const int key = warp * 4 + i;
          score[i] += some_q[lane][n] * some_k[key][n];
          slope[i] += some_dout[lane][n] * (some_v[key][n] - some_out[lane][n]);
        }
      }
    }
    float weight[4], step[4];
    for (int i = 0; i < 4; i++) {
      const long key = first_k + first + warp * 4 + i;
      const bool sees = lane < here && (!causal || key <= first_q + (row + lane) % queries);
      const float log_sum = sees ? lse[group * rows + row + lane] : -INFINITY;
      weight[i] = log_sum == -INFINITY ? 0 : expf(scale * score[i] - log_sum);
      step[i] = scale * weight[i] * slope[i];
    }
    for (int j = 0; j < here; j++) {
      float here_weight[4], here_step[4];
      for (int i = 0; i < 4; i++) {
        here_weight[i] = __shfl_sync(0xffffffffu, weight[i], j);
        here_step[i] = __shfl_sync(0xffffffffu, step[i], j);
      }
      for (int n = 0; n < COLUMNS; n++) {
        const int c = 32 * n + lane;
        const float x = c < depth ? q[(row + j) * depth + c] : 0;
        for (int i = 0; i < 4; i++) sums[i][n] += here_step[i] * x;
      }
      for (int n = 0; n < COLUMNS_V; n++) {
        const int c = 32 * n + lane;
        const float x = c < width ? dout[(row + j) * width + c] : 0;
        for (int i = 0; i < 4; i++) sums_v[i][n] += here_weight[i] * x;
      }
    }
  }
  for (int i = 0; i < 4; i++) {
    const long key = first + warp * 4 + i;
    if (key >= keys) continue;
    for (int n = 0; n < COLUMNS; n++) {
      const int c = 32 * n + lane;
      if (c < depth) dk[(group * keys + key) * depth + c] = sums[i][n];
    }
    for (int n = 0; n < COLUMNS_V; n++) {
      const int c = 32 * n + lane;
      if (c < width) dv[(group * keys + key) * width + c] = sums_v[i][n];
    }
  }
}
