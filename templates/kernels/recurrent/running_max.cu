// The greatest of all tokens of a sequence up to each of its new ones, or the smallest, and its
// place in the sequence. The cache has both, up to token i of a slot at i % $r$. A thread for each
// element of a sequence's tokens.
// launch: ($b$ * $d$ + 127) / 128, 128
__global__ void $name$(float *__restrict__ out, int *__restrict__ place,
                       const $type_x$ *__restrict__ x, $type_cache$ *__restrict__ cache,
                       const int *__restrict__ slot, const int *__restrict__ start)
{
  const long tokens = $t$, size = $d$, room = $r$;
  const bool least = $least$;
  const long i = (long)blockIdx.x * 128 + (long)threadIdx.x, b = i / size, c = i % size;
  if (b >= $b$) return;
  const long first = start[b];
  $type_cache$ *const kept = cache + ((slot[b] < 0 ? 0 : (long)slot[b]) * room * size + c) * 2;
  const bool begins = slot[b] < 0 || first == 0;
  const $type_cache$ *const before = kept + (begins ? 0 : (first - 1) % room * size * 2);
  float best = begins ? 0 : $float_cache$(before[0]);
  int at_place = begins ? 0 : (int)$float_cache$(before[1]);
  for (long t = 0; t < tokens; t++) {
    const long at = (b * tokens + t) * size + c;
    const float now = $float_x$(x[at]);
    if (first + t == 0 || (least ? now <= best : now >= best) || now != now) {
      best = now;
      at_place = (int)(first + t);
    }
    out[at] = slot[b] < 0 ? 0 : best;
    place[at] = slot[b] < 0 ? 0 : at_place;
    if (slot[b] < 0) continue;
    $type_cache$ *const to = kept + (first + t) % room * size * 2;
    to[0] = $from_float_cache$(best);
    to[1] = $from_float_cache$((float)at_place);
  }
}
