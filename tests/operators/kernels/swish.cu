// x / (1 + exp(-s x))
// launch: ($batch$ + 127) / 128, 128
__global__ void $name$(float *__restrict__ out, const float *__restrict__ x)
{
  const long i = blockIdx.x * 128L + threadIdx.x;
  if (i < $batch$) out[i] = x[i] / (1 + expf(-$s$ * x[i]));
}
