// cpu_groups.h for bfloat16, with float32 sums.
#ifndef CPU_GROUPS_BF16_H
#define CPU_GROUPS_BF16_H

#include "cpu_groups.h" // and through it cpu_bf16.h

// One group's product: by all threads, or by this one.
static inline void product_of_group(const struct bf16_product *p, bool by_all)
{
  if (by_all)
    multiply_bf16(p);
  else
    bf16_part(p, 0, 0, 0, p->m, p->n);
}

// c[rows, n] = a[rows, k] b[k, n] of the group; b_is 't': b is stored transposed, [n, k].
static inline void grouped_rows_bf16(char b_is, bf16 *c, const bf16 *a, const bf16 *b,
                                     const int *counts, int groups, int n, int k)
{
  const long products = first_row(counts, groups) * n * k, size = (long)n * k;
  const bool shared = is_shared(groups, products);
#pragma omp parallel for schedule(dynamic) if (!shared && threads_for(products) > 1)
  for (int g = 0; g < groups; g++) {
    const long row = first_row(counts, g);
    const struct bf16_product p = {.a_is = 'n',
                                   .b_is = b_is,
                                   .a = a + row * k,
                                   .b = b + g * size,
                                   .c = c + row * n,
                                   .lda = k,
                                   .ldb = b_is == 't' ? k : n,
                                   .ldc = n,
                                   .m = counts[g],
                                   .n = n,
                                   .k = k,
                                   .batch = 1};
    if (counts[g]) product_of_group(&p, shared);
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

// c[m, n] = the transpose of a[rows, m] times b[rows, n], of each group; zeros without rows.
static inline void grouped_tn_bf16(bf16 *c, const bf16 *a, const bf16 *b, const int *counts,
                                   int groups, int m, int n)
{
  const long products = first_row(counts, groups) * m * n, size = (long)m * n;
  const bool shared = is_shared(groups, products);
#pragma omp parallel for schedule(dynamic) if (!shared && threads_for(products) > 1)
  for (int g = 0; g < groups; g++) {
    const long row = first_row(counts, g);
    const struct bf16_product p = {.a_is = 't',
                                   .b_is = 'n',
                                   .a = a + row * m,
                                   .b = b + row * n,
                                   .c = c + g * size,
                                   .lda = m,
                                   .ldb = n,
                                   .ldc = n,
                                   .m = m,
                                   .n = n,
                                   .k = counts[g],
                                   .batch = 1};
    if (counts[g])
      product_of_group(&p, shared);
    else
      memset(p.c, 0, (size_t)size * sizeof *p.c);
  }
}

#endif
