// From the gradient of attention's output those of q, k and v. The weights are computed anew from
// the logarithms of their rows' sums; a row's mean of the gradients of its weights is taken off
// from each.
void $name$(float *restrict dq, float *restrict dk, float *restrict dv,
            const float *restrict dout, const float *restrict q, const float *restrict k,
            const float *restrict v, const float *restrict out, const float *restrict lse,
            long first_q, long first_k)
{
  enum { ROWS = 64, KEYS = 64 };
  static float turned[$d$][KEYS], turned_v[$e$][KEYS]; // some keys and values, as columns
  const long groups = (long)$b$ * $g$, queries = $q$, rows = $r$ * queries, keys = $k$;
  const long depth = $d$, width = $e$;
  const int causal = $causal$;
  const float scale = $s$;
  const long tiles = (rows + ROWS - 1) / ROWS;
  for (long n = 0; n < groups * rows * depth; n++) dq[n] = 0;
  for (long n = 0; n < groups * keys * depth; n++) dk[n] = 0;
  for (long n = 0; n < groups * keys * width; n++) dv[n] = 0;
  for (long tile = 0; tile < groups * tiles; tile++) {
    const long group = tile / tiles, first = tile % tiles * ROWS;
    const long last = first + ROWS < rows ? first + ROWS : rows;
    float mean[ROWS];
    for (long i = first; i < last; i++) {
      double sum = 0;
      for (long c = (group * rows + i) * width, end = c + width; c < end; c++)
        sum += (double)dout[c] * (double)out[c];
      mean[i - first] = (float)sum;
    }
    for (long key = 0; key < keys; key += KEYS) {
      const long here = keys - key < KEYS ? keys - key : KEYS;
      for (long j = 0; j < here; j++) {
        const long at = group * keys + key + j;
        for (long c = 0; c < depth; c++) turned[c][j] = k[at * depth + c];
        for (long c = 0; c < width; c++) turned_v[c][j] = v[at * width + c];
      }
      for (long i = first; i < last; i++) {
        const long row = group * rows + i;
        const float *const query = q + row * depth, *const gradient = dout + row * width;
        float *const to = dq + row * depth;
        long seen = causal ? first_q + i % queries + 1 - first_k - key : here;
        if (seen <= 0 || lse[row] == -INFINITY) continue;
        if (seen > here) seen = here;
        float score[KEYS] = {0}, slope[KEYS] = {0};
        for (long c = 0; c < depth; c++)
          for (long j = 0; j < KEYS; j++) score[j] += query[c] * turned[c][j];
        for (long c = 0; c < width; c++)
          for (long j = 0; j < KEYS; j++) slope[j] += gradient[c] * turned_v[c][j];
        for (long j = 0; j < seen; j++) {
          const long at = group * keys + key + j;
          const float weight = expf(scale * score[j] - lse[row]);
          const float step = scale * weight * (slope[j] - mean[i - first]);
          for (long c = 0; c < width; c++) dv[at * width + c] += weight * gradient[c];
          for (long c = 0; c < depth; c++) dk[at * depth + c] += step * query[c];
          for (long c = 0; c < depth; c++) to[c] += step * k[at * depth + c];
        }
      }
    }
  }
}
