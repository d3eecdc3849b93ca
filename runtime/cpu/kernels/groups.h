// SPDX-License-Identifier: MIT
// Products of row-major float32 matrices whose rows are in groups of sizes known at run time, a
// matrix for each group: the experts of a mixture. The rows of the first group come first.
#ifndef CPU_GROUPS_H
#define CPU_GROUPS_H

#include "cpu/kernels/math.h"

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

// Threads go through the groups, and through parts of those that have many rows: of the rows of the
// result, or, of a sum over a group's rows, of its lines. With few of these for each thread the
// threads share every product instead. A part is as large as a whole product is fast, and small
// beside what a thread does in all, so threads end at about the same time.
struct group_parts {
  const int *counts;
  int each, n; // so many rows make a part; the parts of all groups
};

static inline int parts_of_group(const struct group_parts *p, int group)
{
  const int parts = (p->counts[group] + p->each / 2) / p->each;
  return parts > 1 ? parts : 1;
}

static inline struct group_parts parts_of_groups(const int *counts, int groups, long products)
{
  enum { LEAST = 256, FOR_EACH_THREAD = 4 };
  const int threads = threads_for(products), all = all_rows(counts, groups);
  struct group_parts p = {counts, threads == 1 ? all : all / (FOR_EACH_THREAD * threads), 0};
  if (p.each < LEAST) p.each = LEAST;
  for (int g = 0; g < groups; g++) p.n += parts_of_group(&p, g);
  if (p.n < 2 * threads) p.n = 0; // they share every product
  return p;
}

// A group's part, which is the i-th of all: `of` in all, `part` is its number.
struct group_part {
  int group, part, of;
  long row; // the group's first
};

static inline struct group_part nth_part(const struct group_parts *p, int i)
{
  struct group_part at = {0, 0, parts_of_group(p, 0), 0};
  while (i >= at.of) {
    i -= at.of;
    at.row += p->counts[at.group++];
    at.of = parts_of_group(p, at.group);
  }
  at.part = i;
  return at;
}

// All of a group, for all threads.
static inline struct group_part whole_group(const struct group_parts *p, int group)
{
  return (struct group_part){group, 0, 1, first_row(p->counts, group)};
}

// One part's product: by all threads, or by this one. The rows of b are ldb apart; those of the
// others have no gaps, but for a transposed a.
static inline void product_of_part(char a_is, char b_is, float *c, const float *a, int lda,
                                   const float *b, int ldb, int m, int n, int k, bool by_all)
{
  if (m <= 0) return;
  if (!k)
    memset(c, 0, (size_t)m * (size_t)n * sizeof *c);
  else if (by_all)
    (gemm)(a_is, b_is, c, n, a, lda, b, ldb, m, n, k, false);
  else
    gemm_on_one_thread(a_is, b_is, c, n, a, lda, b, ldb, m, n, k, false);
}

// c[rows, n] = a[rows, k] b[k, n] of the group; b_is 't': b is stored transposed, [n, k].
static inline void grouped_rows(char b_is, float *c, const float *a, const float *b,
                                const int *counts, int groups, int n, int k)
{
  const long products = first_row(counts, groups) * n * k, size = (long)n * k;
  const struct group_parts parts = parts_of_groups(counts, groups, products);
  const bool shared = !parts.n;
  ask_for_blas_memory();
#pragma omp parallel for schedule(dynamic) if (!shared && threads_for(products) > 1)
  for (int i = 0; i < (shared ? groups : parts.n); i++) {
    const struct group_part p = shared ? whole_group(&parts, i) : nth_part(&parts, i);
    const int begin = part_begin(counts[p.group], p.of, p.part);
    const int rows = part_begin(counts[p.group], p.of, p.part + 1) - begin;
    const long row = p.row + begin;
    product_of_part('n', b_is, c + row * n, a + row * k, k, b + p.group * size, b_is == 't' ? k : n,
                    rows, n, k, shared);
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
  const struct group_parts parts = parts_of_groups(counts, groups, products);
  const bool shared = !parts.n;
  ask_for_blas_memory();
#pragma omp parallel for schedule(dynamic) if (!shared && threads_for(products) > 1)
  for (int i = 0; i < (shared ? groups : parts.n); i++) {
    const struct group_part p = shared ? whole_group(&parts, i) : nth_part(&parts, i);
    const int line = part_begin(m, p.of, p.part);
    product_of_part('t', 'n', c + p.group * size + (long)line * n, a + p.row * m + line, m,
                    b + p.row * n, n, part_begin(m, p.of, p.part + 1) - line, n, counts[p.group],
                    shared);
  }
}

#endif
