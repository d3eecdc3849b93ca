// What the forward was given and made does not matter: it is linear.
void $name$(float *restrict out, const float *restrict dy, const float *restrict x,
            const float *restrict y, long first_j)
{
  (void)x;
  (void)y;
  for (long i = 0; i < $batch$; i++)
    for (long j = 0; j < $j$; j++)
      out[i * $j$ + j] = dy[i * $j$ + j] * (1 + (float)(first_j + j) / 4);
}
