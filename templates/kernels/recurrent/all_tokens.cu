// All tokens of each sequence: those of the cache, then the new ones, which the cache gets; zeros
// for those that come later. The rank may have a part of the tokens only. A block for each token.
// launch: $b$ * $c$, 128
__global__ void $name$($type_out$ *__restrict__ out, const $type_x$ *__restrict__ x,
                       $type_cache$ *__restrict__ cache, const int *__restrict__ slot,
                       const int *__restrict__ start, long first_c)
{
  const long tokens = $t$, context = $c$, size = $d$;
  const long b = (long)blockIdx.x / context, i = (long)blockIdx.x % context;
  const long fresh = first_c + i - start[b];
  const bool none = slot[b] < 0;
  $type_cache$ *const kept = cache + ((none ? 0 : (long)slot[b]) * context + i) * size;
  for (long c = (long)threadIdx.x; c < size; c += 128) {
    $type_out$ at = 0;
    if (!none && fresh < 0) at = $float_cache$(kept[c]);
    if (!none && fresh >= 0 && fresh < tokens) {
      kept[c] = $from_float_cache$($float_x$(x[(b * tokens + fresh) * size + c]));
      at = $float_cache$(kept[c]);
    }
    out[(b * context + i) * size + c] = at;
  }
}
