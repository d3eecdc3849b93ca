// SPDX-License-Identifier: MIT
// Types and operations of the transport over shared memory.
#include "cpu/shared_memory/shared.h"

#include <string.h>
#include "cpu/kernels/past_cache.h"

size_t shared_size(enum shared_type type)
{
  static const unsigned char bytes[] = {
      [SHARED_CHAR] = 1,  [SHARED_UINT16] = 2, [SHARED_INT32] = 4, [SHARED_UINT32] = 4,
      [SHARED_INT64] = 8, [SHARED_FLOAT] = 4,  [SHARED_DOUBLE] = 8};
  return bytes[type];
}

// ---- operations ---------------------------------------------------------------------------------

// out[i] = a[i] op b[i]; `out` may be a or b.
#define EACH(type, expression)                                                                     \
  do {                                                                                             \
    const type *a = one, *b = other;                                                               \
    type *c = out;                                                                                 \
    _Pragma("omp simd") for (size_t i = 0; i < n; i++) c[i] = (type)(expression);                  \
  } while (0)
#define OPERATIONS(type)                                                                           \
  if (op == SHARED_SUM) EACH(type, a[i] + b[i]);                                                   \
  if (op == SHARED_MAX) EACH(type, a[i] > b[i] ? a[i] : b[i]);                                     \
  if (op == SHARED_MIN) EACH(type, a[i] < b[i] ? a[i] : b[i]);                                     \
  break

static void add(void *out, const void *one, const void *other, size_t n, enum shared_type type,
                enum shared_op op)
{
  switch (type) {
  case SHARED_FLOAT:
    OPERATIONS(float);
  case SHARED_DOUBLE:
    OPERATIONS(double);
  case SHARED_INT32:
    OPERATIONS(int32_t);
  case SHARED_INT64:
    OPERATIONS(int64_t);
  case SHARED_CHAR:
    OPERATIONS(unsigned char);
  case SHARED_UINT16:
    OPERATIONS(uint16_t);
  case SHARED_UINT32:
    if (op == SHARED_BXOR) EACH(uint32_t, a[i] ^ b[i]);
    break;
  }
}

// ---- memory that others read --------------------------------------------------------------------

// is_read: other ranks have read these bytes, or will: to pass by the cache takes a tenth of the
// time.
static void put(void *to, const void *from, size_t bytes, bool is_read)
{
  enum { FEW = 1024 };
  if (is_read && bytes >= FEW)
    copy_past_cache(to, from, bytes);
  else if (to != from)
    memcpy(to, from, bytes);
}

// Some elements, few enough to stay in a core's cache.
enum { AT_ONCE = 8192 };

static void sum_some(const struct sum *s, size_t first, size_t n)
{
  _Alignas(64) char so_far[AT_ONCE];
  enum shared_type type = s->type;
  const size_t bytes = n * shared_size(type), at = first * shared_size(type);
  if (s->op >= SHARED_MADE) {
    memcpy(so_far, s->from[0] + at, bytes);
    for (int m = 1; m < s->members; m++)
      shared_combine(s->op, (void *)(uintptr_t)(s->from[m] + at), so_far, (int)n, type);
  } else {
    for (int m = 1; m < s->members; m++)
      add(so_far, m > 1 ? so_far : s->from[0] + at, s->from[m] + at, n, type,
          (enum shared_op)s->op);
  }
  put(s->out + at, s->members > 1 ? so_far : s->from[0] + at, bytes, s->is_read);
}

// The bytes from which threads share the work; for fewer, one thread is quicker.
enum { MUCH = 1 << 18 };

void shared_sum(const struct sum *s)
{
  const size_t each = shared_size(s->type), most = AT_ONCE / each, n = s->n;
  if (n * each < MUCH) {
    for (size_t first = 0; first < n; first += most)
      sum_some(s, first, n - first < most ? n - first : most);
    return;
  }
#pragma omp parallel for schedule(static)
  for (size_t first = 0; first < n; first += most)
    sum_some(s, first, n - first < most ? n - first : most);
}

void shared_copy(void *to, const void *from, size_t bytes, bool is_read)
{
  enum { PIECE = 1 << 16 };
  if (to == from || bytes == 0) return;
  if (bytes < MUCH) {
    put(to, from, bytes, is_read);
    return;
  }
#pragma omp parallel for schedule(static)
  for (size_t first = 0; first < bytes; first += PIECE)
    put((char *)to + first, (const char *)from + first,
        bytes - first < PIECE ? bytes - first : PIECE, is_read);
}
