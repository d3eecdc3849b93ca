// From the gradient of attention's output those of q, k and v. The weights are computed anew from
// the logarithms of their rows' sums; a row's mean of the gradients of its weights is taken off
// from each.

// Where a row of the heads that share keys and values lies.
static __device__ long $name$_at(long row, long step_r, long step_q)
{
  return row / $q$ * step_r + row % $q$ * step_q;
}

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
  const long b = group / $g$, g = group % $g$;
  q += b * $step_q_b$ + g * $step_q_g$;
  k += b * $step_k_b$ + g * $step_k_g$;
  v += b * $step_v_b$ + g * $step_v_g$;
  out += b * $step_out_b$ + g * $step_out_g$;
  dout += b * $step_dout_b$ + g * $step_dout_g$;
  dq += b * $step_dq_b$ + g * $step_dq_g$;
  float sums[4][COLUMNS] = {};
  for (long key = 0; key < keys; key += 32) {
    const int here = keys - key < 32 ? (int)(keys - key) : 32;
    float score[4] = {}, slope[4] = {};
    for (int from = 0; from < depth || from < width; from += 32) {
      const int c = from + lane;
      __syncthreads();
      for (int i = warp; i < 32; i += 8) {
        const long at_q = $name$_at(first + i, $step_q_r$, $step_q_q$);
        const long at_out = $name$_at(first + i, $step_out_r$, $step_out_q$);
        const long at_dout = $name$_at(first + i, $step_dout_r$, $step_dout_q$);
        const bool is_row = first + i < rows;
        some_q[i][lane] = is_row && c < depth ? q[at_q + c] : 0;
        some_k[i][lane] = i < here && c < depth ? k[(key + i) * $step_k_k$ + c] : 0;
        some_out[i][lane] = is_row && c < width ? out[at_out + c] : 0;
        some_dout[i][lane] = is_row && c < width ? dout[at_dout + c] : 0;
        some_v[i][lane] = i < here && c < width ? v[(key + i) * $step_v_k$ + c] : 0;
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
        const float x = c < depth ? k[(key + j) * $step_k_k$ + c] : 0;
        for (int i = 0; i < 4; i++) sums[i][n] += here_step[i] * x;
      }
    }
  }
  for (int i = 0; i < 4; i++) {
    const long row = first + warp * 4 + i, at = $name$_at(row, $step_dq_r$, $step_dq_q$);
    for (int n = 0; n < COLUMNS; n++) {
      const int c = 32 * n + lane;
      if (row < rows && c < depth) dq[at + c] = sums[i][n];
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
  const long b = group / $g$, g = group % $g$;
  q += b * $step_q_b$ + g * $step_q_g$;
  k += b * $step_k_b$ + g * $step_k_g$;
  v += b * $step_v_b$ + g * $step_v_g$;
  out += b * $step_out_b$ + g * $step_out_g$;
  dout += b * $step_dout_b$ + g * $step_dout_g$;
  dk += b * $step_dk_b$ + g * $step_dk_g$;
  dv += b * $step_dv_b$ + g * $step_dv_g$;
  float sums[4][COLUMNS] = {}, sums_v[4][COLUMNS_V] = {};
  for (long row = 0; row < rows; row += 32) {
    const int here = rows - row < 32 ? (int)(rows - row) : 32;
    float score[4] = {}, slope[4] = {};
    for (int from = 0; from < depth || from < width; from += 32) {
      const int c = from + lane;
      __syncthreads();
      for (int i = warp; i < 32; i += 8) {
        const long key = first + i, at_q = $name$_at(row + i, $step_q_r$, $step_q_q$);
        const long at_out = $name$_at(row + i, $step_out_r$, $step_out_q$);
        const long at_dout = $name$_at(row + i, $step_dout_r$, $step_dout_q$);
        some_q[i][lane] = i < here && c < depth ? q[at_q + c] : 0;
        some_k[i][lane] = key < keys && c < depth ? k[key * $step_k_k$ + c] : 0;
        some_out[i][lane] = i < here && c < width ? out[at_out + c] : 0;
        some_dout[i][lane] = i < here && c < width ? dout[at_dout + c] : 0;
        some_v[i][lane] = key < keys && c < width ? v[key * $step_v_k$ + c] : 0;
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
      const long at_q = $name$_at(row + j, $step_q_r$, $step_q_q$);
      const long at_dout = $name$_at(row + j, $step_dout_r$, $step_dout_q$);
      float here_weight[4], here_step[4];
      for (int i = 0; i < 4; i++) {
        here_weight[i] = __shfl_sync(0xffffffffu, weight[i], j);
        here_step[i] = __shfl_sync(0xffffffffu, step[i], j);
      }
      for (int n = 0; n < COLUMNS; n++) {
        const int c = 32 * n + lane;
        const float x = c < depth ? q[at_q + c] : 0;
        for (int i = 0; i < 4; i++) sums[i][n] += here_step[i] * x;
      }
      for (int n = 0; n < COLUMNS_V; n++) {
        const int c = 32 * n + lane;
        const float x = c < width ? dout[at_dout + c] : 0;
        for (int i = 0; i < 4; i++) sums_v[i][n] += here_weight[i] * x;
      }
    }
  }
  for (int i = 0; i < 4; i++) {
    const long key = first + warp * 4 + i;
    if (key >= keys) continue;
    for (int n = 0; n < COLUMNS; n++) {
      const int c = 32 * n + lane;
      if (c < depth) dk[key * $step_dk_k$ + c] = sums[i][n];
    }
    for (int n = 0; n < COLUMNS_V; n++) {
      const int c = 32 * n + lane;
      if (c < width) dv[key * $step_dv_k$ + c] = sums_v[i][n];
    }
  }
}
