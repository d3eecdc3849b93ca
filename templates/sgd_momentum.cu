__global__ void $name$(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ m$norm$, const struct constants *__restrict__ now)
{
  const $counter$ i = ($counter$)blockIdx.x * 256 + ($counter$)threadIdx.x;
  if (i >= $n$) return;
$clip$  m[i] = $momentum$ * m[i] + ($times$g[i]$decay$);
  w[i] -= now->rate * m[i];
}
