// Each row's elements, mixed by a matrix.
void $name$(float *restrict out, const float *restrict x, const float *restrict w)
{
  for (long i = 0; i < (long)$r$; i++)
    for (long j = 0; j < (long)$n$; j++) {
      float sum = 0;
      for (long l = 0; l < (long)$m$; l++) sum += x[i * $m$ + l] * w[l * $n$ + j];
      out[i * $n$ + j] = sum;
    }
}
