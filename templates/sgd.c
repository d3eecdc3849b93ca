void $name$(float *restrict w, const float *restrict g$norm$, float rate)
{
$clip$$threads$  for ($counter$ i = 0; i < $n$; i++) w[i] -= rate * ($times$g[i]$decay$);
}
