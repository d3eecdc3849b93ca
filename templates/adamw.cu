__global__ void $name$(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ m, float *__restrict__ v$norm$, const struct constants *__restrict__ now)
{
  const $counter$ i = ($counter$)blockIdx.x * 256 + ($counter$)threadIdx.x;
  if (i >= $n$) return;
$clip$  const float d = $times$g[i];
  m[i] = $beta1$ * m[i] + $take1$ * d;
  v[i] = $beta2$ * v[i] + $take2$ * d * d;
  w[i] = now->keep * w[i] - now->rate * m[i] / (now->root * sqrtf(v[i]) + $eps$);
}
