// softmax(scale q k^T) v, and the logarithm of the sum of each row's exponentials. A block takes 32
// rows of the heads that share keys and values, a warp 4 of them, and goes over 32 keys at a time,
// a lane for each; what a row has summed up is scaled down when it meets a greater one.

// Where a row of the heads that share keys and values lies.
static __device__ long $name$_at(long row, long step_r, long step_q)
{
  return row / $q$ * step_r + row % $q$ * step_q;
}

// launch: $b$ * $g$ * (($r$ * $q$ + 31) / 32), 256
__global__ void $name$(float *__restrict__ out, float *__restrict__ lse,
                       const float *__restrict__ q, const float *__restrict__ k,
                       const float *__restrict__ v, long first_q)
{
  constexpr int COLUMNS = ($e$ + 31) / 32; // of the output, that a lane has
  __shared__ float some_q[32][33], some_k[32][33];
  const long queries = $q$, rows = $r$ * queries, keys = $k$, tiles = (rows + 31) / 32;
  const int depth = $d$, width = $e$, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  const bool causal = $causal$;
  const float scale = $s$;
  const long group = (long)blockIdx.x / tiles, first = (long)blockIdx.x % tiles * 32;
  const long b = group / $g$, g = group % $g$;
  q += b * $step_q_b$ + g * $step_q_g$;
  k += b * $step_k_b$ + g * $step_k_g$;
  v += b * $step_v_b$ + g * $step_v_g$;
  out += b * $step_out_b$ + g * $step_out_g$;
  float sum[4] = {}, most[4], sums[4][COLUMNS] = {};
  for (int i = 0; i < 4; i++) most[i] = -INFINITY;
  for (long key = 0; key < keys; key += 32) {
    const int here = keys - key < 32 ? (int)(keys - key) : 32;
    float score[4] = {};
    for (int from = 0; from < depth; from += 32) {
      __syncthreads();
      for (int i = warp; i < 32; i += 8) {
        const bool inside = from + lane < depth;
        const long row = $name$_at(first + i, $step_q_r$, $step_q_q$);
        some_q[i][lane] = inside && first + i < rows ? q[row + from + lane] : 0;
        some_k[i][lane] = inside && i < here ? k[(key + i) * $step_k_k$ + from + lane] : 0;
      }
      __syncthreads();
      for (int c = 0; c < 32; c++)
        for (int i = 0; i < 4; i++) score[i] += some_q[warp * 4 + i][c] * some_k[lane][c];
    }
    float weight[4];
    for (int i = 0; i < 4; i++) {
      const long row = first + warp * 4 + i;
      const bool sees = lane < here && (!causal || key + lane <= first_q + row % queries);
      const float x = sees ? scale * score[i] : -INFINITY;
      float more = fmaxf(most[i], x), total;
      for (int d = 16; d; d /= 2) more = fmaxf(more, __shfl_xor_sync(0xffffffffu, more, d));
      const float base = more == -INFINITY ? 0 : more, less = expf(most[i] - base);
      weight[i] = total = expf(x - base);
      for (int d = 16; d; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
      most[i] = more;
      sum[i] = sum[i] * less + total;
      for (int c = 0; c < COLUMNS; c++) sums[i][c] *= less;
    }
    for (int j = 0; j < here; j++) {
      float here_weight[4];
      for (int i = 0; i < 4; i++) here_weight[i] = __shfl_sync(0xffffffffu, weight[i], j);
      for (int c = 0; c < COLUMNS; c++) {
        const int column = 32 * c + lane;
        const float value = column < width ? v[(key + j) * $step_v_k$ + column] : 0;
        for (int i = 0; i < 4; i++) sums[i][c] += here_weight[i] * value;
      }
    }
  }
  for (int i = 0; i < 4; i++) {
    const long row = first + warp * 4 + i;
    if (row >= rows) continue;
    const float part = sum[i] > 0 ? 1 / sum[i] : 0;
    float *const to = out + $name$_at(row, $step_out_r$, $step_out_q$);
    if (lane == 0) lse[group * rows + row] = most[i] + logf(sum[i]);
    for (int c = 0; c < COLUMNS; c++) {
      const int column = 32 * c + lane;
      if (column < width) to[column] = part * sums[i][c];
    }
  }
}
