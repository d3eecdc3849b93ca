// A warp for each column of the result and each row: lanes share the terms of the sum.
// launch: ($n$ + 3) / 4, 128
__global__ void $name$(float *__restrict__ out, const float *__restrict__ x,
                       const $type_w$ *__restrict__ w)
{
  const long n = $n$, k = $k$, rows = (long)$a$ * $b$, j = (long)blockIdx.x * 4 + threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  for (long i = 0; i < rows && j < n; i++) {
    float sum = 0;
    for (long c = lane; c < k; c += 32) sum += x[i * k + c] * $float_w$(w[j * k + c]);
    sum = over_warp<float, plus<float>>(sum);
    if (lane == 0) out[i * n + j] = sum;
  }
}
