void $name$(float *restrict out, const float *restrict x, long first_j)
{
  for (long i = 0; i < $batch$; i++)
    for (long j = 0; j < $j$; j++)
      out[i * $j$ + j] = x[i * $j$ + j] * (1 + (float)(first_j + j) / 4);
}
