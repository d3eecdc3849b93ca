// A thread for each column of the result, one row after the other: a warp has a block.
// launch: ($g$ + 3) / 4, 128
__global__ void $name$(float *__restrict__ out, const float *__restrict__ x,
                       const signed char *__restrict__ w)
{
  const struct weight_block *const block = (const struct weight_block *)w;
  const long blocks = $g$, k = $k$, rows = (long)$a$ * $b$;
  const long g = (long)blockIdx.x * 4 + threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  for (long i = 0; i < rows && g < blocks; i++) {
    float sum = 0;
    for (long c = 0; c < k; c++)
      sum += x[i * k + c] * bf16_to_float(block[c * blocks + g].scale) *
             (float)block[c * blocks + g].q[lane];
    out[(i * blocks + g) * BLOCK_NUMBERS + lane] = sum;
  }
}
