void $name$(float *restrict out, const float *restrict x, const float *restrict w)
{
  for (long i = 0; i < $batch$; i++) {
    out[i] = 0;
    for (long k = 0; k < $k$; k++) out[i] += x[i * $k$ + k] * w[k];
  }
}
