/* Boxes of arrays, by force: every box of small arrays is copied out, put back, and packed, and
   each element is where its index says. */
#include "base/box_copy.h"
#include "cpu/kernels/copies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 3 * 4 * 2 * 3 };

/* The number of an element of an array of this shape. */
static long number(int ndim, const long *of, const long *index)
{
  long n = 0;
  for (int d = 0; d < ndim; d++) n = n * of[d] + index[d];
  return n;
}

/* The next index within `size`; false after the last. */
static bool next_index(int ndim, const long *size, long *index)
{
  for (int d = ndim - 1; d >= 0; d--) {
    if (++index[d] < size[d]) return true;
    index[d] = 0;
  }
  return false;
}

static long count(int ndim, const long *size)
{
  long n = 1;
  for (int d = 0; d < ndim; d++) n *= size[d];
  return n;
}

static int tried;

static void try_box(int ndim, const long *of, const long *first, const long *size)
{
  int32_t array[MOST], box[MOST], back[MOST];
  for (int32_t i = 0; i < MOST; i++) array[i] = i, box[i] = back[i] = -1;
  slice_box(box, array, sizeof *box, ndim, size, of, first);
  put_box(back, box, sizeof *box, ndim, size, of, first);
  long index[MAX_DIMS] = {0}, n = 0, left = count(ndim, of);
  do {
    long at[MAX_DIMS];
    for (int d = 0; d < ndim; d++) at[d] = first[d] + index[d];
    assert_int_equal(box[n], number(ndim, of, at));
    assert_int_equal(back[number(ndim, of, at)], number(ndim, of, at));
    n++;
  } while (next_index(ndim, size, index));
  for (long i = 0; i < MOST; i++) left -= back[i] == -1 && i < count(ndim, of);
  assert_int_equal(left, n); /* nothing else is written */
  assert_true(n == MOST || box[n] == -1);
  tried++;
}

static void try_sizes(int ndim, const long *of, const long *first)
{
  long size[MAX_DIMS], most[MAX_DIMS], index[MAX_DIMS] = {0};
  for (int d = 0; d < ndim; d++) most[d] = of[d] - first[d];
  do {
    for (int d = 0; d < ndim; d++) size[d] = index[d] + 1;
    try_box(ndim, of, first, size);
  } while (next_index(ndim, most, index));
}

static void test_every_box(void **state)
{
  static const long shape[][4] = {{5},       {3, 4},       {1, 5},      {4, 1, 3},
                                  {3, 4, 2}, {2, 1, 3, 2}, {3, 4, 2, 3}};
  static const int dims[] = {1, 2, 2, 3, 3, 4, 4};
  (void)state;
  for (size_t s = 0; s < sizeof dims / sizeof *dims; s++) {
    long first[MAX_DIMS] = {0};
    do try_sizes(dims[s], shape[s], first);
    while (next_index(dims[s], shape[s], first));
  }
  assert_true(tried > 1000);
}

static void test_a_number_is_a_box(void **state)
{
  (void)state;
  double x = 3, y = 0;
  slice_box(&y, &x, sizeof x, 0, NULL, NULL, NULL);
  assert_true(y == 3);
}

/* What lies without a gap is one run; else as few dimensions as there can be. */
static void test_runs(void **state)
{
  static const long of[] = {4, 3, 5}, first[] = {1, 0, 0}, rows[] = {2, 3, 5},
                    columns[] = {4, 2, 5}, inner[] = {4, 3, 2}, all[] = {2, 2, 2};
  static const struct within array = {of, first};
  (void)state;
  struct box b = box_of(3, rows, (struct within){rows, NULL}, array, 4);
  assert_int_equal(b.ndim, 0);
  assert_int_equal(b.bytes, 2 * 3 * 5 * 4);
  assert_int_equal(b.from, 3 * 5 * 4);
  assert_int_equal(b.to, 0);
  b = box_of(3, columns, (struct within){columns, NULL}, (struct within){of, NULL}, 4);
  assert_int_equal(b.ndim, 1);
  assert_int_equal(b.bytes, 2 * 5 * 4);
  assert_int_equal(b.n[0], 4);
  assert_int_equal(b.to_step[0], 2 * 5 * 4);
  assert_int_equal(b.from_step[0], 3 * 5 * 4);
  b = box_of(3, inner, (struct within){of, NULL}, (struct within){inner, NULL}, 2);
  assert_int_equal(b.ndim, 1);
  assert_int_equal(b.bytes, 2 * 2);
  assert_int_equal(b.n[0], 4 * 3);
  b = box_of(3, all, (struct within){all, NULL}, array, 1);
  assert_int_equal(b.ndim, 2);
}

/* Pieces that cover an array: packed they lie one after the other, and unpacked where they were. */
static void test_pieces(void **state)
{
  static const struct piece piece[] = {
      {0, {0, 0}, {3, 2}}, {6, {0, 2}, {1, 2}}, {8, {1, 2}, {2, 2}}};
  static const struct pieces all = {2, {3, 4}, 3, piece};
  static const uint16_t in_pieces[] = {0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11};
  uint16_t array[12], packed_up[12], back[12] = {0};
  (void)state;
  for (uint16_t i = 0; i < 12; i++) array[i] = i;
  pack_pieces(packed_up, array, sizeof *array, &all);
  assert_memory_equal(packed_up, in_pieces, sizeof in_pieces);
  unpack_pieces(back, packed_up, sizeof *array, &all);
  assert_memory_equal(back, array, sizeof array);
}

static void test_parts(void **state)
{
  static const long part[] = {2, 0, 1};
  char to[9], back[9];
  (void)state;
  pack_parts(to, "abcdefghi", 3, 3, part);
  assert_memory_equal(to, "abdeghcfi", 9);
  unpack_parts(back, to, 3, 3, part);
  assert_memory_equal(back, "abcdefghi", 9);
}

static void test_fill(void **state)
{
  const uint16_t least = 0xff80;
  uint16_t x[4] = {1, 1, 1, 1};
  (void)state;
  fill(x, 3, sizeof least, &least);
  assert_true(x[0] == least && x[1] == least && x[2] == least && x[3] == 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_box), cmocka_unit_test(test_a_number_is_a_box),
      cmocka_unit_test(test_runs),      cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_parts),     cmocka_unit_test(test_fill),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
