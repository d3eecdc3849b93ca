__global__ void $name$(float *__restrict__ w, const float *__restrict__ g$norm$, const struct constants *__restrict__ now)
{
  const $counter$ i = ($counter$)blockIdx.x * 256 + ($counter$)threadIdx.x;
  if (i >= $n$) return;
$clip$  w[i] -= now->rate * ($times$g[i]$decay$);
}
