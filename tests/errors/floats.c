void $name$(float *restrict out, const float *restrict a)
{
  for (long i = 0; i < $batch$; i++) out[i] = $s$ * a[i];
}
