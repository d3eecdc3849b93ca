// The last tokens of each sequence and its new ones, which the cache gets: it has token i of a slot
// at i % $r$. Before the text are zeros.
void $name$($type_out$ *restrict out, const $type_x$ *restrict x, $type_cache$ *restrict cache,
            const int *restrict slot, const int *restrict start)
{
  const long tokens = $t$, wide = $w$, back = wide - tokens, size = $d$, room = $r$;
#pragma omp parallel for schedule(static)
  for (long b = 0; b < $b$; b++) {
    $type_cache$ *const kept = cache + (slot[b] < 0 ? 0 : (long)slot[b]) * room * size;
    for (long i = 0; i < wide; i++) {
      const long token = start[b] + i - back;
      for (long c = 0; c < size; c++)
        out[(b * wide + i) * size + c] = slot[b] < 0 || token < 0 ? 0
                                         : i < back
                                             ? $float_cache$(kept[token % room * size + c])
                                             : $float_x$(x[(b * tokens + i - back) * size + c]);
    }
    for (long t = 0; t < tokens && slot[b] >= 0; t++)
      for (long c = 0; c < size; c++)
        kept[(start[b] + t) % room * size + c] =
            $from_float_cache$($float_x$(x[(b * tokens + t) * size + c]));
  }
}
