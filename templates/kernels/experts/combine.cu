// The sum over each token's places of their rows, times their weights. A block for each token.
// launch: $b$ * $s$, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a,
                       const int *__restrict__ expert, const $type_weight$ *__restrict__ weight,
                       const int *__restrict__ counts, long first_e)
{
  const long places = $k$, width = $d$, token = (long)blockIdx.x, t = (long)threadIdx.x;
  for (long j = t; j < width; j += 256) out[token * width + j] = 0;
  for (long i = token * places; i < (token + 1) * places; i++) {
    const long row = row_of_place(expert, counts, $e$, i, first_e);
    const float by = $float_weight$(weight[i]);
    for (long j = t; row >= 0 && j < width; j += 256)
      out[token * width + j] += by * $float_a$(a[row * width + j]);
  }
}
