// A copy of a, with elements of b at their indices along the middle dimension; of several for one
// place, the last one. Indices outside of this rank's part are skipped.
void $name$(float *restrict out, const $type_a$ *restrict a, const int *restrict index,
            const $type_b$ *restrict b, long first_D)
{
  const long before = $before$, size = $D$, count = $I$, after = $after$;
  for (long i = 0; i < before * size * after; i++) out[i] = $float_a$(a[i]);
  for (long i = 0; i < before; i++) {
    for (long j = 0; j < count; j++) {
      for (long k = 0; k < after; k++) {
        const long from = (i * count + j) * after + k, to = index[from] - first_D;
        if (to >= 0 && to < size) out[(i * size + to) * after + k] = $float_b$(b[from]);
      }
    }
  }
}
