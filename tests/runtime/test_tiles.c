/* Products and functions of kernels that work tile by tile: each element of a product is the right
   sum, wherever the register block ends, and nothing outside the result is written; the exponential
   equals the library's within a unit in the last place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/kernels/tiles.h"

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

/* Rows of bfloat16 as a product's operands: a from rows, or from rows that lie turned; b from rows.
 */
static void check_pairs(int m, int n, int terms, bool turned, bool add)
{
  enum { MANY = 150, PAIRS = (MANY + 1) / 2 };
  static bf16 a[MANY * MANY], b[MANY * MOST];
  static bf16_pair of_a[MANY * MANY], of_b[PAIRS][MOST];
  static float c[MOST + 1][MOST + 1], before[MOST + 1][MOST + 1];
  const long row = turned ? 1 : terms, column = turned ? MOST : 1, pairs = (terms + 1) / 2;
  const int lines = turned ? terms : m;
  for (int i = 0; i < MANY * MANY; i++) a[i] = float_to_bf16((float)(rand() % 257 - 128) / 64);
  for (int i = 0; i < MANY * MOST; i++) b[i] = float_to_bf16((float)(rand() % 65 - 32) / 64);
  fill(c[0], (MOST + 1) * (MOST + 1));
  memcpy(before, c, sizeof c);
  memset(of_a, 0xff, sizeof of_a); /* what is not set is NaN */
  memset(of_b, 0xff, sizeof of_b);
  if (turned)
    pair_down(of_a, lines + lines % 2, a, MOST, terms, MOST);
  else
    pair_along(of_a, m, a, terms, m, terms);
  pair_down(of_b[0], terms + terms % 2, b, MOST, terms, MOST);
  tile_begin();
  tile_product_bf16(c[0], MOST + 1, of_a, turned ? 1 : pairs, turned ? MOST : 1, of_b[0], MOST, m,
                    n, (int)pairs, add);
  tile_end();
  for (int i = 0; i <= MOST; i++)
    for (int j = 0; j <= MOST; j++) {
      float sum = i < m && j < n && !add ? 0 : before[i][j];
      for (int k = 0; k < terms && i < m && j < n; k++)
        sum += bf16_to_float(a[i * row + k * column]) * bf16_to_float(b[k * MOST + j]);
      assert_true(c[i][j] == sum);
    }
}

static void products_of_pairs(void **state)
{
  (void)state;
  srand(2);
  for (int m = 0; m <= MOST; m++)
    for (int n = 0; n <= MOST; n++) check_pairs(m, n, TERMS - (m + n) / 2 % 3, m & 1, (m + n) & 2);
}

/* So many that the matrix unit does them, where there is one, all or some. */
static void products_of_many_pairs(void **state)
{
  (void)state;
  static const int sizes[] = {15, 16, 31, 32, 33, 47, 48, 64, MOST};
  static const int terms[] = {31, 32, 33, 63, 64, 100, 128, 150};
  enum { SIZES = sizeof sizes / sizeof *sizes, MANY = sizeof terms / sizeof *terms };
  srand(3);
  for (int i = 0; i < SIZES; i++)
    for (int j = 0; j < SIZES; j++)
      for (int k = 0; k < MANY; k++)
        check_pairs(sizes[i], sizes[j], terms[k], (i + k) & 1, (j + k) & 2);
}

/* Columns are rows that were turned; floats are rounded; zero stands beyond the last row. */
static void turned_pairs(void **state)
{
  (void)state;
  enum { ROWS = 37, WIDTH = 41, ROOM = 40 };
  bf16 from[ROWS][WIDTH];
  float floats[ROWS][WIDTH];
  bf16_pair along[ROOM * WIDTH], turned[WIDTH * ROOM];
  bf16_pair down[(ROOM + 1) / 2 * WIDTH], rounded[(ROWS + 1) / 2 * WIDTH];
  for (int i = 0; i < ROWS; i++)
    for (int c = 0; c < WIDTH; c++) {
      floats[i][c] = (float)rand() / (float)RAND_MAX;
      from[i][c] = float_to_bf16(floats[i][c]);
    }
  for (int rows = 1; rows <= ROWS; rows++)
    for (int width = 1; width <= WIDTH; width++) {
      const int pairs = (width + 1) / 2;
      pair_along(along, ROOM, from[0], WIDTH, rows, width);
      pair_transposed(turned, ROOM, from[0], WIDTH, rows, width);
      pair_down(down, ROOM, from[0], WIDTH, rows, width);
      for (int i = 0; i < ROOM; i++)
        for (int c = 0; c < 2 * pairs; c++) {
          const bf16 expected = i < rows && c < width ? from[i][c] : 0;
          assert_int_equal((bf16)(along[i * pairs + c / 2] >> 16 * (c % 2)), expected);
          assert_int_equal((bf16)(turned[c / 2 * ROOM + i] >> 16 * (c % 2)), expected);
          if (c < width)
            assert_int_equal((bf16)(down[i / 2 * width + c] >> 16 * (i % 2)), expected);
        }
    }
  for (int rows = 1; rows <= ROWS; rows++) {
    pair_down(down, ROOM, from[0], WIDTH, rows, WIDTH);
    pair_down_floats(rounded, floats[0], rows, WIDTH);
    assert_memory_equal(rounded, down, (size_t)((rows + 1) / 2 * WIDTH) * sizeof *down);
  }
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(products),
                                     cmocka_unit_test(products_of_pairs),
                                     cmocka_unit_test(products_of_many_pairs),
                                     cmocka_unit_test(turned_pairs), cmocka_unit_test(exponential)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
