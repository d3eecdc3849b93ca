// The distributions of initial values, and what whole matrices hold (initial_values.c).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/program.h"
#include "host_target.h"
#include "tensors/initial_values.h"

enum { ROWS = 150, COLUMNS = 90, COUNT = ROWS * COLUMNS };

static struct tensor tensor = {.name = {"w", NULL}, .count = 1, .role = PARAMETER, .type = F32};
static struct own_part own;
static const struct program this_program = {.seed = 7, .tensors = &tensor, .ntensors = 1};
static const struct rank this_rank = {.parts = &own};
const struct program *program = &this_program;
const struct rank *rank = &this_rank;
void *rank_memory;

// The whole tensor, in pieces of other lengths than those that the code makes.
static void drawn(struct init init, int ndim, const long *of, float *to)
{
  const struct member m = {.name = "w"};
  struct failure why;
  struct drawn d;
  size_t count = 1;
  tensor.init = init;
  tensor.ndim = ndim;
  for (int i = 0; i < ndim; i++) {
    tensor.of[i] = of[i];
    count *= (size_t)of[i];
  }
  assert_true(draw_begin(&d, &m, &why));
  for (size_t from = 0; from < count; from += 701)
    draw(&d, from, count - from < 701 ? count - from : 701, to + from);
  draw_end(&d);
}

static double share_below(double z)
{
  return erfc(-z / sqrt(2)) / 2;
}

// The largest distance of the values' shares from those of the truncated distribution: about
// 1.6 / sqrt(COUNT) is reached once in a hundred draws (Kolmogorov and Smirnov).
static int compare(const void *a, const void *b)
{
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static void truncated_normal(void **state)
{
  (void)state;
  static const struct {
    double mean, deviation, low, high;
  } rows[] = {{0, 1, -2, 2},  {0, 0.02, -2, 2}, {1, 2, -0.5, 1.5}, {0, 1, 3, 3.5},
              {0, 1, -9, -6}, {0, 1, 0.5, 9},   {-4, 0.5, -3, 0},  {0, 1, 1, 1.0001}};
  static const long of[] = {ROWS, COLUMNS};
  static float x[COUNT];
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    const double mean = rows[r].mean, deviation = rows[r].deviation;
    const double low = rows[r].low, high = rows[r].high;
    drawn((struct init){TRUNC_NORMAL, {mean, deviation, low, high}}, 2, of, x);
    qsort(x, COUNT, sizeof *x, compare);
    assert_true((double)x[0] >= low && (double)x[COUNT - 1] <= high);
    // In the lower tail, where shares have all digits.
    const double sign = low > mean ? -1 : 1;
    const double a = sign * ((sign > 0 ? low : high) - mean) / deviation;
    const double b = sign * ((sign > 0 ? high : low) - mean) / deviation;
    double far = 0;
    for (int i = 0; i < COUNT; i++) {
      const double z = sign * ((double)x[sign > 0 ? i : COUNT - 1 - i] - mean) / deviation;
      const double share = (share_below(z) - share_below(a)) / (share_below(b) - share_below(a));
      far = fmax(far, fabs(share - (i + 0.5) / COUNT));
    }
    assert_true(far < 1.6 / sqrt(COUNT));
  }
}

static void orthogonal_one(long rows, long columns, double gain)
{
  const long of[] = {rows, columns};
  float *x = malloc((size_t)(rows * columns) * sizeof *x);
  assert_non_null(x);
  drawn((struct init){ORTHOGONAL, {gain}}, 2, of, x);
  const bool wide = rows <= columns;
  const long n = wide ? rows : columns, length = wide ? columns : rows;
  double sum = 0;
  for (long i = 0; i < n; i++)
    for (long j = 0; j <= i; j++) {
      double product = 0;
      for (long k = 0; k < length; k++)
        product += (double)x[wide ? i * columns + k : k * columns + i] *
                   (double)x[wide ? j * columns + k : k * columns + j];
      assert_true(fabs(product - (i == j) * gain * gain) < 1e-6 * gain * gain);
    }
  for (long i = 0; i < rows * columns; i++) sum += (double)x[i];
  assert_true(fabs(sum) <
              4 * gain * sqrt((double)n) + 1e-6); // of elements of deviation gain / sqrt(length)
  free(x);
}

static void orthogonal(void **state)
{
  (void)state;
  orthogonal_one(ROWS, COLUMNS, 1);
  orthogonal_one(COLUMNS, ROWS, 3);
  orthogonal_one(131, 131, 0.5);
  orthogonal_one(1, 9, 1);
  orthogonal_one(9, 1, 1);
}

// Signs are those of no row or column in particular: in many matrices of 2 x 2 the first element is
// uniform on the circle, its square's mean 1/2, and the determinant has both signs.
static void orthogonal_is_uniform(void **state)
{
  (void)state;
  enum { MANY = 2000 };
  static const long of[] = {2, 2};
  int negative = 0, positive = 0;
  double square = 0, fourth = 0;
  for (unsigned long long seed = 0; seed < MANY; seed++) {
    const struct program other = {.seed = seed, .tensors = &tensor, .ntensors = 1};
    float x[4];
    program = &other;
    drawn((struct init){ORTHOGONAL, {1}}, 2, of, x);
    program = &this_program;
    const double a = (double)x[0];
    negative += x[0] * x[3] - x[1] * x[2] < 0;
    positive += x[0] > 0;
    square += a * a / MANY;
    fourth += a * a * a * a / MANY;
  }
  assert_in_range(negative, 0.45 * MANY, 0.55 * MANY);
  assert_in_range(positive, 0.45 * MANY, 0.55 * MANY);
  assert_true(fabs(square - 0.5) < 0.03 && fabs(fourth - 0.375) < 0.03);
}

static void sparse(void **state)
{
  (void)state;
  static const long of[] = {ROWS, COLUMNS};
  static float x[COUNT];
  int in_row[ROWS] = {0};
  double square = 0;
  drawn((struct init){SPARSE, {0.301, 0.25}}, 2, of, x);
  for (int c = 0; c < COLUMNS; c++) {
    int zeros = 0;
    for (int r = 0; r < ROWS; r++) {
      const bool is_zero = fpclassify(x[r * COLUMNS + c]) == FP_ZERO;
      zeros += is_zero;
      in_row[r] += is_zero;
      square += (double)x[r * COLUMNS + c] * (double)x[r * COLUMNS + c];
    }
    assert_int_equal(zeros, 46); // 0.301 * 150, rounded up
  }
  for (int r = 0; r < ROWS; r++) assert_in_range(in_row[r], 9, 47);
  const double deviation = sqrt(square / (COLUMNS * (ROWS - 46)));
  assert_true(fabs(deviation - 0.25) < 0.01);
}

static void dirac(void **state)
{
  (void)state;
  static const long square[] = {5, 7}, weight[] = {6, 2, 3, 4};
  float x[6 * 2 * 3 * 4];
  drawn((struct init){DIRAC, {1}}, 2, square, x);
  for (int i = 0; i < 35; i++)
    assert_true(x[i] >= (float)(i / 7 == i % 7) && x[i] <= (float)(i / 7 == i % 7));
  drawn((struct init){DIRAC, {2}}, 4, weight, x);
  for (int o = 0, i = 0; o < 6; o++)
    for (int c = 0; c < 2; c++)
      for (int at = 0; at < 12; at++, i++) {
        const float one = o % 3 == c && at == 1 * 4 + 2;
        assert_true(x[i] >= one && x[i] <= one);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(truncated_normal), cmocka_unit_test(orthogonal),
      cmocka_unit_test(orthogonal_is_uniform), cmocka_unit_test(sparse), cmocka_unit_test(dirac)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
