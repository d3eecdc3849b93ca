/* Products of bfloat16 on the matrix unit: of all ways to store operands, with results of bfloat16
   and float32, stored and added, of one product and of several, by one thread and by more, at the
   edges of blocks, of chunks and of parts. Sums are exact, and nothing outside the result is
   written. Skipped where there is no such unit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/kernels/amx_bf16.h"

#ifdef HAS_AMX
enum { GUARD = 0x4321, GAP = 3 };

static int below(int n)
{
  return rand() % n;
}

/* Of 64ths that bfloat16 holds exactly; their sums are exact in float32. Beside the matrices is
   NaN. */
static bf16 *numbers(int batch, long step, int lines, int length, long ld)
{
  bf16 *const at = malloc((size_t)(batch * step) * sizeof *at + 64);
  assert_true(at);
  memset(at, 0xff, (size_t)(batch * step) * sizeof *at + 64);
  for (int of = 0; of < batch; of++)
    for (int i = 0; i < lines; i++)
      for (int j = 0; j < length; j++)
        at[of * step + i * ld + j] = float_to_bf16((float)(below(129) - 64) / 64);
  return at;
}

static float sum_of(const struct bf16_product *p, int of, int i, int j)
{
  const bf16 *const a = p->a + of * p->step_a, *const b = p->b + of * p->step_b;
  float sum = 0;
  for (int k = 0; k < p->k; k++)
    sum += bf16_to_float(p->a_is == 't' ? a[k * p->lda + i] : a[i * p->lda + k]) *
           bf16_to_float(p->b_is == 't' ? b[j * p->ldb + k] : b[k * p->ldb + j]);
  return sum;
}

/* Every element where they are few, else some. */
static void check(const struct bf16_product *p, const bf16 *narrow, const float *wide)
{
  const long all = (long)p->m * p->n * p->batch, every = all > 3000 ? all / 1500 : 1;
  for (long at = below((int)every); at < all; at += every) {
    const int of = (int)(at / ((long)p->m * p->n)), i = (int)(at / p->n % p->m),
              j = (int)(at % p->n);
    const long to = of * p->step_c + i * p->ldc + j;
    const float sum = sum_of(p, of, i, j);
    if (p->c)
      assert_int_equal(p->c[to], float_to_bf16(sum + (p->add ? bf16_to_float(narrow[to]) : 0)));
    else
      assert_true(p->wide[to] == sum + (p->add ? wide[to] : 0));
  }
  for (int of = 0; of < p->batch; of++)
    for (int i = 0; i < p->m; i++)
      for (long j = p->n; j < p->ldc; j++) {
        const long to = of * p->step_c + i * p->ldc + j;
        if (p->c)
          assert_int_equal(p->c[to], GUARD);
        else
          assert_true(p->wide[to] == GUARD);
      }
}

static void multiply(int m, int n, int k, int batch, int threads)
{
  struct bf16_product p = {.a_is = below(2) ? 't' : 'n',
                           .b_is = below(2) ? 't' : 'n',
                           .m = m,
                           .n = n,
                           .k = k,
                           .batch = batch,
                           .ldc = n + below(GAP),
                           .add = below(2)};
  p.lda = (p.a_is == 't' ? m : k) + below(GAP), p.ldb = (p.b_is == 't' ? k : n) + below(GAP);
  p.step_a = p.lda * (p.a_is == 't' ? k : m) + below(GAP);
  p.step_b = p.ldb * (p.b_is == 't' ? n : k) + below(GAP);
  p.step_c = p.ldc * m;
  const long size = batch * p.step_c;
  bf16 *const a = numbers(batch, p.step_a, p.a_is == 't' ? k : m, p.a_is == 't' ? m : k, p.lda);
  bf16 *const b = numbers(batch, p.step_b, p.b_is == 't' ? n : k, p.b_is == 't' ? k : n, p.ldb);
  bf16 *const c = numbers(batch, p.step_c, m, n, p.ldc), *const c_before = malloc((size_t)size * 2);
  float *const wide = malloc((size_t)size * 4), *const wide_before = malloc((size_t)size * 4);
  assert_true(c_before && wide && wide_before);
  for (long i = 0; i < size; i++) {
    if (i % p.ldc >= n) c[i] = GUARD;
    wide[i] = i % p.ldc >= n ? GUARD : (float)below(64) / 64;
  }
  memcpy(c_before, c, (size_t)size * 2);
  memcpy(wide_before, wide, (size_t)size * 4);
  p.a = a, p.b = b;
  if (below(2))
    p.c = c;
  else
    p.wide = wide;
  assert_true(multiply_by_amx(&p, threads));
  check(&p, c_before, wide_before);
  free(a);
  free(b);
  free(c);
  free(c_before);
  free(wide);
  free(wide_before);
}

static void small_products(void **state)
{
  (void)state;
  if (!may_use_amx()) skip();
  srand(1);
  for (int i = 0; i < 300; i++)
    multiply(64 + below(80), 64 + below(80), 64 + below(80), 1 + below(3), 1 + i % 3);
}

static void large_products(void **state)
{
  (void)state;
  if (!may_use_amx()) skip();
  srand(2);
  for (int i = 0; i < 16; i++) {
    multiply(64 + below(64), 64 + below(64), 500 + below(40), 1, 1 + i % 3);
    multiply(64 + below(64), 64 + below(64), 1000 + below(1500), 1, 1 + i % 3);
    multiply(33 + below(32), 500 + below(600), 64 + below(64), 1, 1 + i % 3);
    multiply(500 + below(600), 33 + below(32), 1020 + below(64), 1, 1 + i % 3);
  }
}

/* Another way is quicker. */
static void small_ones_are_left(void **state)
{
  (void)state;
  bf16 a[64] = {0}, c[64];
  struct bf16_product p = {'n', 'n', a, a, c, NULL, 8, 8, 8, 8, 8, 8, 1, 0, 0, 0, false};
  assert_false(multiply_by_amx(&p, 1));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_products),
      cmocka_unit_test(large_products),
      cmocka_unit_test(small_ones_are_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void nothing(void **state)
{
  (void)state;
  skip();
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
