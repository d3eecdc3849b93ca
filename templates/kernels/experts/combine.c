// The sum over each token's places of their rows, times their weights. Places of experts that this
// rank does not have add nothing.
void $name$(float *restrict out, const $type_a$ *restrict a, const int *restrict expert,
            const $type_weight$ *restrict weight, const int *restrict counts, long first_e)
{
  static _Thread_local long space[$b$ * $s$ * $k$], next[$e$], end[$e$];
  const long tokens = $b$ * $s$, places = $k$, width = $d$, experts = $e$;
  long *const row = space;
  rows_of_places(row, next, end, expert, tokens * places, counts, experts, first_e);
#pragma omp parallel for schedule(static) if (tokens * places * width >= 16384)
  for (long t = 0; t < tokens; t++) {
    float *const to = out + t * width;
    for (long j = 0; j < width; j++) to[j] = 0;
    for (long i = t * places; i < (t + 1) * places; i++) {
      if (row[i] < 0) continue;
      const $type_a$ *const from = a + row[i] * width;
      const float by = $float_weight$(weight[i]);
      for (long j = 0; j < width; j++) to[j] += by * $float_a$(from[j]);
    }
  }
}
