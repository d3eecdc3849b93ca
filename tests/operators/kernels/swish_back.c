// The slope of y = x s, s = 1 / (1 + exp(-x)), is s + y (1 - s).
static float $name$_slope(float x, float y)
{
  const float s = 1 / (1 + expf(-x));
  return s + y * (1 - s);
}
void $name$(float *restrict out, const float *restrict dy, const float *restrict x,
            const float *restrict y)
{
  for (long i = 0; i < $batch$; i++) out[i] = dy[i] * $name$_slope(x[i], y[i]);
}
