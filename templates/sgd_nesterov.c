void $name$(float *restrict w, const float *restrict g, float *restrict m$norm$, float rate)
{
$clip$$threads$  for ($counter$ i = 0; i < $n$; i++) {
    const float d = $times$g[i]$decay$;
    m[i] = $momentum$ * m[i] + d;
    w[i] -= rate * (d + $momentum$ * m[i]);
  }
}
