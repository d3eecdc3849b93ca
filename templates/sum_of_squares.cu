// The sum of the squares of gradients, block by block; put together, always in one order, and begun
// anew by sum_of_squares.
static __device__ double squares_of_block[256];

__global__ void add_squares(const float *__restrict__ g, long n, double weight)
{
  const long step = (long)gridDim.x * 256;
  double sum = 0;
  for (long i = (long)blockIdx.x * 256 + (long)threadIdx.x; i < n; i += step)
    sum += (double)g[i] * (double)g[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) squares_of_block[blockIdx.x] += weight * sum;
}

__global__ void sum_of_squares(double *squares)
{
  const double sum = block_sum(squares_of_block[threadIdx.x]);
  squares_of_block[threadIdx.x] = 0;
  if (threadIdx.x == 0) *squares = sum;
}
