// Philox against the vectors published with Random123, and the runtime's numbers from it.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/philox.h"

static void known_answers(void **state)
{
  (void)state;
  static const struct {
    uint32_t counter[4], key[2], out[4];
  } rows[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint32_t out[4];
    philox4x32(rows[i].counter, rows[i].key, out);
    assert_memory_equal(out, rows[i].out, sizeof out);
  }
}

static void known_hashes(void **state)
{
  (void)state;
  assert_true(philox_hash("") == 0xcbf29ce484222325);
  assert_true(philox_hash("a") == 0xaf63dc4c8601ec8c);
  assert_true(philox_hash("foobar") == 0x85944171f73967e8);
}

// Seed, name and index are where the header says: key, upper and lower half of the counter.
static void elements_are_where_the_header_says(void **state)
{
  (void)state;
  uint64_t hash = philox_hash("in_proj.weight");
  uint32_t key[2] = {0x89abcdef, 0x01234567}, out[4];
  uint32_t counter[4] = {5, 1, (uint32_t)hash, (uint32_t)(hash >> 32)};
  philox4x32(counter, key, out);
  struct philox named = philox_named(0x0123456789abcdef, "in_proj.weight");
  double x[4];
  philox_uniform(&named, ((1ULL << 32) + 5) * 4, 4, x);
  for (int i = 0; i < 4; i++) assert_true((uint64_t)(x[i] * 0x1p32) == out[i]);
}

// However a range is cut, an element has its value.
static void cuts_do_not_matter(void **state)
{
  (void)state;
  enum { N = 41 };
  double whole[N], part[N];
  struct philox named = philox_named(45, "w");
  void (*const make[])(const struct philox *, uint64_t, size_t, double *) = {philox_uniform,
                                                                             philox_normal};
  for (int kind = 0; kind < 2; kind++) {
    make[kind](&named, 3, N, whole);
    for (size_t cut = 0; cut <= N; cut++) {
      make[kind](&named, 3, cut, part);
      make[kind](&named, 3 + cut, N - cut, part + cut);
      assert_memory_equal(part, whole, sizeof whole);
    }
  }
}

static void names_and_seeds_differ(void **state)
{
  (void)state;
  struct philox a = philox_named(45, "w"), b = philox_named(45, "v"), c = philox_named(46, "w");
  double x, y, z;
  philox_uniform(&a, 0, 1, &x);
  philox_uniform(&b, 0, 1, &y);
  philox_uniform(&c, 0, 1, &z);
  assert_true(fabs(x - y) > 0 && fabs(x - z) > 0);
}

// Mean and deviation over 2^20 elements, within five standard errors; and no infinities.
static void moments(void **state)
{
  (void)state;
  enum { N = 1 << 20 };
  static double x[N];
  struct philox named = philox_named(1, "moments");
  for (int kind = 0; kind < 2; kind++) {
    double sum = 0, square = 0, least = 1e9, most = -1e9;
    (kind ? philox_normal : philox_uniform)(&named, 0, N, x);
    for (int i = 0; i < N; i++) {
      sum += x[i];
      square += x[i] * x[i];
      least = fmin(least, x[i]);
      most = fmax(most, x[i]);
    }
    double mean = kind ? 0 : 0.5, variance = kind ? 1 : 1.0 / 12;
    double got = sum / N, spread = square / N - got * got;
    assert_true(fabs(got - mean) < 5 * sqrt(variance / N));
    assert_true(fabs(spread - variance) < 5 * variance * sqrt(2.0 / N));
    assert_true(kind ? most < 7 && least > -7 : least >= 0 && most < 1);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers),
      cmocka_unit_test(known_hashes),
      cmocka_unit_test(elements_are_where_the_header_says),
      cmocka_unit_test(cuts_do_not_matter),
      cmocka_unit_test(names_and_seeds_differ),
      cmocka_unit_test(moments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
