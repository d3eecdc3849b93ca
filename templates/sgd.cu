__global__ void $name$(float *__restrict__ w, const float *__restrict__ g)
{
  const $counter$ i = ($counter$)blockIdx.x * 256 + ($counter$)threadIdx.x;
  if (i < $n$) w[i] = $decay$ * w[i] - $lr$ * g[i];
}
