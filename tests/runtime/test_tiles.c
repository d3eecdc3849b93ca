/* What kernels do tile by tile: each element of a product is the sum that it should be, wherever
   the block ends that is kept in registers, and nothing beside the result is written; the
   exponential is that of the library, within a unit in the last place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu_tiles.h"

enum { MOST = 70, TERMS = 5 };

static void fill(float *at, int n)
{
  for (int i = 0; i < n; i++) at[i] = (float)(rand() % 257 - 128) / 64;
}

/* Sums of so few small numbers are exact in any order. */
static void check_product(int m, int n, bool turned, bool add)
{
  static float a[MOST * TERMS], b[TERMS][MOST], c[MOST + 1][MOST + 1], before[MOST + 1][MOST + 1];
  const long row = turned ? 1 : TERMS, column = turned ? MOST : 1;
  fill(a, MOST * TERMS);
  fill(b[0], TERMS * MOST);
  fill(c[0], (MOST + 1) * (MOST + 1));
  memcpy(before, c, sizeof c);
  tile_product(c[0], MOST + 1, a, row, column, b[0], MOST, m, n, TERMS, add);
  for (int i = 0; i <= MOST; i++)
    for (int j = 0; j <= MOST; j++) {
      float sum = i < m && j < n && !add ? 0 : before[i][j];
      for (int k = 0; k < TERMS && i < m && j < n; k++) sum += a[i * row + k * column] * b[k][j];
      assert_true(c[i][j] == sum);
    }
}

static void products(void **state)
{
  (void)state;
  srand(1);
  for (int m = 0; m <= MOST; m++)
    for (int n = 0; n <= MOST; n++) check_product(m, n, (m + n) & 1, (m + n) & 2);
}

static float of_bits(uint32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void exponential(void **state)
{
  (void)state;
  for (uint32_t bits = 0; bits < UINT32_MAX - 1999; bits += 1999) {
    const float x = of_bits(bits), result = tile_exp(x), exact = (float)exp((double)x);
    if (isnan(x))
      assert_true(isnan(result));
    else if (x < -87)
      assert_true(result == 0);
    else if (x > 88)
      assert_true(result == tile_exp(88));
    else
      assert_true(fabs((double)result - exp((double)x)) <=
                  1.1 * (double)(nextafterf(exact, INFINITY) - exact));
  }
  assert_true(tile_exp(0) == 1);
  assert_true(tile_exp(-INFINITY) == 0);
  assert_true(isfinite(tile_exp(INFINITY)));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(exponential)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
