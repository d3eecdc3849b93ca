/* Products of rows in groups, in float32 and in bfloat16: each group's rows with its own matrix, on
   any number of threads, however many rows a group has. Rows of large groups are parts, which
   threads share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/program.h"
#include "cpu/kernels/groups.h"
#include "cpu/kernels/groups_bf16.h"
#include "cpu/kernels/math.h"

void fail_call(const char *file, int line, const char *call, const char *why)
{
  fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, why);
  abort();
}

enum { MOST_GROUPS = 20 };

/* In both types: halves, of which no sum is rounded. */
struct numbers {
  float *wide;
  bf16 *narrow;
};

static struct numbers random_numbers(long n)
{
  struct numbers x = {malloc((size_t)n * sizeof *x.wide + 1),
                      malloc((size_t)n * sizeof *x.narrow + 1)};
  assert_true(x.wide && x.narrow);
  for (long i = 0; i < n; i++) {
    x.wide[i] = (float)(rand() % 9 - 4) / 2;
    x.narrow[i] = float_to_bf16(x.wide[i]);
  }
  return x;
}

static void forget(struct numbers x)
{
  free(x.wide);
  free(x.narrow);
}

static void check(const struct numbers *c, long at, double expected)
{
  assert_true(c->wide[at] == (float)expected);
  assert_true(c->narrow[at] == float_to_bf16((float)expected));
}

/* c = a b of each group, b as it is or turned. */
static void check_rows(const int *counts, int groups, int n, int k, bool turned)
{
  const long rows = all_rows(counts, groups);
  struct numbers a = random_numbers(rows * k), b = random_numbers((long)groups * n * k),
                 c = random_numbers(rows * n);
  (turned ? grouped_nt : grouped_nn)(c.wide, a.wide, b.wide, counts, groups, n, k);
  (turned ? grouped_nt_bf16 : grouped_nn_bf16)(c.narrow, a.narrow, b.narrow, counts, groups, n, k);
  long row = 0;
  for (int g = 0; g < groups; g++)
    for (int i = 0; i < counts[g]; i++, row++)
      for (int j = i % 3; j < n; j += 3) {
        const float *of = b.wide + (long)g * n * k;
        double sum = 0;
        for (int x = 0; x < k; x++)
          sum += (double)a.wide[row * k + x] * (double)(turned ? of[j * k + x] : of[x * n + j]);
        check(&c, row * n + j, sum);
      }
  forget(a);
  forget(b);
  forget(c);
}

/* c = the sum over the group's rows, for each column of a and of b. */
static void check_sums(const int *counts, int groups, int m, int n)
{
  const long rows = all_rows(counts, groups);
  struct numbers a = random_numbers(rows * m), b = random_numbers(rows * n),
                 c = random_numbers((long)groups * m * n),
                 of_narrow = random_numbers((long)groups * m * n);
  grouped_tn(c.wide, a.wide, b.wide, counts, groups, m, n);
  grouped_tn_bf16_bf16(c.narrow, a.narrow, b.narrow, counts, groups, m, n);
  grouped_tn_bf16(of_narrow.wide, a.narrow, b.narrow, counts, groups, m, n);
  for (int g = 0; g < groups; g++)
    for (int i = 0; i < m; i++)
      for (int j = i % 3; j < n; j += 3) {
        double sum = 0;
        for (long row = first_row(counts, g); row < first_row(counts, g + 1); row++)
          sum += (double)a.wide[row * m + i] * (double)b.wide[row * n + j];
        check(&c, ((long)g * m + i) * n + j, sum);
        assert_true(of_narrow.wide[((long)g * m + i) * n + j] == (float)sum);
      }
  forget(of_narrow);
  forget(a);
  forget(b);
  forget(c);
}

static void check_all(const int *counts, int groups)
{
  static const int sizes[][2] = {{40, 33}, {16, 70}, {7, 100}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    check_rows(counts, groups, sizes[i][0], sizes[i][1], true);
    check_rows(counts, groups, sizes[i][0], sizes[i][1], false);
    check_sums(counts, groups, sizes[i][0], sizes[i][1]);
  }
}

/* On 1, 2, 3 and 8 threads. */
static void each_number_of_threads(const int *counts, int groups)
{
#ifdef _OPENMP
  static const int threads[] = {1, 2, 3, 8};
  for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
    omp_set_num_threads(threads[i]);
    check_all(counts, groups);
  }
#else
  check_all(counts, groups);
#endif
}

static void test_balanced(void **state)
{
  (void)state;
  srand(1);
  each_number_of_threads((int[]){300, 300, 300, 300, 300, 300, 300, 300}, 8);
  each_number_of_threads((int[]){700, 600}, 2);
  each_number_of_threads((int[]){5, 3, 0, 2}, 4);
}

/* One group has most of the rows, or all of them; others have none. */
static void test_large_groups(void **state)
{
  (void)state;
  srand(2);
  each_number_of_threads((int[]){20, 30, 0, 1, 1537, 9, 0, 40}, 8);
  each_number_of_threads((int[]){0, 0, 1200}, 3);
  each_number_of_threads((int[]){2000, 0, 0, 0, 0, 0, 0, 0, 400}, 9);
  each_number_of_threads((int[]){0, 0}, 2);
}

static void test_any(void **state)
{
  (void)state;
  srand(3);
  for (int i = 0; i < 4; i++) {
    int counts[MOST_GROUPS], groups = 1 + rand() % MOST_GROUPS;
    for (int g = 0; g < groups; g++) counts[g] = rand() % 3 ? rand() % 90 : rand() % 700;
    each_number_of_threads(counts, groups);
  }
}

/* Every row of every group is in one part; a large group has several, none of which is much larger
   than a thread's share. */
static void test_parts(void **state)
{
  (void)state;
  const int counts[] = {0, 500, 3, 4000, 0, 260, 700, 0}, groups = 8;
  const long products = 1L << 30;
#ifdef _OPENMP
  omp_set_num_threads(4);
#endif
  const struct group_parts parts = parts_of_groups(counts, groups, products);
  assert_true(parts.n == 0 || parts.n >= groups);
  int seen[8] = {0};
  for (int i = 0; i < parts.n; i++) {
    const struct group_part p = nth_part(&parts, i);
    assert_int_equal(p.part, seen[p.group]++);
    assert_int_equal(p.row, first_row(counts, p.group));
    assert_true(p.part < p.of);
  }
  for (int g = 0; g < groups && parts.n; g++) assert_int_equal(seen[g], parts_of_group(&parts, g));
#ifdef _OPENMP
  assert_true(seen[3] >= 8);
#endif
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_balanced),
      cmocka_unit_test(test_large_groups),
      cmocka_unit_test(test_any),
      cmocka_unit_test(test_parts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
