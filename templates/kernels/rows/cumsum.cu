// Running sums along the middle dimension; reversed: from its last element. A block for each row
// goes over it, 256 elements at a time.
// launch: $before$ * $after$, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a)
{
  __shared__ float of_warp[8];
  const long size = $D$, after = $after$;
  const bool reverse = $reverse$;
  const long first = (long)blockIdx.x / after * size * after + (long)blockIdx.x % after;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  float carry = 0;
  for (long from = 0; from < size; from += 256) {
    const long j = from + (long)threadIdx.x;
    const long at = first + (reverse ? size - 1 - j : j) * after;
    float sum = j < size ? $float_a$(a[at]) : 0;
    for (int d = 1; d < 32; d *= 2) {
      const float left = __shfl_up_sync(0xffffffffu, sum, (unsigned)d);
      if (lane >= d) sum += left;
    }
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    float total = carry;
    for (int w = 0; w < 8; w++) {
      if (w == warp) sum += total;
      total += of_warp[w];
    }
    carry = total;
    if (j < size) out[at] = sum;
    __syncthreads();
  }
}
