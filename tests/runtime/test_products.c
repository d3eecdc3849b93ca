/* Products of bfloat16 on one thread: each element is the sum of the products of its operands,
   however these are stored, and nothing outside the result is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cpu/kernels/products.h"

static int below(int n)
{
  return rand() % n;
}

struct matrix {
  bf16 *at;
  long ld;
  int rows, columns;
  bool turned;
};

/* Of 64ths that bfloat16 holds exactly. */
static struct matrix random_matrix(int rows, int columns, int gap)
{
  struct matrix x = {.rows = rows, .columns = columns, .turned = below(2)};
  x.ld = (x.turned ? rows : columns) + gap;
  const long n = x.ld * (x.turned ? columns : rows);
  x.at = malloc((size_t)n * sizeof *x.at + 1);
  assert_true(x.at);
  for (long i = 0; i < n; i++) x.at[i] = float_to_bf16((float)(below(257) - 128) / 64);
  return x;
}

static float element(const struct matrix *x, int row, int column)
{
  return bf16_to_float(x->at[x->turned ? column * x->ld + row : row * x->ld + column]);
}

static double sum(const struct matrix *a, const struct matrix *b, int i, int j)
{
  double all = 0;
  for (int k = 0; k < a->columns; k++) all += (double)element(a, i, k) * (double)element(b, k, j);
  return all;
}

static struct stored stored(const struct matrix *x)
{
  return (struct stored){x->at, x->ld, x->turned};
}

/* Every element where they are few, else some thousand of them. */
static void check(const float *c, const float *before, long ldc, const struct matrix *a,
                  const struct matrix *b, bool add)
{
  const long n = (long)a->rows * b->columns, every = n > 4000 ? n / 2000 : 1;
  for (long at = n ? below((int)every) : 0; at < n; at += every) {
    const int i = (int)(at / b->columns), j = (int)(at % b->columns);
    const double expected = sum(a, b, i, j) + (add ? (double)before[i * ldc + j] : 0);
    /* Products and sums are multiples of 1/4096 below 2^12: none is rounded. */
    assert_true(c[i * ldc + j] == (float)expected);
  }
  for (int i = 0; i < a->rows; i++)
    for (long j = b->columns; j < ldc; j++) assert_true(c[i * ldc + j] == before[i * ldc + j]);
}

static void multiply(int m, int n, int k)
{
  struct matrix a = random_matrix(m, k, below(5)), b = random_matrix(k, n, below(5));
  const long ldc = n + below(40), all = m * ldc;
  float *c = malloc((size_t)all * sizeof *c + 1), *before = malloc((size_t)all * sizeof *c + 1);
  assert_true(c && before);
  const bool add = below(2);
  for (long i = 0; i < all; i++) before[i] = (float)below(100);
  memcpy(c, before, (size_t)all * sizeof *c);
  product_on_one_thread(c, ldc, stored(&a), stored(&b), m, n, k, add);
  check(c, before, ldc, &a, &b, add);
  free(c);
  free(before);
  free(a.at);
  free(b.at);
}

static void test_small(void **state)
{
  (void)state;
  srand(1);
  for (int i = 0; i < 400; i++) multiply(1 + below(40), 1 + below(80), 1 + below(60));
}

/* More rows and terms than are copied at a time, and as many as are. */
static void test_large(void **state)
{
  (void)state;
  srand(2);
  for (int i = 0; i < 6; i++) multiply(PART_ROWS - 20 + below(40), 1 + below(100), 1 + below(60));
  for (int i = 0; i < 12; i++) multiply(1 + below(60), 1 + below(100), 300 + below(800));
  multiply(PART_ROWS, 2 * STRIP, PART_TERMS);
  multiply(2 * PART_ROWS, STRIP, 2 * PART_TERMS);
}

static void test_empty(void **state)
{
  (void)state;
  for (int i = 0; i < 20; i++) {
    multiply(below(30), below(60), 0);
    multiply(0, below(60), below(60));
    multiply(below(60), 0, below(60));
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small),
      cmocka_unit_test(test_large),
      cmocka_unit_test(test_empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
