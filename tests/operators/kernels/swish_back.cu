// The slope of y = x s, s = 1 / (1 + exp(-x)), is s + y (1 - s).
static __device__ float $name$_slope(float x, float y)
{
  const float s = 1 / (1 + expf(-x));
  return s + y * (1 - s);
}
// launch: ($batch$ + 127) / 128, 128
__global__ void $name$(float *__restrict__ out, const float *__restrict__ dy,
                       const float *__restrict__ x, const float *__restrict__ y)
{
  const long i = blockIdx.x * 128L + threadIdx.x;
  if (i < $batch$) out[i] = dy[i] * $name$_slope(x[i], y[i]);
}
