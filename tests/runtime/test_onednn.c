/* Products of bfloat16, with and without oneDNN: each is the sum of the products of its operands,
   rounded to its type. oneDNN runs with the instructions of every processor that this one can
   emulate. It has code for bfloat16 from AVX-512 on; below that it must leave all products to the
   program. Without oneDNN there is no test. */
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
#include <dnnl.h>
#include "base/program.h"
#include "cpu/kernels/math.h"

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

enum { PRODUCTS = 400, FEWEST = PRODUCTS / 2, WRONG = -1, NOT_HERE = -2 };

/* Computes random products in both ways. Gives how many oneDNN has computed, or WRONG and says
   which product is. */
static int computed_by_onednn(void)
{
  int computed = 0;
  fill();
  for (int i = 0; i < PRODUCTS; i++) {
    const struct bf16_product p = some_product();
    begin_again();
    multiply_by_parts(&p);
    if (!is_right(&p)) {
      print_error("parts: %c%c %d x %d x %d\n", p.a_is, p.b_is, p.m, p.n, p.k);
      return WRONG;
    }
    begin_again();
    if (!multiply_by_onednn(&p)) continue;
    computed++;
    begin_again();
    multiply_by_onednn(&p); /* by the method that was kept */
    if (!is_right(&p)) {
      print_error("oneDNN: %c%c %d x %d x %d, %ld %ld %ld, batch %d, %ld %ld %ld%s%s\n", p.a_is,
                  p.b_is, p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.batch, p.step_a, p.step_b, p.step_c,
                  p.wide ? ", float32" : "", p.add ? ", added" : "");
      return WRONG;
    }
  }
  return computed;
}

struct processor {
  const char *name; /* as ONEDNN_MAX_CPU_ISA has it */
  unsigned instructions;
};

/* What computed_by_onednn gives where oneDNN takes this processor for that one: in a process of its
   own, as oneDNN asks once. NOT_HERE where this processor has not these instructions. */
static int computed_on(const struct processor *processor)
{
  int result[2], computed = WRONG;
  assert_int_equal(pipe(result), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("ONEDNN_MAX_CPU_ISA", processor->name, 1);
    const bool is_here = (unsigned)dnnl_get_effective_cpu_isa() == processor->instructions;
    computed = is_here ? computed_by_onednn() : NOT_HERE;
    _exit(write(result[1], &computed, sizeof computed) != sizeof computed);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(read(result[0], &computed, sizeof computed), sizeof computed);
  close(result[0]), close(result[1]);
  return computed;
}

static void both_are_right(void **state)
{
  (void)state;
  static const struct processor processors[] = {
      {"SSE41", dnnl_cpu_isa_sse41},
      {"AVX", dnnl_cpu_isa_avx},
      {"AVX2", dnnl_cpu_isa_avx2},
      {"AVX512_CORE", dnnl_cpu_isa_avx512_core},
      {"AVX512_CORE_VNNI", dnnl_cpu_isa_avx512_core_vnni},
      {"AVX512_CORE_BF16", dnnl_cpu_isa_avx512_core_bf16},
      {"AVX512_CORE_AMX", dnnl_cpu_isa_avx512_core_amx},
  };
  int tried = 0;
  for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
    const struct processor *p = &processors[i];
    const int computed = computed_on(p);
    assert_int_not_equal(computed, WRONG);
    tried += computed != NOT_HERE;
    if (computed == NOT_HERE)
      print_message("%s: not tried, this processor cannot play it\n", p->name);
    else
      print_message("%s: oneDNN computes %d of %d\n", p->name, computed, PRODUCTS);
    if (computed != NOT_HERE && p->instructions >= dnnl_cpu_isa_avx512_core)
      assert_in_range(computed, FEWEST, PRODUCTS);
    else if (computed != NOT_HERE)
      assert_int_equal(computed, 0);
  }
  assert_true(tried > 0);
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

#ifdef __SANITIZE_ADDRESS__
/* The sanitizer would keep what is freed, and it would count. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
  return "quarantine_size_mb=1";
}
#endif

/* Bytes of this process in memory. */
static long resident(void)
{
  long all = 0, here = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%ld %ld", &all, &here) != 2) here = 0;
  if (f) fclose(f);
  return here * sysconf(_SC_PAGESIZE);
}

/* Rows of experts: of another number in each product. */
static bool multiply_rows(int first, int end)
{
  for (int m = first; m < end; m++) {
    const struct bf16_product p = {.a_is = 'n',
                                   .b_is = 't',
                                   .a = a,
                                   .b = b,
                                   .c = narrow,
                                   .lda = 16,
                                   .ldb = 16,
                                   .ldc = 8,
                                   .m = m,
                                   .n = 8,
                                   .k = 16,
                                   .batch = 1};
    if (!multiply_by_onednn(&p)) return false;
  }
  return true;
}

/* A primitive has more than 100 KB. */
static void memory_does_not_grow_with_sizes(void **state)
{
  (void)state;
  int status;
  const pid_t child = fork();
  if (child == 0) {
    if (!multiply_rows(1, 600)) _exit(0); /* not on this processor */
    const long before = resident();
    _exit(!multiply_rows(600, 1500) || resident() > before + (32 << 20));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_does_not_grow_with_sizes),
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
