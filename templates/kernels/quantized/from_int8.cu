// A weight's numbers, from blocks of 8 bits: a thread for each.
// launch: ($n$ * $g$ * 32 + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, const signed char *__restrict__ table)
{
  const long i = (long)blockIdx.x * 256 + threadIdx.x;
  const struct weight_block *const block = (const struct weight_block *)table + i / BLOCK_NUMBERS;
  if (i < (long)$n$ * $g$ * BLOCK_NUMBERS)
    out[i] = bf16_to_float(block->scale) * (float)block->q[i % BLOCK_NUMBERS];
}
