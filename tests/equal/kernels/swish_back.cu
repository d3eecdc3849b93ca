// The gradient of swish, from that of its output d, and x; y is the output.
// launch: ($batch$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, const float *__restrict__ d,
                       const float *__restrict__ x, const float *__restrict__ y)
{
  long i = (long)blockIdx.x * 256 + threadIdx.x;
  if (i >= $batch$) return;
  float part = 1 / (1 + expf(-$s$ * x[i]));
  out[i] = d[i] * (part + $s$ * y[i] * (1 - part));
}
