// SPDX-License-Identifier: MIT
// cpu/kernels/groups.h for bfloat16, with float32 sums.
#ifndef CPU_GROUPS_BF16_H
#define CPU_GROUPS_BF16_H

#include "cpu/kernels/groups.h" // and through it cpu/kernels/bf16.h

// With few groups the threads share every product: so does oneDNN, which is quicker than parts
// where the processor has bfloat16 instructions, but computes one product at a time.
static inline struct group_parts bf16_parts_of_groups(const int *counts, int groups, long products)
{
  struct group_parts p = parts_of_groups(counts, groups, products);
  if (groups < 4 * threads_for(products)) p.n = 0;
  return p;
}

// One part's product: by all threads, or by this one; zeros without terms.
static inline void bf16_product_of_part(const struct bf16_product *p, bool by_all)
{
  if (p->m <= 0) return;
  const size_t size = (size_t)p->m * (size_t)p->n;
  if (!p->k && p->c)
    memset(p->c, 0, size * sizeof *p->c);
  else if (!p->k)
    memset(p->wide, 0, size * sizeof *p->wide);
  else if (by_all)
    multiply_bf16(p);
  else
    bf16_part(p, 0, 0, 0, p->m, p->n);
}

// c[rows, n] = a[rows, k] b[k, n] of the group; b_is 't': b is stored transposed, [n, k].
static inline void grouped_rows_bf16(char b_is, bf16 *c, const bf16 *a, const bf16 *b,
                                     const int *counts, int groups, int n, int k)
{
  const long products = first_row(counts, groups) * n * k, size = (long)n * k;
  const struct group_parts parts = bf16_parts_of_groups(counts, groups, products);
  const bool shared = !parts.n;
#pragma omp parallel for schedule(dynamic) if (!shared && threads_for(products) > 1)
  for (int i = 0; i < (shared ? groups : parts.n); i++) {
    const struct group_part part = shared ? whole_group(&parts, i) : nth_part(&parts, i);
    const int begin = part_begin(counts[part.group], part.of, part.part);
    const long row = part.row + begin;
    const struct bf16_product p = {.a_is = 'n',
                                   .b_is = b_is,
                                   .a = a + row * k,
                                   .b = b + part.group * size,
                                   .c = c + row * n,
                                   .lda = k,
                                   .ldb = b_is == 't' ? k : n,
                                   .ldc = n,
                                   .m = part_begin(counts[part.group], part.of, part.part + 1) -
                                        begin,
                                   .n = n,
                                   .k = k,
                                   .batch = 1};
    bf16_product_of_part(&p, shared);
  }
}

static inline void grouped_nt_bf16(bf16 *c, const bf16 *a, const bf16 *b, const int *counts,
                                   int groups, int n, int k)
{
  grouped_rows_bf16('t', c, a, b, counts, groups, n, k);
}

static inline void grouped_nn_bf16(bf16 *c, const bf16 *a, const bf16 *b, const int *counts,
                                   int groups, int n, int k)
{
  grouped_rows_bf16('n', c, a, b, counts, groups, n, k);
}

// c[m, n], or wide where c is NULL, = the transpose of a[rows, m] times b[rows, n], of each group;
// zeros without rows.
static inline void grouped_sums_bf16(bf16 *c, float *wide, const bf16 *a, const bf16 *b,
                                     const int *counts, int groups, int m, int n)
{
  const long products = first_row(counts, groups) * m * n, size = (long)m * n;
  const struct group_parts parts = bf16_parts_of_groups(counts, groups, products);
  const bool shared = !parts.n;
#pragma omp parallel for schedule(dynamic) if (!shared && threads_for(products) > 1)
  for (int i = 0; i < (shared ? groups : parts.n); i++) {
    const struct group_part part = shared ? whole_group(&parts, i) : nth_part(&parts, i);
    const int line = part_begin(m, part.of, part.part);
    const long at = part.group * size + (long)line * n;
    const struct bf16_product p = {.a_is = 't',
                                   .b_is = 'n',
                                   .a = a + part.row * m + line,
                                   .b = b + part.row * n,
                                   .c = c ? c + at : NULL,
                                   .wide = c ? NULL : wide + at,
                                   .lda = m,
                                   .ldb = n,
                                   .ldc = n,
                                   .m = part_begin(m, part.of, part.part + 1) - line,
                                   .n = n,
                                   .k = counts[part.group],
                                   .batch = 1};
    bf16_product_of_part(&p, shared);
  }
}

static inline void grouped_tn_bf16(float *c, const bf16 *a, const bf16 *b, const int *counts,
                                   int groups, int m, int n)
{
  grouped_sums_bf16(NULL, c, a, b, counts, groups, m, n);
}

// The same with a bfloat16 result.
static inline void grouped_tn_bf16_bf16(bf16 *c, const bf16 *a, const bf16 *b, const int *counts,
                                        int groups, int m, int n)
{
  grouped_sums_bf16(c, NULL, a, b, counts, groups, m, n);
}

#endif
