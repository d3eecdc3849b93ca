/* Copies past the cache, by one thread and by all: every byte, none beside, at all alignments, and
   of sizes around a piece of a thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/kernels/past_cache.h"

enum { PIECE = 1 << 18, MOST = 3 * PIECE + 128, BESIDE = 64, GUARD = 0x5a };

typedef void copies(void *to, const void *from, size_t bytes);

static void check(copies *copy, size_t to_at, size_t from_at, size_t bytes)
{
  static unsigned char to[MOST + 3 * BESIDE], from[MOST + BESIDE];
  for (size_t i = 0; i < bytes; i++) from[from_at + i] = (unsigned char)(i * 31 + i / 251 + 1);
  memset(to, GUARD, bytes + 3 * BESIDE);
  copy(to + BESIDE + to_at, from + from_at, bytes);
  assert_memory_equal(to + BESIDE + to_at, from + from_at, bytes);
  for (size_t i = 0; i < BESIDE; i++) {
    assert_int_equal(to[to_at + i], GUARD);
    assert_int_equal(to[BESIDE + to_at + bytes + i], GUARD);
  }
}

static void small_copies(void **state)
{
  (void)state;
  for (size_t bytes = 0; bytes < 200; bytes++)
    for (size_t at = 0; at < BESIDE; at += 1 + bytes % 5) {
      check(copy_past_cache, at, (at * 7 + bytes) % BESIDE, bytes);
      check(copy_by_all, at, (at * 7 + bytes) % BESIDE, bytes);
    }
}

static void large_copies(void **state)
{
  (void)state;
  for (size_t pieces = 1; pieces <= 3; pieces++)
    for (size_t more = 0; more <= 128; more += 1 + more / 2)
      for (size_t at = 0; at < BESIDE; at += 13) {
        check(copy_by_all, at, BESIDE - 1 - at, pieces * PIECE + more);
        check(copy_by_all, at, at, pieces * PIECE - more);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(small_copies),
                                     cmocka_unit_test(large_copies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
