// Each row's elements, mixed by a matrix.
// launch: $r$, 32
__global__ void $name$(float *__restrict__ out, const float *__restrict__ x,
                       const float *__restrict__ w)
{
  for (int j = threadIdx.x; j < $n$; j += 32) {
    float sum = 0;
    for (int l = 0; l < $m$; l++) sum += x[(long)blockIdx.x * $m$ + l] * w[(long)l * $n$ + j];
    out[(long)blockIdx.x * $n$ + j] = sum;
  }
}
