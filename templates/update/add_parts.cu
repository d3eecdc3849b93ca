// Adds up the $parts$ parts of each of $n$ sums, in a fixed order.
__global__ __launch_bounds__(1024)
void $name$($type$ *__restrict__ sums, const float *__restrict__ parts)
{
  const int i = (int)blockIdx.x * 32 + (int)threadIdx.x % 32;
  float sum = 0;
  if (i < $n$) {
#pragma unroll 8
    for (int part = (int)threadIdx.x / 32; part < $parts$; part += 32) sum += parts[$at$];
  }
  sum = columns_sum(sum);
  if (threadIdx.x < 32 && i < $n$) sums[i] = $result$;
}
