// The index of the largest element along the middle dimension: the first of equal ones. NaN is
// larger than any number.
void $name$(int *restrict out, const $type_a$ *restrict a)
{
  enum { WIDE = 16 }; // searches that run side by side
  const long before = $before$, size = $D$, after = $after$;
  for (long i = 0; i < before; i++) {
    for (long k = 0; k < after; k += WIDE) {
      const long wide = after - k < WIDE ? after - k : WIDE;
      float most[WIDE];
      int at[WIDE];
      for (long n = 0; n < wide; n++) {
        most[n] = $float_a$(a[i * size * after + k + n]);
        at[n] = 0;
      }
      for (long j = 1; j < size; j++) {
        for (long n = 0; n < wide; n++) {
          const float x = $float_a$(a[(i * size + j) * after + k + n]);
          const int more = x > most[n] || (x != x && most[n] == most[n]);
          most[n] = more ? x : most[n];
          at[n] = more ? (int)j : at[n];
        }
      }
      for (long n = 0; n < wide; n++) out[i * after + k + n] = at[n];
    }
  }
}
