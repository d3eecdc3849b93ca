// Products of row-major float32 matrices whose rows are in groups of sizes known at run time, a
// matrix for each group: the experts of a mixture. The rows of the first group come first.
#ifndef CPU_GROUPS_H
#define CPU_GROUPS_H

#include "cpu_math.h"

#include <string.h>

// The row of each place: a place names a group, and has the next of its rows. -1: the group is none
// of these, which begin at `first`, or has no more rows. next, end: by group.
static inline void rows_of_places(long *row, long *next, long *end, const int *group, long places,
                                  const int *counts, long groups, long first)
{
  for (long g = 0, n = 0; g < groups; g++) {
    next[g] = n;
    end[g] = n += counts[g];
  }
  for (long i = 0; i < places; i++) {
    const long g = group[i] - first;
    row[i] = g < 0 || g >= groups || next[g] == end[g] ? -1 : next[g]++;
  }
}

// Threads go through the groups, each of which takes its own time. With few groups for each thread
// the threads share every product instead.
static inline bool is_shared(int groups, long products)
{
  return groups < 4 * threads_for(products);
}

static inline long first_row(const int *counts, int group)
{
  long n = 0;
  for (int i = 0; i < group; i++) n += counts[i];
  return n;
}

static inline int all_rows(const int *counts, int groups)
{
  return (int)first_row(counts, groups);
}

// c[rows, n] = a[rows, k] b[k, n] of the group; b_is 't': b is stored transposed, [n, k].
static inline void grouped_rows(char b_is, float *c, const float *a, const float *b,
                                const int *counts, int groups, int n, int k)
{
  const int ldb = b_is == 't' ? k : n;
  const long products = first_row(counts, groups) * n * k, size = (long)n * k;
  if (is_shared(groups, products)) {
    for (int g = 0; g < groups; c += (long)counts[g] * n, a += (long)counts[g] * k, g++)
      if (counts[g]) (gemm)('n', b_is, c, n, a, k, b + g * size, ldb, counts[g], n, k, false);
    return;
  }
#pragma omp parallel for schedule(dynamic) if (threads_for(products) > 1)
  for (int g = 0; g < groups; g++) {
    const long row = first_row(counts, g);
    if (counts[g])
      gemm_on_one_thread('n', b_is, c + row * n, n, a + row * k, k, b + g * size, ldb, counts[g], n,
                         k, false);
  }
}

static inline void grouped_nt(float *c, const float *a, const float *b, const int *counts,
                              int groups, int n, int k)
{
  grouped_rows('t', c, a, b, counts, groups, n, k);
}

static inline void grouped_nn(float *c, const float *a, const float *b, const int *counts,
                              int groups, int n, int k)
{
  grouped_rows('n', c, a, b, counts, groups, n, k);
}

// c[m, n] = the transpose of a[rows, m] times b[rows, n], of each group; zeros without rows.
static inline void grouped_tn(float *c, const float *a, const float *b, const int *counts,
                              int groups, int m, int n)
{
  const long products = first_row(counts, groups) * m * n, size = (long)m * n;
  const bool shared = is_shared(groups, products);
#pragma omp parallel for schedule(dynamic) if (!shared && threads_for(products) > 1)
  for (int g = 0; g < groups; g++) {
    const long row = first_row(counts, g);
    float *const to = c + g * size;
    if (!counts[g])
      memset(to, 0, (size_t)size * sizeof *to);
    else if (shared)
      (gemm)('t', 'n', to, n, a + row * m, m, b + row * n, n, m, n, counts[g], false);
    else
      gemm_on_one_thread('t', 'n', to, n, a + row * m, m, b + row * n, n, m, n, counts[g], false);
  }
}

#endif
