// x times the logistic function of s x.
void $name$(float *restrict out, const float *restrict x)
{
  for (long i = 0; i < (long)$batch$; i++) out[i] = x[i] / (1 + expf(-$s$ * x[i]));
}
