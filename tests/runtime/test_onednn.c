/* Products of bfloat16 by oneDNN, made to be used on any processor, and without: each is the sum
   of the products of its operands, rounded to its type. Without oneDNN there is no test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#ifdef TPGEN_ONEDNN
#include "cpu_math.h"
#include "program.h"

void fail_call(const char *file, int line, const char *call, const char *why)
{
  fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, why);
  abort();
}

enum { ROOM = 1 << 16 };
static bf16 a[ROOM], b[ROOM], narrow[ROOM], narrow_before[ROOM];
static float wide[ROOM], wide_before[ROOM];

static int below(int n)
{
  return rand() % n;
}

static void fill(void)
{
  for (int i = 0; i < ROOM; i++) {
    a[i] = float_to_bf16((float)(below(2001) - 1000) / 1000);
    b[i] = float_to_bf16((float)(below(2001) - 1000) / 1000);
    wide_before[i] = (float)(below(2001) - 1000) / 100;
    narrow_before[i] = float_to_bf16(wide_before[i]);
  }
}

/* One of the ways in which operands lie: some with gaps, some shared by a batch, or its rows
   between each other's. */
static struct bf16_product some_product(void)
{
  struct bf16_product p = {.a_is = "nt"[below(2)], .b_is = "nt"[below(2)], .a = a, .b = b};
  p.m = 1 + below(40), p.n = 1 + below(40), p.k = 1 + below(40);
  p.batch = below(2) ? 1 : 1 + below(4);
  p.add = below(2);
  const bool woven = below(2);
  const int gap = below(2) * below(9);
  const int inner[] = {p.a_is == 't' ? p.m : p.k, p.b_is == 't' ? p.k : p.n, p.n};
  const int outer[] = {p.a_is == 't' ? p.k : p.m, p.b_is == 't' ? p.n : p.k, p.m};
  long ld[3], step[3];
  for (int i = 0; i < 3; i++) {
    ld[i] = woven ? (long)inner[i] * p.batch + gap : inner[i] + gap;
    step[i] = woven ? inner[i] : ld[i] * outer[i];
  }
  p.lda = ld[0], p.ldb = ld[1], p.ldc = ld[2];
  p.step_a = step[0], p.step_b = step[1], p.step_c = step[2];
  if (!below(4)) p.step_b = 0;
  if (below(2))
    p.c = narrow;
  else
    p.wide = wide;
  return p;
}

/* Is what stands where the product's result belongs that, and all beside it as it was? */
static bool is_right(const struct bf16_product *p)
{
  static double right[ROOM], within[ROOM];
  for (int i = 0; i < ROOM; i++) {
    right[i] = p->c ? bf16_to_float(narrow_before[i]) : wide_before[i];
    within[i] = 0;
  }
  for (int i = 0; i < p->batch; i++)
    for (int y = 0; y < p->m; y++)
      for (int x = 0; x < p->n; x++) {
        const long at = i * p->step_c + y * p->ldc + x;
        double sum = p->add ? right[at] : 0, magnitude = fabs(sum);
        for (int k = 0; k < p->k; k++) {
          const double term =
              (double)bf16_to_float(
                  a[i * p->step_a + (p->a_is == 't' ? k * p->lda + y : y * p->lda + k)]) *
              bf16_to_float(b[i * p->step_b + (p->b_is == 't' ? x * p->ldb + k : k * p->ldb + x)]);
          sum += term, magnitude += fabs(term);
        }
        right[at] = sum;
        within[at] = 1e-6 * magnitude + (p->c ? 0x1p-8 * fabs(sum) : 0);
      }
  for (int i = 0; i < ROOM; i++)
    if (!(fabs((p->c ? bf16_to_float(narrow[i]) : wide[i]) - right[i]) <= within[i])) return false;
  return true;
}

static void begin_again(void)
{
  memcpy(narrow, narrow_before, sizeof narrow);
  memcpy(wide, wide_before, sizeof wide);
}

static void both_are_right(void **state)
{
  (void)state;
  int done = 0;
  fill();
  for (int i = 0; i < 400; i++) {
    const struct bf16_product p = some_product();
    begin_again();
    if (!multiply_by_onednn(&p)) continue;
    done++;
    begin_again();
    multiply_by_onednn(&p); /* as it is kept */
    if (!is_right(&p))
      fail_msg("oneDNN: %c%c %d x %d x %d, %ld %ld %ld, batch %d, %ld %ld %ld%s%s", p.a_is, p.b_is,
               p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.batch, p.step_a, p.step_b, p.step_c,
               p.wide ? ", float32" : "", p.add ? ", added" : "");
    begin_again();
    multiply_by_parts(&p);
    if (!is_right(&p)) fail_msg("parts: %c%c %d x %d x %d", p.a_is, p.b_is, p.m, p.n, p.k);
  }
  print_message("oneDNN computes %d of 400\n", done);
  assert_in_range(done, 200, 400);
}

static void nothing_is_no_product(void **state)
{
  (void)state;
  struct bf16_product p = some_product();
  p.k = 0;
  assert_false(multiply_by_onednn(&p));
}

static void it_can_be_turned_off(void **state)
{
  (void)state;
  int status;
  const pid_t child = fork();
  if (child == 0) {
    setenv("TPGEN_ONEDNN", "0", 1);
    const struct bf16_product p = some_product();
    _exit(multiply_by_onednn(&p));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_can_be_turned_off),
      cmocka_unit_test(both_are_right),
      cmocka_unit_test(nothing_is_no_product),
  };
  setenv("TPGEN_ONEDNN", "1", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
  puts("SKIPPED: oneDNN is not installed");
  return 0;
}
#endif
