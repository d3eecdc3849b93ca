// Rows of a table of blocks of 8 bits, as floats: a block for each token. Tokens whose rows are on
// other ranks give zeros.
// launch: $a$ * $b$, 128
__global__ void $name$(float *__restrict__ out, const signed char *__restrict__ table,
                       const int *__restrict__ token, long first_v)
{
  const struct weight_block *const block = (const struct weight_block *)table;
  const long i = blockIdx.x, row = token[i] - first_v, width = (long)$g$ * BLOCK_NUMBERS;
  for (long c = threadIdx.x; c < width; c += 128) {
    const long at = row * $g$ + c / BLOCK_NUMBERS;
    out[i * width + c] = row < 0 || row >= $v$ ? 0
                                               : bf16_to_float(block[at].scale) *
                                                     (float)block[at].q[c % BLOCK_NUMBERS];
  }
}
