// x times the logistic function of s x.
// launch: ($batch$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, const float *__restrict__ x)
{
  long i = (long)blockIdx.x * 256 + threadIdx.x;
  if (i < $batch$) out[i] = x[i] / (1 + expf(-$s$ * x[i]));
}
