__global__ void $name$(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ m, float *__restrict__ v, float c1, float c2)
{
  const $counter$ i = ($counter$)blockIdx.x * 256 + ($counter$)threadIdx.x;
  if (i >= $n$) return;
  m[i] = $keep1$ * m[i] + $take1$ * g[i];
  v[i] = $keep2$ * v[i] + $take2$ * g[i] * g[i];
  w[i] = $decay$ * w[i] - $lr$ * (m[i] * c1) / (sqrtf(v[i] * c2) + $eps$);
}
