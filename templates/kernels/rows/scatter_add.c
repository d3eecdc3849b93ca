// Adds each element at its index along the middle dimension. Indices outside of this rank's part
// are skipped.
void $name$(float *restrict out, const $type_a$ *restrict a, const int *restrict index,
            long first_D)
{
  const long before = $before$, size = $D$, count = $I$, after = $after$;
  for (long i = 0; i < before * size * after; i++) out[i] = 0;
  for (long i = 0; i < before; i++) {
    for (long j = 0; j < count; j++) {
      for (long k = 0; k < after; k++) {
        const long from = (i * count + j) * after + k, to = index[from] - first_D;
        if (to >= 0 && to < size) out[(i * size + to) * after + k] += $float_a$(a[from]);
      }
    }
  }
}
