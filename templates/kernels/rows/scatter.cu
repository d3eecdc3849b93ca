// A copy of a, with elements of b at their indices along the middle dimension; of several for one
// place, the last one: a thread for each element of the output searches for it, from the last on.
// Indices outside of this rank's part are skipped.
// launch: ($before$ * $D$ * $after$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a,
                       const int *__restrict__ index, const $type_b$ *__restrict__ b, long first_D)
{
  const long before = $before$, size = $D$, count = $I$, after = $after$;
  const long n = (long)blockIdx.x * 256 + (long)threadIdx.x;
  if (n >= before * size * after) return;
  const long i = n / (size * after), place = n / after % size + first_D, k = n % after;
  for (long j = count - 1; j >= 0; j--) {
    const long from = (i * count + j) * after + k;
    if (index[from] != place) continue;
    out[n] = $float_b$(b[from]);
    return;
  }
  out[n] = $float_a$(a[n]);
}
