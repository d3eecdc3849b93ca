// The greatest of all tokens of a sequence up to each of its new ones, or the smallest, and its
// place in the sequence. The cache has both, up to token i of a slot at i % $r$.
void $name$(float *restrict out, int *restrict place, const $type_x$ *restrict x,
            $type_cache$ *restrict cache, const int *restrict slot, const int *restrict start)
{
  const long tokens = $t$, size = $d$, room = $r$;
  const int least = $least$;
#pragma omp parallel for schedule(static)
  for (long b = 0; b < $b$; b++) {
    const long first = start[b];
    $type_cache$ *const kept = cache + (slot[b] < 0 ? 0 : (long)slot[b]) * room * size * 2;
    for (long c = 0; c < size; c++) {
      const $type_cache$ *const before = kept + ((first > 0 ? first - 1 : 0) % room * size + c) * 2;
      const int begins = slot[b] < 0 || first == 0;
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
        $type_cache$ *const to = kept + ((first + t) % room * size + c) * 2;
        to[0] = $from_float_cache$(best);
        to[1] = $from_float_cache$((float)at_place);
      }
    }
  }
}
