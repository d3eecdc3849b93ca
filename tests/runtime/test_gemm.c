/* Products of float32, by oneDNN, if it is installed, on any processor, and by BLAS: each element
   is the sum of the products of its operands, however these are stored, and however many threads
   compute it; and nothing outside the result is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/program.h"
#include "cpu/kernels/math.h"

void fail_call(const char *file, int line, const char *call, const char *why)
{
  fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, why);
  abort();
}

static int below(int n)
{
  return rand() % n;
}

struct matrix {
  float *at;
  int ld, rows, columns;
  char is;
};

/* Of 16ths up to 1, so that no sum of some thousand products is rounded in whatever order. */
static struct matrix random_matrix(char is, int rows, int columns, int ld)
{
  struct matrix x = {.ld = ld, .rows = rows, .columns = columns, .is = is};
  const long n = (long)ld * (is == 't' ? columns : rows);
  x.at = malloc((size_t)n * sizeof *x.at + 1);
  assert_true(x.at);
  for (long i = 0; i < n; i++) x.at[i] = (float)(below(33) - 16) / 16;
  return x;
}

static double element(const struct matrix *x, int row, int column)
{
  return (double)x->at[x->is == 't' ? (long)column * x->ld + row : (long)row * x->ld + column];
}

static double sum(const struct matrix *a, const struct matrix *b, int i, int j)
{
  double all = 0;
  for (int k = 0; k < a->columns; k++) all += element(a, i, k) * element(b, k, j);
  return all;
}

struct sizes {
  int m, n, k, gap;
};

/* What stands in c from its last column on is as before; so are, where they are many, some hundred
   of its elements right, else all. */
static void check(const float *c, const float *before, int ldc, const struct matrix *a,
                  const struct matrix *b, bool add)
{
  const long n = (long)a->rows * b->columns, every = n > 500 ? n / 400 : 1;
  for (long at = n ? below((int)every) : 0; at < n; at += every) {
    const int i = (int)(at / b->columns), j = (int)(at % b->columns);
    const double expected = sum(a, b, i, j) + (add ? (double)before[(long)i * ldc + j] : 0);
    if ((double)c[(long)i * ldc + j] != expected)
      fail_msg("%c%c %d x %d x %d, %d %d %d%s: %g at %d %d, not %g", a->is, b->is, a->rows,
               b->columns, a->columns, a->ld, b->ld, ldc, add ? ", added" : "",
               (double)c[(long)i * ldc + j], i, j, expected);
  }
  for (int i = 0; i < a->rows; i++)
    for (int j = b->columns; j < ldc; j++)
      assert_true(c[(long)i * ldc + j] == before[(long)i * ldc + j]);
}

static void multiply(struct sizes s, char a_is, char b_is, bool add)
{
  struct matrix a = random_matrix(a_is, s.m, s.k, (a_is == 't' ? s.m : s.k) + s.gap);
  struct matrix b = random_matrix(b_is, s.k, s.n, (b_is == 't' ? s.k : s.n) + s.gap);
  const int ldc = s.n + s.gap;
  const size_t bytes = (size_t)s.m * (size_t)ldc * sizeof(float);
  float *c = malloc(bytes + 1), *before = malloc(bytes + 1);
  assert_true(c && before);
  for (size_t i = 0; i < bytes / sizeof *c; i++) before[i] = add ? (float)below(100) : NAN;
  for (size_t i = 0; i < (size_t)s.m; i++)
    for (size_t j = (size_t)s.n; j < (size_t)ldc; j++) before[i * (size_t)ldc + j] = 7;
  memcpy(c, before, bytes);
  gemm(a_is, b_is, c, ldc, a.at, a.ld, b.at, b.ld, .m = s.m, .n = s.n, .k = s.k, .add = add);
  check(c, before, ldc, &a, &b, add);
  free(c);
  free(before);
  free(a.at);
  free(b.at);
}

static void multiply_all_kinds(struct sizes s)
{
  for (int kind = 0; kind < 8; kind++) multiply(s, "nt"[kind % 2], "nt"[kind / 2 % 2], kind / 4);
}

static void test_small(void **state)
{
  (void)state;
  srand(1);
  for (int i = 0; i < 100; i++)
    multiply_all_kinds((struct sizes){1 + below(40), 1 + below(80), 1 + below(60), below(5)});
}

/* Among them more terms and columns than are worked on at a time, and rows that are whole pages
 * apart. */
static void test_large(void **state)
{
  (void)state;
  static const struct sizes some[] = {
      {101, 103, 107, 3}, {128, 128, 128, 0}, {64, 33, 513, 1},  {40, 70, 1025, 0},
      {17, 50, 3001, 5},  {1, 700, 1800, 0},  {800, 1, 1500, 2}, {2048, 30, 40, 0},
      {30, 2048, 40, 0},  {2046, 20, 50, 2},  {300, 400, 16, 9}, {20, 30, 2048, 0},
      {3, 5003, 90, 1},
  };
  srand(2);
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) multiply_all_kinds(some[i]);
  for (int i = 0; i < 20; i++)
    multiply_all_kinds(
        (struct sizes){60 + below(140), 60 + below(140), 300 + below(900), below(9)});
}

static void test_empty(void **state)
{
  (void)state;
  for (int i = 0; i < 20; i++) {
    multiply_all_kinds((struct sizes){below(30), below(60), 0, 1});
    multiply_all_kinds((struct sizes){0, below(60), below(60), 1});
    multiply_all_kinds((struct sizes){below(60), 0, below(60), 1});
  }
  multiply_all_kinds((struct sizes){2000, 2000, 0, 0});
}

/* What is no number, or none that is finite, becomes neither a number nor something else's. */
static void test_what_is_not_finite(void **state)
{
  (void)state;
  enum { M = 130, N = 120, K = 700 };
  struct matrix a = random_matrix('n', M, K, K), b = random_matrix('t', K, N, K);
  float *c = malloc(M * N * sizeof *c);
  assert_true(c);
  a.at[5 * K + 600] = INFINITY;
  b.at[7 * K + 600] = 1;
  b.at[9 * K + 3] = NAN;
  gemm('n', 't', c, N, a.at, K, b.at, K, .m = M, .n = N, .k = K);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      if (j == 9)
        assert_true(isnan(c[i * N + j]));
      else if (i != 5)
        assert_true(isfinite(c[i * N + j]));
    }
  assert_true(isinf(c[5 * N + 7]));
  free(c);
  free(a.at);
  free(b.at);
}

static void test_batch(void **state)
{
  (void)state;
  enum { M = 70, N = 90, K = 600, COUNT = 3 };
  struct matrix a = random_matrix('t', COUNT * M, K, COUNT * M); /* between each other's rows */
  struct matrix b = random_matrix('n', COUNT * K, N, N);
  static float c[COUNT * M * N];
  gemm_batch('t', 'n', c, N, (long)M * N, a.at, a.ld, M, b.at, N, (long)K * N, .m = M, .n = N,
             .k = K, .batch = COUNT, .add = false);
  for (int i = 0; i < COUNT; i++) {
    struct matrix own_a = a, own_b = b;
    own_a.at += (long)i * M, own_a.rows = M;
    own_b.at += (long)i * K * N, own_b.rows = K;
    check(c + (long)i * M * N, NULL, N, &own_a, &own_b, false);
  }
  free(a.at);
  free(b.at);
}

#ifdef TPGEN_ONEDNN
static bool computes_by_onednn(int m, int n, int k)
{
  static float a[200 * 200], b[200 * 200], c[200 * 200];
  return multiply_floats_by_onednn('n', 'n', c, n, a, k, b, n, m, n, k, false);
}

static void test_whose_it_is(void **state)
{
  (void)state;
  assert_true(computes_by_onednn(200, 200, 200));
  assert_false(computes_by_onednn(20, 200, 20));
  assert_false(computes_by_onednn(200, 200, 0));
}

static void test_it_can_be_turned_off(void **state)
{
  (void)state;
  int status;
  const pid_t child = fork();
  if (child == 0) {
    setenv("TPGEN_ONEDNN", "0", 1);
    _exit(computes_by_onednn(200, 200, 200));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}
#endif

int main(void)
{
  const struct CMUnitTest tests[] = {
#ifdef TPGEN_ONEDNN
      cmocka_unit_test(test_it_can_be_turned_off),
      cmocka_unit_test(test_whose_it_is),
#endif
      cmocka_unit_test(test_small),
      cmocka_unit_test(test_large),
      cmocka_unit_test(test_empty),
      cmocka_unit_test(test_what_is_not_finite),
      cmocka_unit_test(test_batch),
  };
  setenv("TPGEN_ONEDNN", "1", 1);
#ifdef _OPENMP
  omp_set_num_threads(3);
#endif
  return cmocka_run_group_tests(tests, NULL, NULL);
}
