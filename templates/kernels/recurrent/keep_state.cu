// Writes what a scan hands on behind the last token to the cache of each sequence's slot. The
// result is nothing but the slots; what the scan began with is read before. A thread for each
// element.
// launch: ($b$ * $batch$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, $type_cache$ *__restrict__ cache,
                       const $type_state$ *__restrict__ state,
                       const $type_before$ *__restrict__ before, const int *__restrict__ slot)
{
  (void)before;
  const long size = $batch$, at = (long)blockIdx.x * 256 + (long)threadIdx.x;
  const long b = at / size, i = at % size;
  if (b >= $b$) return;
  if (i == 0) out[b] = (float)slot[b];
  if (slot[b] >= 0) cache[(long)slot[b] * size + i] = $from_float_cache$($float_state$(state[at]));
}
