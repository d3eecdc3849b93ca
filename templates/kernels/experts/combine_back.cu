// The product of each place's row with its token's elements; 0 for places of experts that this rank
// does not have. A block for each place.
// launch: $b$ * $s$ * $k$, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a,
                       const int *__restrict__ expert, const $type_rows$ *__restrict__ rows,
                       const int *__restrict__ counts, long first_e)
{
  __shared__ float sum[256];
  const long places = $k$, width = $d$, place = (long)blockIdx.x, t = (long)threadIdx.x;
  const long row = row_of_place(expert, counts, $e$, place, first_e);
  float part = 0;
  for (long j = t; row >= 0 && j < width; j += 256)
    part += $float_a$(a[place / places * width + j]) * $float_rows$(rows[row * width + j]);
  sum[t] = part;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) sum[t] += sum[t + half];
    __syncthreads();
  }
  if (t == 0) out[place] = sum[0];
}
