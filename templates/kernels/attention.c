// softmax(scale q k^T) v, and the logarithm of the sum of each row's exponentials. The rows of the
// heads that share keys and values are taken together, some at a time, and go over the keys, some
// at a time; what a row has summed up is scaled down when it meets a greater one.
void $name$(float *restrict out, float *restrict lse, const float *restrict q,
            const float *restrict k, const float *restrict v, long first_q)
{
  enum { ROWS = 64, KEYS = 64 };
  static float turned[$d$][KEYS]; // some keys, as columns
  const long groups = (long)$b$ * $g$, queries = $q$, rows = $r$ * queries, keys = $k$;
  const long depth = $d$, width = $e$;
  const int causal = $causal$;
  const float scale = $s$;
  const long tiles = (rows + ROWS - 1) / ROWS;
  for (long tile = 0; tile < groups * tiles; tile++) {
    const long group = tile / tiles, first = tile % tiles * ROWS;
    const long last = first + ROWS < rows ? first + ROWS : rows;
    float most[ROWS], sum[ROWS];
    for (long i = first; i < last; i++) {
      most[i - first] = -INFINITY;
      sum[i - first] = 0;
      for (long c = 0; c < width; c++) out[(group * rows + i) * width + c] = 0;
    }
    for (long key = 0; key < keys; key += KEYS) {
      const long here = keys - key < KEYS ? keys - key : KEYS;
      for (long c = 0; c < depth; c++)
        for (long j = 0; j < here; j++) turned[c][j] = k[(group * keys + key + j) * depth + c];
      for (long i = first; i < last; i++) {
        const float *const query = q + (group * rows + i) * depth;
        float *const to = out + (group * rows + i) * width;
        long seen = causal ? first_q + i % queries + 1 - key : here;
        if (seen <= 0) continue;
        if (seen > here) seen = here;
        float score[KEYS] = {0};
        for (long c = 0; c < depth; c++)
          for (long j = 0; j < KEYS; j++) score[j] += query[c] * turned[c][j];
        float more = most[i - first];
        for (long j = 0; j < seen; j++) {
          score[j] *= scale;
          more = score[j] > more ? score[j] : more;
        }
        const float base = more == -INFINITY ? 0 : more;
        const float less = expf(most[i - first] - base);
        most[i - first] = more;
        sum[i - first] *= less;
        for (long c = 0; c < width; c++) to[c] *= less;
        for (long j = 0; j < seen; j++) {
          const float *const value = v + (group * keys + key + j) * width;
          const float weight = expf(score[j] - base);
          sum[i - first] += weight;
          for (long c = 0; c < width; c++) to[c] += weight * value[c];
        }
      }
    }
    for (long i = first; i < last; i++) {
      const float total = sum[i - first], part = total > 0 ? 1 / total : 0;
      lse[group * rows + i] = most[i - first] + logf(total);
      for (long c = 0; c < width; c++) out[(group * rows + i) * width + c] *= part;
    }
  }
}
