__global__ void $name$(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ m$norm$, const struct constants *__restrict__ now)
{
  const $counter$ i = ($counter$)blockIdx.x * 256 + ($counter$)threadIdx.x;
  if (i >= $n$) return;
$clip$  const float d = $times$g[i]$decay$;
  m[i] = $momentum$ * m[i] + d;
  w[i] -= now->rate * (d + $momentum$ * m[i]);
}
