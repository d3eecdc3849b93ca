// Adds each element at its index along the middle dimension: a thread for each element of the
// output searches for those that go there. Indices outside of this rank's part are skipped.
// launch: ($before$ * $D$ * $after$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a,
                       const int *__restrict__ index, long first_D)
{
  const long before = $before$, size = $D$, count = $I$, after = $after$;
  const long n = (long)blockIdx.x * 256 + (long)threadIdx.x;
  if (n >= before * size * after) return;
  const long i = n / (size * after), place = n / after % size + first_D, k = n % after;
  float sum = 0;
  for (long j = 0; j < count; j++) {
    const long from = (i * count + j) * after + k;
    if (index[from] == place) sum += $float_a$(a[from]);
  }
  out[n] = sum;
}
