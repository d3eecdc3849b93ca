// The singular value decomposition: left vectors in columns, values in descending order, right
// vectors in rows.
void $name$(float *restrict left, float *restrict values, float *restrict right,
            const $type_a$ *restrict a)
{
  enum { M = $a$, N = $b$, K = $k$, COLUMNS = $u$, ROWS = $v$ };
  enum { WORK = 5 * K * K + 8 * K + 96 * (M + N) }; // also for LAPACK's blocks of columns
  static _Thread_local float matrix[M * N], u[M * COLUMNS], v[ROWS * N], work[WORK];
  static _Thread_local int whole[8 * K];
  const long batch = $batch$;
  for (long i = 0; i < batch; i++, a += M * N, values += K) {
    for (int j = 0; j < M; j++)
      for (int k = 0; k < N; k++) matrix[k * M + j] = $float_a$(a[j * N + k]);
    singular_values_of(M, N, matrix, values, u, COLUMNS, v, ROWS, work, WORK, whole);
    for (int j = 0; j < M; j++)
      for (int k = 0; k < COLUMNS; k++) *left++ = u[k * M + j];
    for (int j = 0; j < ROWS; j++)
      for (int k = 0; k < N; k++) *right++ = v[k * ROWS + j];
  }
}
