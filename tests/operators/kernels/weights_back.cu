// launch: $k$, 1
__global__ void $name$(float *__restrict__ out, const float *__restrict__ dy,
                       const float *__restrict__ x, const float *__restrict__ w,
                       const float *__restrict__ y)
{
  (void)w;
  (void)y;
  float sum = 0;
  for (long i = 0; i < $batch$; i++) sum += dy[i] * x[i * $k$ + blockIdx.x];
  out[blockIdx.x] = sum;
}
