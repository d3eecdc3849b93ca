// Adds each slice across the middle dimension to the slice of the output that its index names. A
// block for each slice of the output looks for its index among 256 at once, and adds in their
// order.
// launch: $D$, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a,
                       const int *__restrict__ index, long first_D)
{
  __shared__ unsigned found[8]; // a bit for each index of a warp
  const long before = $before$, size = $D$, count = $I$, after = $after$;
  const long slice = (long)blockIdx.x, t = (long)threadIdx.x;
  for (long n = t; n < before * after; n += 256)
    out[(n / after * size + slice) * after + n % after] = 0;
  for (long from = 0; from < count; from += 256) {
    const bool mine = from + t < count && index[from + t] == slice + first_D;
    const unsigned bits = __ballot_sync(0xffffffffu, mine);
    if (t % 32 == 0) found[t / 32] = bits;
    __syncthreads();
    for (int w = 0; w < 8; w++) {
      for (unsigned rest = found[w]; rest; rest &= rest - 1) {
        const long j = from + 32 * w + __ffs((int)rest) - 1;
        for (long n = t; n < before * after; n += 256) {
          const long i = n / after, k = n % after;
          out[(i * size + slice) * after + k] += $float_a$(a[(i * count + j) * after + k]);
        }
      }
    }
    __syncthreads();
  }
}
