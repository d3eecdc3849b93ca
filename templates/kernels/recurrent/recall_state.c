// What a scan begins with in a call: what the slot's last call handed on, or, where a text begins,
// what the scan itself begins with.
void $name$(float *restrict out, $type_cache$ *restrict cache,
            const $type_initial$ *restrict initial, const int *restrict slot,
            const int *restrict start)
{
  const long size = $batch$;
#pragma omp parallel for schedule(static) collapse(2)
  for (long b = 0; b < $b$; b++)
    for (long i = 0; i < size; i++)
      out[b * size + i] = slot[b] < 0 || start[b] == 0
                              ? $float_initial$(initial[i])
                              : $float_cache$(cache[(long)slot[b] * size + i]);
}
