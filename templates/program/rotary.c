// Rotates the pairs (first, second) of each row of x by an angle; the tables have its cosine and its
// sine. The first numbers are in the first half of a row, the second ones in the other.
//   size          of the three dimensions before a row; and of half a row
//   to, from, at  strides of out, x and the tables along these dimensions
void $name$(float *restrict out, const float *restrict x, const float *restrict cosine,
    const float *restrict sine, const long *size, const long *to, const long *from, const long *at)
{
  const long half = size[3], all = size[0] * size[1] * size[2] * 2 * half;
#pragma omp parallel for schedule(static) collapse(2) if (all >= $enough$)
  for (long i = 0; i < size[0]; i++)
    for (long j = 0; j < size[1]; j++)
      for (long k = 0; k < size[2]; k++) {
        const float *const row = x + i * from[0] + j * from[1] + k * from[2];
        const float *const c = cosine + i * at[0] + j * at[1] + k * at[2];
        const float *const s = sine + i * at[0] + j * at[1] + k * at[2];
        float *const rotated = out + i * to[0] + j * to[1] + k * to[2];
#pragma omp simd
        for (long d = 0; d < half; d++) {
          const float first = row[d], second = row[half + d];
          rotated[d] = first * c[d] - second * s[d];
          rotated[half + d] = second * c[d] + first * s[d];
        }
      }
}
