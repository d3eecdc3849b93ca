// launch: $batch$, $j$
__global__ void $name$(float *__restrict__ out, const float *__restrict__ x, long first_j)
{
  const long j = threadIdx.x, at = blockIdx.x * (long)$j$ + j;
  out[at] = x[at] * (1 + (float)(first_j + j) / 4);
}
