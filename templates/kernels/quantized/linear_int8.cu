// A warp for each column of the result, one row after the other: a lane has a number of each block.
// launch: ($n$ + 3) / 4, 128
__global__ void $name$(float *__restrict__ out, const float *__restrict__ x,
                       const signed char *__restrict__ w)
{
  const struct weight_block *const block = (const struct weight_block *)w;
  const long n = $n$, blocks = $g$, rows = (long)$a$ * $b$;
  const long j = (long)blockIdx.x * 4 + threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  for (long i = 0; i < rows && j < n; i++) {
    float sum = 0;
    for (long g = 0; g < blocks; g++)
      sum += x[(i * blocks + g) * BLOCK_NUMBERS + lane] *
             bf16_to_float(block[j * blocks + g].scale) * (float)block[j * blocks + g].q[lane];
    sum = over_warp<float, plus<float>>(sum);
    if (lane == 0) out[i * n + j] = sum;
  }
}
