// launch: $batch$, $k$
__global__ void $name$(float *__restrict__ out, const float *__restrict__ dy,
                       const float *__restrict__ x, const float *__restrict__ w,
                       const float *__restrict__ y)
{
  (void)x;
  (void)y;
  out[blockIdx.x * (long)$k$ + threadIdx.x] = dy[blockIdx.x] * w[threadIdx.x];
}
