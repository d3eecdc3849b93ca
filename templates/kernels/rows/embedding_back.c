// Adds each token's gradient to its row of the table, in the order of the tokens. Each thread has
// some columns. Tokens whose rows are on other ranks are skipped.
void $name$(float *restrict out, const $type_a$ *restrict a, const int *restrict token,
            long first_v)
{
  const long tokens = $batch$, rows = $v$, width = $d$, columns = 64;
#pragma omp parallel for schedule(static) if (rows * width >= 16384)
  for (long row = 0; row < rows; row++)
    for (long j = 0; j < width; j++) out[row * width + j] = 0;
#pragma omp parallel for schedule(static) if (tokens * width >= 16384)
  for (long begin = 0; begin < width; begin += columns) {
    const long end = begin + columns < width ? begin + columns : width;
    for (long i = 0; i < tokens; i++) {
      const long row = token[i] - first_v;
      if (row < 0 || row >= rows) continue;
      for (long j = begin; j < end; j++) out[row * width + j] += $float_a$(a[i * width + j]);
    }
  }
}
