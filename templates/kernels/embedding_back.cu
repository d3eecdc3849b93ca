// Adds each token's gradient to its row of the table. A block for each row looks for its token
// among 256 at once, and adds in their order.
// launch: $v$, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a,
                       const int *__restrict__ token, long first_v)
{
  __shared__ unsigned found[8]; // a bit for each token of a warp
  const long tokens = $batch$, width = $d$;
  const long row = (long)blockIdx.x, t = (long)threadIdx.x;
  for (long j = t; j < width; j += 256) out[row * width + j] = 0;
  for (long from = 0; from < tokens; from += 256) {
    const bool mine = from + t < tokens && token[from + t] == row + first_v;
    const unsigned bits = __ballot_sync(0xffffffffu, mine);
    if (t % 32 == 0) found[t / 32] = bits;
    __syncthreads();
    for (int w = 0; w < 8; w++) {
      for (unsigned rest = found[w]; rest; rest &= rest - 1) {
        const long i = from + 32 * w + __ffs((int)rest) - 1;
        for (long j = t; j < width; j += 256) out[row * width + j] += $float_a$(a[i * width + j]);
      }
    }
    __syncthreads();
  }
}
