void $name$(float *restrict w, const float *restrict g, float *restrict m$norm$, float rate)
{
$clip$$threads$  for ($counter$ i = 0; i < $n$; i++) {
    m[i] = $momentum$ * m[i] + ($times$g[i]$decay$);
    w[i] -= rate * m[i];
  }
}
