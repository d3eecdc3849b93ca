// Each token's elements, times the place's weight, to the row of each of its places. The rows of
// the first expert come first, each expert's in the order of the tokens. A block for each expert
// looks for its places among 256 at once.
// launch: $e$, 256
__global__ void $name$($type_out$ *__restrict__ out, const $type_a$ *__restrict__ a,
                       const int *__restrict__ expert, const $type_weight$ *__restrict__ weight,
                       const int *__restrict__ counts, long first_e)
{
  __shared__ unsigned found[8]; // a bit for each place of a warp
  const long tokens = $b$ * $s$, places = $k$, width = $d$;
  const long e = (long)blockIdx.x, t = (long)threadIdx.x;
  long row = 0;
  for (long i = 0; i < e; i++) row += counts[i];
  const long end = row + counts[e];
  for (long from = 0; from < tokens * places; from += 256) {
    const bool mine = from + t < tokens * places && expert[from + t] == e + first_e;
    const unsigned bits = __ballot_sync(0xffffffffu, mine);
    if (t % 32 == 0) found[t / 32] = bits;
    __syncthreads();
    for (int w = 0; w < 8; w++) {
      for (unsigned rest = found[w]; rest && row < end; rest &= rest - 1, row++) {
        const long i = from + 32 * w + __ffs((int)rest) - 1;
        const float by = $float_weight$(weight[i]);
        for (long j = t; j < width; j += 256)
          out[row * width + j] = $from_float_out$(by * $float_a$(a[i / places * width + j]));
      }
    }
    __syncthreads();
  }
}
