// The copies into the buffers of collectives and out of them, against their definition: loops over
// ranks, rows and elements. Random buckets of members that are sharded over a few ranks, with
// uneven and empty parts, each rank's part in room for the largest; with casts; and with members so
// large that several threads share the copies.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "cpu/kernels/segments.h"

enum { RANKS = 5, MEMBERS = 4, MOST_SEGMENTS = 2 * RANKS * MEMBERS, CASES = 400, MARGIN = 3 };

static uint64_t seed = 1;

static long below(long n)
{
  seed = seed * 6364136223846793005 + 1442695040888963407;
  return (long)((seed >> 33) % (uint64_t)n);
}

// A value whose rows hold the ranks' parts side by side, each of run[r] elements.
struct member {
  char *at;
  long bytes, rows, run[RANKS], begin[RANKS], row, place, room;
};

struct bucket {
  char *at;
  long bytes, chunk, ranks;
  int n;
  struct member member[MEMBERS];
};

// Numbers that bfloat16 has, too: what is cast comes back as it was.
static float number_at(const char *at, long bytes, long i)
{
  return bytes == 2 ? bf16_to_float(((const bf16 *)(const void *)at)[i])
                    : ((const float *)(const void *)at)[i];
}

static void set_number(char *at, long bytes, long i, float x)
{
  if (bytes == 2)
    ((bf16 *)(void *)at)[i] = float_to_bf16(x);
  else
    ((float *)(void *)at)[i] = x;
}

static char *numbers(long bytes, long n)
{
  char *at = malloc((size_t)(n * bytes + 1));
  assert_non_null(at);
  for (long i = 0; i < n; i++) set_number(at, bytes, i, (float)(1 + below(255)));
  return at;
}

// As torch.chunk cuts a size: equal parts, then a smaller one, then none.
static void cut(struct member *m, long ranks, long size, long inner)
{
  long each = (size + ranks - 1) / ranks, left = size;
  for (int r = 0; r < ranks; r++) {
    m->begin[r] = (size - left) * inner;
    m->run[r] = (left < each ? left : each) * inner;
    left -= m->run[r] / inner;
  }
  m->row = size * inner;
  m->room = m->rows * each * inner;
}

static struct bucket random_bucket(int large)
{
  struct bucket b = {.bytes = below(2) ? 2 : 4, .ranks = 1 + below(RANKS)};
  b.n = 1 + (int)below(MEMBERS);
  for (int k = 0; k < b.n; k++) {
    struct member *m = &b.member[k];
    m->bytes = below(2) ? 2 : 4;
    m->rows = 1 + below(3);
    cut(m, b.ranks, 1 + below(large ? 300 : 9), 1 + below(large ? 300 : 4));
    m->place = b.chunk;
    b.chunk += m->room;
    m->at = numbers(m->bytes, m->rows * m->row + MARGIN);
  }
  b.at = numbers(b.bytes, b.ranks * b.chunk + MARGIN);
  return b;
}

static void give_back(struct bucket *b)
{
  for (int k = 0; k < b->n; k++) free(b->member[k].at);
  free(b->at);
}

// Segments of equal parts; behind each, if asked, what pads the room of it.
static int segments_of(const struct bucket *b, struct segment *p, int pads)
{
  int n = 0;
  for (int k = 0; k < b->n; k++) {
    const struct member *m = &b->member[k];
    for (long r = 0, next; r < b->ranks; r = next) {
      for (next = r + 1; next < b->ranks && m->run[next] == m->run[r];) next++;
      const long place = r * b->chunk + m->place, filled = m->rows * m->run[r];
      p[n++] = (struct segment){
          m->at + m->begin[r] * m->bytes, m->bytes, place, next - r, m->rows, m->run[r], m->row};
      if (!m->run[r]) n--;
      if (!pads || filled == m->room) continue;
      p[n++] = (struct segment){NULL, m->bytes, place + filled, next - r, 1, m->room - filled, 0};
    }
  }
  return n;
}

// The same, element by element. pads: what pads a part becomes zero, in the buffer.
static void copy_plainly(struct bucket *b, int in, int pads)
{
  for (int k = 0; k < b->n; k++) {
    struct member *m = &b->member[k];
    for (long r = 0; r < b->ranks; r++) {
      long there = r * b->chunk + m->place;
      for (long row = 0; row < m->rows; row++)
        for (long i = 0; i < m->run[r]; i++, there++) {
          const long here = row * m->row + m->begin[r] + i;
          if (in)
            set_number(b->at, b->bytes, there, number_at(m->at, m->bytes, here));
          else
            set_number(m->at, m->bytes, here, number_at(b->at, b->bytes, there));
        }
      for (; pads && there < r * b->chunk + m->place + m->room; there++)
        set_number(b->at, b->bytes, there, 0);
    }
  }
}

static struct bucket copy_of(const struct bucket *b)
{
  struct bucket c = *b;
  for (int k = 0; k < b->n; k++) {
    const size_t size =
        (size_t)((b->member[k].rows * b->member[k].row + MARGIN) * b->member[k].bytes);
    c.member[k].at = memcpy(malloc(size), b->member[k].at, size);
  }
  const size_t size = (size_t)((b->ranks * b->chunk + MARGIN) * b->bytes);
  c.at = memcpy(malloc(size), b->at, size);
  return c;
}

// What nobody named is as it was, too.
static void same(const struct bucket *a, const struct bucket *b)
{
  assert_memory_equal(a->at, b->at, (size_t)((a->ranks * a->chunk + MARGIN) * a->bytes));
  for (int k = 0; k < a->n; k++)
    assert_memory_equal(
        a->member[k].at, b->member[k].at,
        (size_t)((a->member[k].rows * a->member[k].row + MARGIN) * a->member[k].bytes));
}

static void check_bucket(int large)
{
  struct segment p[MOST_SEGMENTS];
  struct bucket b = random_bucket(large), expected = copy_of(&b);
  const int pads = (int)below(2), in = (int)below(2);
  const int n = segments_of(&b, p, in && pads);
  copy_plainly(&expected, in, in && pads);
  (in ? pack_segments : unpack_segments)(b.at, b.bytes, b.chunk, n, p);
  same(&b, &expected);
  give_back(&b);
  give_back(&expected);
}

static void random_buckets(void **state)
{
  (void)state;
  for (int i = 0; i < CASES; i++) check_bucket(0);
}

static void large_buckets(void **state)
{
  (void)state;
  for (int i = 0; i < CASES / 20; i++) check_bucket(1);
}

// A rank's own chunk alone, from where it begins; and a table of nothing.
static void one_part(void **state)
{
  (void)state;
  float buffer[6] = {9, 9, 9, 9, 9, 9};
  bf16 x[4] = {float_to_bf16(1), float_to_bf16(2), float_to_bf16(3), float_to_bf16(4)};
  const struct segment p[] = {{x, 2, 1, 1, 1, 4, 4}};
  pack_segments(buffer, 4, 6, 0, p);
  for (int i = 0; i < 6; i++) assert_true(buffer[i] == 9);
  pack_segments(buffer, 4, 6, 1, p);
  const float there[6] = {9, 1, 2, 3, 4, 9};
  assert_memory_equal(buffer, there, sizeof buffer);
}

// Out of a float buffer into bfloat16: rounded to the nearest, of two as near to the even one.
static void casts_round(void **state)
{
  (void)state;
  float buffer[4] = {0x1.01p0f, 0x1.03p0f, 0x1.0101p0f, -0x1.00ffp0f};
  bf16 x[4];
  const struct segment p[] = {{x, 2, 0, 1, 1, 4, 4}};
  unpack_segments(buffer, 4, 4, 1, p);
  const float there[4] = {0x1p0f, 0x1.04p0f, 0x1.02p0f, -0x1p0f};
  for (int i = 0; i < 4; i++) assert_true(bf16_to_float(x[i]) == there[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_buckets),
      cmocka_unit_test(large_buckets),
      cmocka_unit_test(one_part),
      cmocka_unit_test(casts_round),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
