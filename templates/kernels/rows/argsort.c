// Whether x comes before y; false if they are equal. NaN is larger than any number.
static inline int $name$_before(float x, float y)
{
  return $descending$ ? x > y || (x != x && y == y) : x < y || (x == x && y != y);
}

// For each row along the middle dimension, the indices of its elements in sorted order; equal ones
// keep their order. A merge sort.
void $name$(int *restrict out, const $type_a$ *restrict a)
{
  static _Thread_local float key[$D$];
  static _Thread_local int space[2][$D$];
  const long before = $before$, size = $D$, after = $after$;
  for (long row = 0; row < before * after; row++) {
    const long first = row / after * size * after + row % after;
    int *from = space[0], *to = space[1];
    for (long j = 0; j < size; j++) {
      key[j] = $float_a$(a[first + j * after]);
      from[j] = (int)j;
    }
    for (long run = 1; run < size; run *= 2) {
      for (long left = 0; left < size; left += 2 * run) {
        const long middle = left + run < size ? left + run : size;
        const long end = middle + run < size ? middle + run : size;
        long i = left, j = middle;
        for (long n = left; n < end; n++) {
          const int right = i == middle || (j < end && $name$_before(key[from[j]], key[from[i]]));
          to[n] = right ? from[j++] : from[i++];
        }
      }
      int *const merged = to;
      to = from;
      from = merged;
    }
    for (long j = 0; j < size; j++) out[first + j * after] = from[j];
  }
}
