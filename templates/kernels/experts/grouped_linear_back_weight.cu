// Of each expert, the sum over its rows of the products of their elements: [out, in]. A block for
// each expert and each 16 of the result's columns.
// launch: $e$ * (($d$ + 15) / 16), 256
__global__ void $name$($type_out$ *__restrict__ out, const $type_a$ *__restrict__ a,
                       const $type_b$ *__restrict__ b, const int *__restrict__ counts)
{
  __shared__ float left[16][17], right[16][17];
  const long lines = $n$, columns = $d$, tiles = (columns + 15) / 16;
  const long e = (long)blockIdx.x / tiles, column = (long)blockIdx.x % tiles * 16;
  const int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
  long first = 0;
  for (long i = 0; i < e; i++) first += counts[i];
  const long end = first + counts[e];
  for (long line = 0; line < lines; line += 16) {
    float sum = 0;
    for (long row = first; row < end; row += 16) {
      const bool has_line = row + y < end && line + x < lines;
      left[y][x] = has_line ? $float_a$(a[(row + y) * lines + line + x]) : 0;
      const bool has_column = row + y < end && column + x < columns;
      right[y][x] = has_column ? $float_b$(b[(row + y) * columns + column + x]) : 0;
      __syncthreads();
      for (int k = 0; k < 16; k++) sum += left[k][y] * right[k][x];
      __syncthreads();
    }
    if (line + y < lines && column + x < columns)
      out[(e * lines + line + y) * columns + column + x] = $from_float_out$(sum);
  }
}
