// All tokens of each sequence: those of the cache, then the new ones, which the cache gets; zeros
// for those that come later. The rank may have a part of the tokens only.
void $name$($type_out$ *restrict out, const $type_x$ *restrict x, $type_cache$ *restrict cache,
            const int *restrict slot, const int *restrict start, long first_c)
{
  const long tokens = $t$, context = $c$, size = $d$;
#pragma omp parallel for schedule(static) collapse(2)
  for (long b = 0; b < $b$; b++)
    for (long i = 0; i < context; i++) {
      const long fresh = first_c + i - start[b];
      $type_cache$ *const kept = cache + ((slot[b] < 0 ? 0 : (long)slot[b]) * context + i) * size;
      for (long c = 0; c < size; c++) {
        $type_out$ at = 0;
        if (slot[b] >= 0 && fresh < 0) at = $float_cache$(kept[c]);
        if (slot[b] >= 0 && fresh >= 0 && fresh < tokens) {
          kept[c] = $from_float_cache$($float_x$(x[(b * tokens + fresh) * size + c]));
          at = $float_cache$(kept[c]);
        }
        out[(b * context + i) * size + c] = at;
      }
    }
}
