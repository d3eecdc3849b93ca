__global__ void $name$(float *__restrict__ w, const float *__restrict__ g$norm$, float rate)
{
  const $counter$ i = ($counter$)blockIdx.x * 256 + ($counter$)threadIdx.x;
  if (i >= $n$) return;
$clip$  w[i] -= rate * ($times$g[i]$decay$);
}
