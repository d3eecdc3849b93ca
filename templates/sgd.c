void $name$(float *restrict w, const float *restrict g)
{
  for ($counter$ i = 0; i < $n$; i++) w[i] = $decay$ * w[i] - $lr$ * g[i];
}
