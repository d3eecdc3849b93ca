// Whether x comes before y; false if they are equal. NaN is larger than any number.
__device__ static inline bool $name$_before(float x, float y)
{
  return $descending$ ? x > y || (x != x && y == y) : x < y || (x == x && y != y);
}

// For each row along the middle dimension, the indices of its elements in sorted order; equal ones
// keep their order. A block for each row: a bitonic network whose comparators all put the smaller
// element at the lower place, so the size need not be a power of two.
// launch: $before$ * $after$, 256
__global__ void $name$(int *__restrict__ out, const $type_a$ *__restrict__ a)
{
  const long size = $D$, after = $after$;
  const long first = (long)blockIdx.x / after * size * after + (long)blockIdx.x % after;
  for (long j = (long)threadIdx.x; j < size; j += 256) out[first + j * after] = (int)j;
  __syncthreads();
  for (long run = 2; run < 2 * size; run *= 2) {
    for (long apart = run / 2; apart > 0; apart /= 2) {
      for (long n = (long)threadIdx.x; n < size / 2 + apart; n += 256) {
        const long low = n / apart * 2 * apart + n % apart;
        const long high = 2 * apart == run ? low + run - 1 - 2 * (n % apart) : low + apart;
        if (high >= size) continue;
        const int x = out[first + low * after], y = out[first + high * after];
        const float key_x = $float_a$(a[first + x * after]);
        const float key_y = $float_a$(a[first + y * after]);
        const bool swap = $name$_before(key_y, key_x) || (!$name$_before(key_x, key_y) && y < x);
        if (!swap) continue;
        out[first + low * after] = y;
        out[first + high * after] = x;
      }
      __syncthreads();
    }
  }
}
