// The sum of all tokens of a sequence up to each of its new ones. The cache has the last sums: that
// up to token i of a slot at i % $r$.
void $name$(float *restrict out, const $type_x$ *restrict x, $type_cache$ *restrict cache,
            const int *restrict slot, const int *restrict start)
{
  const long tokens = $t$, size = $d$, room = $r$;
#pragma omp parallel for schedule(static)
  for (long b = 0; b < $b$; b++) {
    $type_cache$ *const kept = cache + (slot[b] < 0 ? 0 : (long)slot[b]) * room * size;
    for (long c = 0; c < size; c++) {
      double sum = slot[b] >= 0 && start[b] > 0
                       ? (double)$float_cache$(kept[(start[b] - 1) % room * size + c])
                       : 0;
      for (long t = 0; t < tokens; t++) {
        const long at = (b * tokens + t) * size + c;
        sum += (double)$float_x$(x[at]);
        out[at] = slot[b] < 0 ? 0 : (float)sum;
        if (slot[b] >= 0) kept[(start[b] + t) % room * size + c] = $from_float_cache$((float)sum);
      }
    }
  }
}
