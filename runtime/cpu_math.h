// What generated C calls on a rank's own memory: matrix products, and moves of rows.
// Matrices are row-major float32 without gaps.
#ifndef CPU_MATH_H
#define CPU_MATH_H

#include <cblas.h>
#include <string.h>

// c[m, n] = a[m, k] b[k, n]; with a t, the operand is stored transposed.
static inline void matmul_nn(float *c, const float *a, const float *b, int m, int n, int k)
{
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, k, b, n, 0, c, n);
}

static inline void matmul_nt(float *c, const float *a, const float *b, int m, int n, int k)
{
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, a, k, b, k, 0, c, n);
}

static inline void matmul_tn(float *c, const float *a, const float *b, int m, int n, int k)
{
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, 1, a, m, b, n, 0, c, n);
}

static inline void matmul_tt(float *c, const float *a, const float *b, int m, int n, int k)
{
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasTrans, m, n, k, 1, a, m, b, k, 0, c, n);
}

// Takes `bytes` bytes of each of the rows of `from`, from `begin` on; a row of `from` has `of`
// bytes.
static inline void slice_rows(void *to, const void *from, long rows, long bytes, long of,
                              long begin)
{
  for (long r = 0; r < rows; r++)
    memcpy((char *)to + r * bytes, (const char *)from + r * of + begin, (size_t)bytes);
}

// From rows that hold part[0] bytes of the first part, part[1] of the second ... to the parts one
// after the other, each with its rows; unpack_parts is the way back.
static inline void pack_parts(void *to, const void *from, long rows, int parts, const long *part)
{
  long of = 0, begin = 0;
  for (int p = 0; p < parts; p++) of += part[p];
  for (int p = 0; p < parts; p++) {
    slice_rows((char *)to + rows * begin, from, rows, part[p], of, begin);
    begin += part[p];
  }
}

static inline void unpack_parts(void *to, const void *from, long rows, int parts, const long *part)
{
  long of = 0, begin = 0;
  for (int p = 0; p < parts; p++) of += part[p];
  for (int p = 0; p < parts; p++) {
    for (long r = 0; r < rows; r++)
      memcpy((char *)to + r * of + begin, (const char *)from + rows * begin + r * part[p],
             (size_t)part[p]);
    begin += part[p];
  }
}

#endif
