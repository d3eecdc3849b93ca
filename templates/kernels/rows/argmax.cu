// Whether x at index i beats y at index j: of equal elements the first. NaN is larger than any
// number.
__device__ static inline bool $name$_more(float x, int i, float y, int j)
{
  if (x != x || y != y) return x != x && (y == y || i < j);
  return x > y || (x == y && i < j);
}

// The index of the largest element along the middle dimension: a block for each row.
// launch: $before$ * $after$, 256
__global__ void $name$(int *__restrict__ out, const $type_a$ *__restrict__ a)
{
  __shared__ float key[256];
  __shared__ int place[256];
  const long size = $D$, after = $after$;
  const long first = (long)blockIdx.x / after * size * after + (long)blockIdx.x % after;
  const int t = (int)threadIdx.x;
  key[t] = $float_a$(a[first]);
  place[t] = 0;
  for (long j = t; j < size; j += 256) {
    const float x = $float_a$(a[first + j * after]);
    if (!$name$_more(x, (int)j, key[t], place[t])) continue;
    key[t] = x;
    place[t] = (int)j;
  }
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (t < half && $name$_more(key[t + half], place[t + half], key[t], place[t])) {
      key[t] = key[t + half];
      place[t] = place[t + half];
    }
  }
  if (t == 0) out[blockIdx.x] = place[0];
}
