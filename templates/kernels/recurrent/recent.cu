// The last tokens of each sequence and its new ones, which the cache gets: it has token i of a slot
// at i % $r$. Before the text are zeros. A block for each token; those that are read and those that
// are written have places of their own.
// launch: $b$ * $w$, 128
__global__ void $name$($type_out$ *__restrict__ out, const $type_x$ *__restrict__ x,
                       $type_cache$ *__restrict__ cache, const int *__restrict__ slot,
                       const int *__restrict__ start)
{
  const long tokens = $t$, wide = $w$, back = wide - tokens, size = $d$, room = $r$;
  const long b = (long)blockIdx.x / wide, i = (long)blockIdx.x % wide, token = start[b] + i - back;
  const bool none = slot[b] < 0 || token < 0;
  $type_cache$ *const kept =
      cache + ((none ? 0 : slot[b]) * room + (none ? 0 : token % room)) * size;
  for (long c = (long)threadIdx.x; c < size; c += 128) {
    $type_out$ at = 0;
    if (!none && i < back) at = $float_cache$(kept[c]);
    if (!none && i >= back) {
      at = $float_x$(x[(b * tokens + i - back) * size + c]);
      kept[c] = $from_float_cache$(at);
    }
    out[(b * wide + i) * size + c] = at;
  }
}
