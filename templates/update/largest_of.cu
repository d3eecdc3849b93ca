// The largest element of gradients in absolute value, by blocks; NaN if one of them is. $name$ takes
// that of all blocks, and resets them.
static __device__ double $name$_of_block[1024];

__global__ __launch_bounds__(256)
void add_to_$name$(const float *__restrict__ g, long n)
{
  const long step = (long)gridDim.x * 256 * $width$;
  float most = 0;
  for (long i = ((long)blockIdx.x * 256 + (long)threadIdx.x) * $width$; i < n; i += step) {
    const vec<float, $width$> g_v = load<$width$>(g + i);
#pragma unroll
    for (int e = 0; e < $width$; e++) most = greater(most, fabsf(g_v[e]));
  }
  most = block_max(most);
  if (threadIdx.x == 0)
    $name$_of_block[blockIdx.x] = greater($name$_of_block[blockIdx.x], (double)most);
}

__global__ __launch_bounds__(1024)
void $name$(double *largest)
{
  const double most = block_max<1024>($name$_of_block[threadIdx.x]);
  $name$_of_block[threadIdx.x] = 0;
  if (threadIdx.x == 0) *largest = most;
}
