// Types and operations of the transport over shared memory.
#include "cpu_shared.h"

#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

size_t shared_size(MPI_Datatype type)
{
  static const unsigned char bytes[] = {
      [MPI_CHAR] = 1,  [MPI_BYTE] = 1,    [MPI_UNSIGNED_CHAR] = 1, [MPI_UINT16_T] = 2,
      [MPI_INT] = 4,   [MPI_INT32_T] = 4, [MPI_UINT32_T] = 4,      [MPI_INT64_T] = 8,
      [MPI_FLOAT] = 4, [MPI_DOUBLE] = 8};
  return bytes[type];
}

int PMPI_Type_size(MPI_Datatype type, int *bytes)
{
  *bytes = (int)shared_size(type);
  return MPI_SUCCESS;
}

// ---- operations ---------------------------------------------------------------------------------

enum { MADE = MPI_BXOR + 1, MOST_MADE = 8 };

static MPI_User_function *made[MOST_MADE];

int PMPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op)
{
  (void)commutes;
  for (int i = 0; i < MOST_MADE; i++) {
    if (made[i]) continue;
    made[i] = function;
    *op = MADE + i;
    return MPI_SUCCESS;
  }
  return shared_error(NULL, "more than %d operations", MOST_MADE);
}

int PMPI_Op_free(MPI_Op *op)
{
  made[*op - MADE] = NULL;
  return MPI_SUCCESS;
}

// out[i] = a[i] op b[i]; `out` may be a or b.
#define EACH(type, expression)                                                                     \
  do {                                                                                             \
    const type *a = one, *b = other;                                                               \
    type *c = out;                                                                                 \
    _Pragma("omp simd") for (size_t i = 0; i < n; i++) c[i] = (type)(expression);                  \
  } while (0)
#define OPERATIONS(type)                                                                           \
  if (op == MPI_SUM) EACH(type, a[i] + b[i]);                                                      \
  if (op == MPI_MAX) EACH(type, a[i] > b[i] ? a[i] : b[i]);                                        \
  if (op == MPI_MIN) EACH(type, a[i] < b[i] ? a[i] : b[i]);                                        \
  break

static void add(void *out, const void *one, const void *other, size_t n, MPI_Datatype type,
                MPI_Op op)
{
  switch (type) {
  case MPI_FLOAT:
    OPERATIONS(float);
  case MPI_DOUBLE:
    OPERATIONS(double);
  case MPI_INT:
  case MPI_INT32_T:
    OPERATIONS(int32_t);
  case MPI_INT64_T:
    OPERATIONS(int64_t);
  case MPI_UNSIGNED_CHAR:
    OPERATIONS(unsigned char);
  case MPI_UINT32_T:
    if (op == MPI_BXOR) EACH(uint32_t, a[i] ^ b[i]);
    break;
  }
}

// ---- memory that others read --------------------------------------------------------------------

// Stores that pass by the cache need not fetch a line from the core that has read it: they take a
// tenth of the time.
static void put_past_cache(void *to, const void *from, size_t bytes)
{
#ifdef __SSE2__
  enum { LINE = 64 };
  const size_t head = (LINE - (uintptr_t)to % LINE) % LINE, lines = (bytes - head) / LINE;
  memcpy(to, from, head);
  __m128i *line = (__m128i *)((char *)to + head);
  const __m128i_u *source = (const __m128i_u *)((const char *)from + head);
  for (size_t i = 0; i < lines * (LINE / sizeof *line); i++) _mm_stream_si128(line + i, source[i]);
  _mm_sfence();
  from = source + lines * (LINE / sizeof *line);
  to = line + lines * (LINE / sizeof *line);
  bytes -= head + lines * LINE;
#endif
  memcpy(to, from, bytes);
}

// is_read: other ranks have read these bytes, or will.
static void put(void *to, const void *from, size_t bytes, bool is_read)
{
  enum { FEW = 1024 };
  if (is_read && bytes >= FEW)
    put_past_cache(to, from, bytes);
  else if (to != from)
    memcpy(to, from, bytes);
}

// Some elements, few enough to stay in a core's cache.
enum { AT_ONCE = 8192 };

static void sum_some(const struct sum *s, size_t first, size_t n)
{
  _Alignas(64) char so_far[AT_ONCE];
  MPI_Datatype type = s->type;
  const size_t bytes = n * shared_size(type), at = first * shared_size(type);
  if (s->op >= MADE) {
    int some = (int)n;
    memcpy(so_far, s->from[0] + at, bytes);
    for (int m = 1; m < s->members; m++)
      made[s->op - MADE]((void *)(uintptr_t)(s->from[m] + at), so_far, &some, &type);
  } else {
    for (int m = 1; m < s->members; m++)
      add(so_far, m > 1 ? so_far : s->from[0] + at, s->from[m] + at, n, type, s->op);
  }
  put(s->out + at, s->members > 1 ? so_far : s->from[0] + at, bytes, s->is_read);
}

// What is shared out to threads; less is quicker than they are.
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

int MPI_Type_size(MPI_Datatype type, int *bytes) SHARED_ALIAS(PMPI_Type_size);
int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op)
    SHARED_ALIAS(PMPI_Op_create);
int MPI_Op_free(MPI_Op *op) SHARED_ALIAS(PMPI_Op_free);
