void $name$(float *restrict w, const float *restrict g, float *restrict m, float *restrict v$norm$, float keep, float rate, float root)
{
$clip$$threads$  for ($counter$ i = 0; i < $n$; i++) {
    const float d = $times$g[i];
    m[i] = $beta1$ * m[i] + $take1$ * d;
    v[i] = $beta2$ * v[i] + $take2$ * d * d;
    w[i] = keep * w[i] - rate * m[i] / (root * sqrtf(v[i]) + $eps$);
  }
}
