// Eigenvalues, ascending, and in columns eigenvectors of symmetric matrices. Only the lower
// triangle is read.
void $name$(float *restrict values, float *restrict vectors, const $type_a$ *restrict a)
{
  enum { N = $a$, WORK = 1 + 6 * N + 2 * N * N, WHOLE = 3 + 5 * N };
  static _Thread_local float matrix[N * N], work[WORK];
  static _Thread_local int whole[WHOLE];
  const long batch = $batch$;
  for (long i = 0; i < batch; i++, a += N * N, values += N, vectors += N * N) {
    for (int j = 0; j < N; j++)
      for (int k = 0; k < N; k++) matrix[k * N + j] = k <= j ? $float_a$(a[j * N + k]) : 0;
    eigenvalues_of(N, matrix, values, work, WORK, whole, WHOLE);
    for (int j = 0; j < N; j++)
      for (int k = 0; k < N; k++) vectors[j * N + k] = matrix[k * N + j];
  }
}
