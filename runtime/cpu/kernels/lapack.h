// SPDX-License-Identifier: MIT
// Eigenvalues and singular values of small matrices, for generated C, by LAPACK, which OpenBLAS
// has. LAPACK's matrices stand in columns. Routines, job and triangle are those that PyTorch calls
// on CPUs. Vectors may have another sign than there, as between any two builds of LAPACK.
#ifndef CPU_LAPACK_H
#define CPU_LAPACK_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

// Weak: a BLAS without LAPACK can be linked, too.
extern void ssyevd_(const char *job, const char *triangle, const int *n, float *a, const int *step,
                    float *values, float *work, const int *nwork, int *whole, const int *nwhole,
                    int *info, size_t length_of_job, size_t length_of_triangle)
    __attribute__((weak));
extern void sgesdd_(const char *job, const int *m, const int *n, float *a, const int *step_a,
                    float *values, float *left, const int *step_left, float *right,
                    const int *step_right, float *work, const int *nwork, int *whole, int *info,
                    size_t length_of_job) __attribute__((weak));

// Ends the job if there is no LAPACK, or OpenBLAS would find no memory.
void ask_for_lapack(bool is_linked);

static inline bool all_finite(const float *a, int n)
{
  for (int i = 0; i < n; i++)
    if (!(fabsf(a[i]) <= FLT_MAX)) return false;
  return true;
}

static inline void fill_with_nan(float *a, int n)
{
  for (int i = 0; i < n; i++) a[i] = NAN;
}

// Of a symmetric matrix, whose lower triangle is read: eigenvalues, ascending, and eigenvectors,
// which take the matrix's place. work has nwork elements, 1 + 6 n + 2 n^2, and whole nwhole,
// 3 + 5 n. All are NaN where the matrix is not finite, or LAPACK does not converge.
static inline void eigenvalues_of(int n, float *a, float *values, float *work, int nwork,
                                  int *whole, int nwhole)
{
  int info = 1;
  ask_for_lapack(ssyevd_ != NULL);
  if (all_finite(a, n * n))
    ssyevd_("V", "L", &n, a, &n, values, work, &nwork, whole, &nwhole, &info, 1, 1);
  if (info == 0) return;
  fill_with_nan(values, n);
  fill_with_nan(a, n * n);
}

// The singular values of an m x n matrix, which is overwritten, descending; `columns` left vectors
// and `rows` right ones: as many as there are values, or all. whole has 8 elements for each value.
// All are NaN where the matrix is not finite, or LAPACK does not converge.
static inline void singular_values_of(int m, int n, float *a, float *values, float *left,
                                      int columns, float *right, int rows, float *work, int nwork,
                                      int *whole)
{
  int info = 1;
  ask_for_lapack(sgesdd_ != NULL);
  if (all_finite(a, m * n))
    sgesdd_(columns == m && rows == n ? "A" : "S", &m, &n, a, &m, values, left, &m, right, &rows,
            work, &nwork, whole, &info, 1);
  if (info == 0) return;
  fill_with_nan(values, m < n ? m : n);
  fill_with_nan(left, m * columns);
  fill_with_nan(right, rows * n);
}

#endif
