void $name$(float *restrict out, const float *restrict dy, const float *restrict x,
            const float *restrict w, const float *restrict y)
{
  (void)w;
  (void)y;
  for (long k = 0; k < $k$; k++) {
    out[k] = 0;
    for (long i = 0; i < $batch$; i++) out[k] += dy[i] * x[i * $k$ + k];
  }
}
