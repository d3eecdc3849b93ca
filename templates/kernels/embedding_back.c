// Adds each token's gradient to its row of the table. Tokens whose rows are not here are passed
// over.
void $name$(float *restrict out, const float *restrict a, const int *restrict token, long first_v)
{
  const long tokens = $batch$, rows = $v$, width = $d$;
  for (long i = 0; i < rows * width; i++) out[i] = 0;
  for (long i = 0; i < tokens; i++) {
    const long row = token[i] - first_v;
    if (row < 0 || row >= rows) continue;
    for (long j = 0; j < width; j++) out[row * width + j] += a[i * width + j];
  }
}
