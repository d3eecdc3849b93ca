// Writes what a scan hands on behind the last token to the cache of each sequence's slot. The
// result is nothing but the slots; what the scan began with is read before.
void $name$(float *restrict out, $type_cache$ *restrict cache, const $type_state$ *restrict state,
            const $type_before$ *restrict before, const int *restrict slot)
{
  (void)before;
  const long size = $batch$;
  for (long b = 0; b < $b$; b++) {
    $type_cache$ *const kept = cache + (slot[b] < 0 ? 0 : (long)slot[b]) * size;
#pragma omp parallel for schedule(static)
    for (long i = 0; i < (slot[b] < 0 ? 0 : size); i++)
      kept[i] = $from_float_cache$($float_state$(state[b * size + i]));
    out[b] = (float)slot[b];
  }
}
