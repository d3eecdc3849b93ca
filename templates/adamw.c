void $name$(float *restrict w, const float *restrict g, float *restrict m, float *restrict v, int t)
{
  const float c1 = (float)(1 / (1 - pow($beta1$, t)));
  const float c2 = (float)(1 / (1 - pow($beta2$, t)));
  for ($counter$ i = 0; i < $n$; i++) {
    m[i] = $keep1$ * m[i] + $take1$ * g[i];
    v[i] = $keep2$ * v[i] + $take2$ * g[i] * g[i];
    w[i] = $decay$ * w[i] - $lr$ * (m[i] * c1) / (sqrtf(v[i] * c2) + $eps$);
  }
}
