// The sum of all tokens of a sequence up to each of its new ones. The cache has the last sums: that
// up to token i of a slot at i % $r$. A thread for each element of a sequence's tokens.
// launch: ($b$ * $d$ + 127) / 128, 128
__global__ void $name$(float *__restrict__ out, const $type_x$ *__restrict__ x,
                       $type_cache$ *__restrict__ cache, const int *__restrict__ slot,
                       const int *__restrict__ start)
{
  const long tokens = $t$, size = $d$, room = $r$;
  const long i = (long)blockIdx.x * 128 + (long)threadIdx.x, b = i / size, c = i % size;
  if (b >= $b$) return;
  $type_cache$ *const kept = cache + (slot[b] < 0 ? 0 : (long)slot[b]) * room * size + c;
  float sum = slot[b] >= 0 && start[b] > 0 ? $float_cache$(kept[(start[b] - 1) % room * size]) : 0;
  for (long t = 0; t < tokens; t++) {
    const long at = (b * tokens + t) * size + c;
    sum += $float_x$(x[at]);
    out[at] = slot[b] < 0 ? 0 : sum;
    if (slot[b] >= 0) kept[(start[b] + t) % room * size] = $from_float_cache$(sum);
  }
}
