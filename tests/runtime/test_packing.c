/* test_packing.c: texts are packed as by the rule, written plainly: the longest first, each into
   the sample with the least room that has enough, the newest of equal ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "text/samples/packing.h"

enum { MOST = 200 };

/* In the order in which samples are begun. Returns their number. */
static size_t by_rule(const uint32_t *length, size_t count, uint32_t room, size_t *in)
{
  uint32_t left[MOST];
  size_t since[MOST], n = 0, clock = 0;
  for (uint32_t size = room; size > 0; size--)
    for (size_t i = 0; i < count; i++) {
      if (length[i] != size) continue;
      size_t best = n;
      for (size_t s = 0; s < n; s++) {
        const int better =
            best == n || left[s] < left[best] || (left[s] == left[best] && since[s] > since[best]);
        if (left[s] >= size && better) best = s;
      }
      if (best == n) left[n++] = room;
      left[best] -= size;
      since[best] = ++clock;
      in[i] = best;
    }
  return n;
}

static void as_by_rule(void **state)
{
  (void)state;
  srand(1);
  for (int trial = 0; trial < 2000; trial++) {
    uint32_t length[MOST];
    size_t in[MOST], plain[MOST], number[MOST], samples, next = 0;
    const uint32_t room = 1 + (uint32_t)rand() % 40;
    const size_t count = (size_t)rand() % MOST;
    for (size_t i = 0; i < count; i++) length[i] = (uint32_t)rand() % (room + 1);
    assert_true(pack_texts(length, count, room, in, &samples));
    assert_int_equal(samples, by_rule(length, count, room, plain));
    for (size_t i = 0; i < MOST; i++) number[i] = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
      if (!length[i]) {
        assert_true(in[i] == SIZE_MAX);
        continue;
      }
      if (number[plain[i]] == SIZE_MAX) number[plain[i]] = next++;
      assert_int_equal(in[i], number[plain[i]]);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_by_rule)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
