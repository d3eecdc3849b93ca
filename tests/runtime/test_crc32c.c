// The checksum: its known values, by instruction and by tables, and of bytes in slices.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
// As it is, for the tables that this machine may have no need of.
#include "../../runtime/formats/crc32c.c"

enum { MOST = 40000 };
static unsigned char bytes[MOST];

static int make_bytes(void **state)
{
  uint32_t x = 1;
  (void)state;
  for (int i = 0; i < MOST; i++) bytes[i] = (unsigned char)((x = x * 1664525 + 1013904223) >> 24);
  return 0;
}

// RFC 3720, B.4, and the check value of the catalogues.
static void known_values(void **state)
{
  unsigned char zeros[32] = {0}, ones[32], up[32];
  (void)state;
  memset(ones, 0xff, sizeof ones);
  for (int i = 0; i < 32; i++) up[i] = (unsigned char)i;
  assert_int_equal(crc32c("123456789", 9), 0xe3069283);
  assert_int_equal(crc32c(zeros, 32), 0x8a9136aa);
  assert_int_equal(crc32c(ones, 32), 0x62a8ab43);
  assert_int_equal(crc32c(up, 32), 0x46dd794e);
  assert_int_equal(crc32c("", 0), 0);
}

static void tables_agree(void **state)
{
  (void)state;
  for (size_t count = 0; count < MOST; count += count < 70 ? 1 : 997)
    for (size_t at = 0; at < 9 && at + count <= MOST; at++)
      assert_int_equal(add_by_tables(7, bytes + at, count), add(7, bytes + at, count));
}

// Rows of so many bytes are dealt out to ranks by columns, and looked at in pieces.
static void slices_make_the_whole(void **state)
{
  (void)state;
  for (size_t width = 1; width <= 13001; width = width * 5 + 1)
    for (size_t ranks = 1; ranks <= 5; ranks++) {
      size_t rows = MOST / width, size = rows * width;
      uint32_t all = 0;
      for (size_t r = 0; r < ranks; r++) {
        struct checksum sum = {0};
        size_t first = width * r / ranks, end = width * (r + 1) / ranks;
        for (size_t row = 0; row < rows && first < end; row++) {
          size_t at = row * width + first, half = (end - first) / 2;
          checksum_add(&sum, at, bytes + at, half);
          checksum_add(&sum, at + half, bytes + at + half, end - first - half);
        }
        all ^= checksum_share(&sum, size);
      }
      assert_int_equal(checksum_whole(all, size), crc32c(bytes, size));
    }
}

static void nothing_at_all(void **state)
{
  (void)state;
  struct checksum sum = {0};
  assert_int_equal(checksum_whole(checksum_share(&sum, 0), 0), crc32c("", 0));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_values),
      cmocka_unit_test(tables_agree),
      cmocka_unit_test(slices_make_the_whole),
      cmocka_unit_test(nothing_at_all),
  };
  return cmocka_run_group_tests(tests, make_bytes, NULL);
}
