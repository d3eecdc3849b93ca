// Counts the places of each expert that this rank has: a block for each expert.
// launch: $e$, 256
__global__ void $name$(int *__restrict__ out, const int *__restrict__ expert, long first_e)
{
  __shared__ int sum[256];
  const long places = (long)$b$ * $s$ * $k$, e = first_e + (long)blockIdx.x;
  int here = 0;
  for (long i = (long)threadIdx.x; i < places; i += 256) here += expert[i] == e;
  sum[threadIdx.x] = here;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if ((int)threadIdx.x < half) sum[threadIdx.x] += sum[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sum[0];
}
