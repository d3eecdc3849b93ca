// x / (1 + exp(-s x))
void $name$(float *restrict out, const float *restrict x)
{
  for (long i = 0; i < $batch$; i++) out[i] = x[i] / (1 + expf(-$s$ * x[i]));
}
