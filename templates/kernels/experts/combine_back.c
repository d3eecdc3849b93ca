// The product of each place's row with its token's elements; 0 for places of experts that this rank
// does not have.
void $name$(float *restrict out, const $type_a$ *restrict a, const int *restrict expert,
            const $type_rows$ *restrict rows, const int *restrict counts, long first_e)
{
  static _Thread_local long space[$b$ * $s$ * $k$], next[$e$], end[$e$];
  const long tokens = $b$ * $s$, places = $k$, width = $d$, experts = $e$;
  long *const row = space;
  rows_of_places(row, next, end, expert, tokens * places, counts, experts, first_e);
#pragma omp parallel for schedule(static) if (tokens * places * width >= 16384)
  for (long i = 0; i < tokens * places; i++) {
    const $type_a$ *const token = a + i / places * width;
    const $type_rows$ *const from = rows + (row[i] < 0 ? 0 : row[i]) * width;
    float sum = 0;
    for (long j = 0; j < width && row[i] >= 0; j++)
      sum += $float_a$(token[j]) * $float_rows$(from[j]);
    out[i] = sum;
  }
}
