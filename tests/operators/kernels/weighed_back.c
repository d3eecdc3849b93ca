void $name$(float *restrict out, const float *restrict dy, const float *restrict x,
            const float *restrict w, const float *restrict y)
{
  (void)x;
  (void)y;
  for (long i = 0; i < $batch$; i++)
    for (long k = 0; k < $k$; k++) out[i * $k$ + k] = dy[i] * w[k];
}
