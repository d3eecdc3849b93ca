// The greatest element so far along the middle dimension, or the smallest one, and its index: of
// equal ones the last. From one that is not a number on it is that.
void $name$(float *restrict out, int *restrict index, const $type_a$ *restrict a)
{
  enum { WIDE = 16 }; // rows that run side by side
  const long before = $before$, size = $D$, after = $after$;
  const int least = $least$;
  for (long i = 0; i < before; i++) {
    for (long k = 0; k < after; k += WIDE) {
      const long wide = after - k < WIDE ? after - k : WIDE;
      float best[WIDE];
      int place[WIDE] = {0};
      for (long j = 0; j < size; j++) {
        const long at = (i * size + j) * after + k;
        for (long n = 0; n < wide; n++) {
          const float x = $float_a$(a[at + n]);
          if (j == 0 || (least ? x <= best[n] : x >= best[n]) || x != x) {
            best[n] = x;
            place[n] = (int)j;
          }
          out[at + n] = best[n];
          index[at + n] = place[n];
        }
      }
    }
  }
}
