// The row of a place: those of earlier experts, and of earlier places of its own, come before it.
// -1: this rank does not have the expert, or no row for the place. All threads of a block of 256
// get it.
__device__ static inline long $name$_row(const int *expert, const int *counts, long place,
                                         long first_e)
{
  __shared__ long sum[256], own_sum[256];
  const long e = expert[place] - first_e, t = (long)threadIdx.x;
  const bool here = e >= 0 && e < $e$;
  long before = 0, own = 0;
  for (long i = t; here && i < e; i += 256) before += counts[i];
  for (long i = t; here && i < place; i += 256) own += expert[i] == expert[place];
  __syncthreads();
  sum[t] = before, own_sum[t] = own;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) sum[t] += sum[t + half], own_sum[t] += own_sum[t + half];
    __syncthreads();
  }
  return here && own_sum[0] < counts[e] ? sum[0] + own_sum[0] : -1;
}

// The product of each place's row with its token's elements; 0 for places of experts that this rank
// does not have. A block for each place.
// launch: $b$ * $s$ * $k$, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a,
                       const int *__restrict__ expert, const $type_rows$ *__restrict__ rows,
                       const int *__restrict__ counts, long first_e)
{
  __shared__ float sum[256];
  const long places = $k$, width = $d$, place = (long)blockIdx.x, t = (long)threadIdx.x;
  const long row = $name$_row(expert, counts, place, first_e);
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
