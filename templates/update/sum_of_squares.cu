// The sum of the squares of gradients, by blocks. $name$ adds up the blocks' parts in a fixed
// order, and resets them.
static __device__ double $name$_of_block[1024];

__global__ __launch_bounds__(256)
void add_to_$name$(const float *__restrict__ g, long n, double weight)
{
  const long step = (long)gridDim.x * 256 * $width$;
  double sum = 0;
  for (long i = ((long)blockIdx.x * 256 + (long)threadIdx.x) * $width$; i < n; i += step) {
    const vec<float, $width$> g_v = load<$width$>(g + i);
#pragma unroll
    for (int e = 0; e < $width$; e++) sum += (double)g_v[e] * (double)g_v[e];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) $name$_of_block[blockIdx.x] += weight * sum;
}

__global__ __launch_bounds__(1024)
void $name$(double *squares)
{
  const double sum = block_sum<1024>($name$_of_block[threadIdx.x]);
  $name$_of_block[threadIdx.x] = 0;
  if (threadIdx.x == 0) *squares = sum;
}
