// A maximum or minimum over no elements.
// launch: ($n$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ out)
{
  const long n = (long)blockIdx.x * 256 + (long)threadIdx.x;
  if (n < $n$) out[n] = $value$;
}
