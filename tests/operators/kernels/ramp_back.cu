// What the forward was given and made does not matter: it is linear.
// launch: $batch$, $j$
__global__ void $name$(float *__restrict__ out, const float *__restrict__ dy,
                       const float *__restrict__ x, const float *__restrict__ y, long first_j)
{
  (void)x;
  (void)y;
  const long j = threadIdx.x, at = blockIdx.x * (long)$j$ + j;
  out[at] = dy[at] * (1 + (float)(first_j + j) / 4);
}
