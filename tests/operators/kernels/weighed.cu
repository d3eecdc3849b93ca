// launch: $batch$, 1
__global__ void $name$(float *__restrict__ out, const float *__restrict__ x,
                       const float *__restrict__ w)
{
  float sum = 0;
  for (long k = 0; k < $k$; k++) sum += x[blockIdx.x * (long)$k$ + k] * w[k];
  out[blockIdx.x] = sum;
}
