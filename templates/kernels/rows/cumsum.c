// Running sums along the middle dimension; reversed: from its last element.
void $name$(float *restrict out, const $type_a$ *restrict a)
{
  enum { WIDE = 16 }; // sums that run side by side
  const long before = $before$, size = $D$, after = $after$;
  const int reverse = $reverse$;
  for (long i = 0; i < before; i++) {
    for (long k = 0; k < after; k += WIDE) {
      const long wide = after - k < WIDE ? after - k : WIDE;
      double sum[WIDE] = {0};
      for (long j = 0; j < size; j++) {
        const long at = (i * size + (reverse ? size - 1 - j : j)) * after + k;
        for (long n = 0; n < wide; n++) {
          sum[n] += (double)$float_a$(a[at + n]);
          out[at + n] = (float)sum[n];
        }
      }
    }
  }
}
