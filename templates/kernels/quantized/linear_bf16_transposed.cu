// A thread for each column of the result, one row after the other.
// launch: ($n$ + 127) / 128, 128
__global__ void $name$(float *__restrict__ out, const float *__restrict__ x,
                       const $type_w$ *__restrict__ w)
{
  const long n = $n$, k = $k$, rows = (long)$a$ * $b$, j = (long)blockIdx.x * 128 + threadIdx.x;
  for (long i = 0; i < rows && j < n; i++) {
    float sum = 0;
    for (long c = 0; c < k; c++) sum += x[i * k + c] * $float_w$(w[c * n + j]);
    out[i * n + j] = sum;
  }
}
