// Each expert's rows times its matrix of [out, in], transposed. A block for each expert and each
// 16 of the result's columns goes through the expert's rows, 16 at a time.
// launch: $e$ * (($d$ + 15) / 16), 256
__global__ void $name$($type_out$ *__restrict__ out, const $type_a$ *__restrict__ a,
                       const $type_weight$ *__restrict__ weight, const int *__restrict__ counts)
{
  __shared__ float left[16][17], right[16][17];
  const long columns = $d$, terms = $n$, tiles = (columns + 15) / 16;
  const long e = (long)blockIdx.x / tiles, column = (long)blockIdx.x % tiles * 16;
  const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
  const $type_weight$ *const of = weight + e * columns * terms;
  long first = 0;
  for (long i = 0; i < e; i++) first += counts[i];
  for (long row = first; row < first + counts[e]; row += 16) {
    float sum = 0;
    for (long term = 0; term < terms; term += 16) {
      const bool has_row = row + y < first + counts[e] && term + x < terms;
      left[y][x] = has_row ? $float_a$(a[(row + y) * terms + term + x]) : 0;
      const bool has_column = term + y < terms && column + x < columns;
      right[y][x] = has_column ? $float_weight$(of[(term + y) * columns + column + x]) : 0;
      __syncthreads();
      for (int k = 0; k < 16; k++) sum += left[y][k] * right[k][x];
      __syncthreads();
    }
    if (row + y < first + counts[e] && column + x < columns)
      out[(row + y) * columns + column + x] = $from_float_out$(sum);
  }
}
