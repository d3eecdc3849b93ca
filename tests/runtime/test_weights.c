/* Products of floats and stored weights: bfloat16 and blocks of 8 bits, both ways round, of few
   rows and of many, at the edges of tiles, of columns and of terms. Sums that floats hold exactly
   are exact, and others as near as float32 is; infinity and NaN stay; with blocks of 8 bits
   infinity may become NaN. With the processor's instructions the matrix unit does it, where there
   is one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cpu/kernels/weights.h"

enum kind { OF_BF16, OF_BF16_TURNED, OF_INT8, OF_INT8_TURNED, KINDS };

static int below(int n)
{
  return rand() % n;
}

/* A matrix of weights, and its numbers, w[n][k] whichever way it is stored. */
struct matrix {
  enum kind kind;
  long n, k;
  void *stored;
  float *number;
};

static float *floats(long n)
{
  float *x = calloc((size_t)n + 1, sizeof *x);
  assert_true(x);
  return x;
}

/* Of floats that are stored exactly, or of any. */
static struct matrix random_weights(enum kind kind, long n, long k, bool exact)
{
  const bool turned = kind == OF_BF16_TURNED || kind == OF_INT8_TURNED;
  struct matrix m = {kind, n, k, calloc((size_t)(n * k) + 1, sizeof(float)), floats(n * k)};
  assert_true(m.stored);
  float *const from = floats(n * k);
  for (long i = 0; i < n * k; i++)
    from[i] = exact ? (float)(below(255) - 127) / 64 : (float)(below(1 << 24) - (1 << 23)) * 1e-6f;
  if (kind >= OF_INT8)
    for (long i = 0; i < n * k; i += BLOCK_NUMBERS) {
      struct weight_block *const block = (struct weight_block *)m.stored + i / BLOCK_NUMBERS;
      if (exact) from[i] = 127.0f / 64;
      weight_block_pack(block, from + i);
      for (int c = 0; c < BLOCK_NUMBERS; c++)
        from[i + c] = bf16_to_float(block->scale) * (float)block->q[c];
    }
  else
    for (long i = 0; i < n * k; i++) {
      ((bf16 *)m.stored)[i] = float_to_bf16(from[i]);
      from[i] = bf16_to_float(((bf16 *)m.stored)[i]);
    }
  for (long j = 0; j < n; j++)
    for (long c = 0; c < k; c++) m.number[j * k + c] = turned ? from[c * n + j] : from[j * k + c];
  free(from);
  return m;
}

static void free_weights(struct matrix *m)
{
  free(m->stored);
  free(m->number);
}

static void run(float *out, const float *x, const struct matrix *m, long rows)
{
  switch (m->kind) {
  case OF_BF16:
    linear_of_bf16(out, x, m->stored, rows, m->n, m->k);
    break;
  case OF_BF16_TURNED:
    linear_of_bf16_transposed(out, x, m->stored, rows, m->n, m->k);
    break;
  case OF_INT8:
    linear_of_int8(out, x, m->stored, rows, m->n, m->k / BLOCK_NUMBERS);
    break;
  default:
    linear_of_int8_transposed(out, x, m->stored, rows, m->n / BLOCK_NUMBERS, m->k);
    break;
  }
}

/* within: of the sum of all sizes. */
static void multiply(enum kind kind, long rows, long n, long k, bool exact, double within)
{
  if (kind == OF_INT8) k = (k + BLOCK_NUMBERS - 1) / BLOCK_NUMBERS * BLOCK_NUMBERS;
  if (kind == OF_INT8_TURNED) n = (n + BLOCK_NUMBERS - 1) / BLOCK_NUMBERS * BLOCK_NUMBERS;
  struct matrix m = random_weights(kind, n, k, exact);
  float *const x = floats(rows * k), *const out = floats(rows * n + 1);
  for (long i = 0; i < rows * k; i++)
    x[i] = exact ? (float)(below(257) - 128) / 64 : (float)(below(1 << 24) - (1 << 23)) * 1e-5f;
  out[rows * n] = 7;
  run(out, x, &m, rows);
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < n; j++) {
      double sum = 0, size = 0;
      for (long c = 0; c < k; c++) {
        const double term = (double)x[i * k + c] * (double)m.number[j * k + c];
        sum += term, size += fabs(term);
      }
      if (fabs((double)out[i * n + j] - sum) > within * size)
        fail_msg("kind %d, %ld rows, %ld columns, %ld terms: element %ld, %ld is %.9g, not %.9g",
                 kind, rows, n, k, i, j, (double)out[i * n + j], sum);
    }
  assert_true(out[rows * n] == 7);
  free(x);
  free(out);
  free_weights(&m);
}

static void exact_sums(void **state)
{
  (void)state;
  srand(1);
  for (enum kind kind = 0; kind < KINDS; kind++) {
    for (int rows = 1; rows <= 40; rows++)
      multiply(kind, rows, 1 + below(80), 1 + below(90), true, 0);
    for (int i = 0; i < 12; i++)
      multiply(kind, 1 + below(70), 32 * (1 + below(3)), 32 * (1 + below(4)), true, 0);
    /* More than what is packed at a time. */
    multiply(kind, 300, 40, 64, true, 0);
    multiply(kind, 32, 64, 1024, true, 0);
    multiply(kind, 20, 33, 1100, true, 0);
    multiply(kind, 5, 3, 8300, true, 0);
    multiply(kind, 2, 3, 8300, true, 0);
  }
}

/* Each sum is of float32: what rounding x to bfloat16 would do, 2e-3, is far away. */
static void near_sums(void **state)
{
  (void)state;
  srand(2);
  for (enum kind kind = 0; kind < KINDS; kind++)
    for (int i = 0; i < 8; i++)
      multiply(kind, 1 + below(60), 1 + below(90), 1 + below(700), false, 2e-7);
}

static void not_finite(void **state)
{
  (void)state;
  enum { ROWS = 6, TERMS = 64, N = 32 };
  for (enum kind kind = 0; kind < KINDS; kind++) {
    struct matrix m = random_weights(kind, N, TERMS, true);
    float x[ROWS * TERMS] = {0}, out[ROWS * N];
    x[0] = INFINITY, x[TERMS + 3] = NAN, x[2 * TERMS] = 0x1.fffffep127f, x[3 * TERMS + 1] = 1;
    run(out, x, &m, ROWS);
    for (int j = 0; j < N; j++) {
      const float w = m.number[j * TERMS];
      if (kind < OF_INT8)
        assert_true(w == 0 ? isnan(out[j]) : out[j] == (w > 0 ? INFINITY : -INFINITY));
      else
        assert_true(!isfinite(out[j]));
      assert_true(isnan(out[N + j]));
      if (fabsf(w) < 1) assert_true(fabsf(out[2 * N + j] - w * x[2 * TERMS]) <= 1e32f);
      assert_true(out[3 * N + j] == m.number[j * TERMS + 1]);
      assert_true(out[4 * N + j] == 0);
    }
    free_weights(&m);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exact_sums),
      cmocka_unit_test(near_sums),
      cmocka_unit_test(not_finite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
