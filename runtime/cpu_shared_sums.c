// Types and operations of the transport over shared memory.
#include "cpu_shared.h"

#include <string.h>

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

// Some elements, few enough to stay in a core's cache.
enum { AT_ONCE = 8192 };

static void sum_some(char *out, const char *const *from, int members, size_t n, MPI_Datatype type,
                     MPI_Op op, size_t at)
{
  _Alignas(64) char so_far[AT_ONCE];
  const size_t bytes = n * shared_size(type);
  if (op >= MADE) {
    int some = (int)n;
    memcpy(so_far, from[0] + at, bytes);
    for (int m = 1; m < members; m++)
      made[op - MADE]((void *)(uintptr_t)(from[m] + at), so_far, &some, &type);
    memcpy(out + at, so_far, bytes);
    return;
  }
  if (members == 1) memmove(out + at, from[0] + at, bytes);
  for (int m = 1; m < members; m++)
    add(m + 1 < members ? so_far : out + at, m > 1 ? so_far : from[0] + at, from[m] + at, n, type,
        op);
}

void shared_sum(char *out, const char *const *from, int members, size_t n, MPI_Datatype type,
                MPI_Op op)
{
  const size_t each = shared_size(type), most = AT_ONCE / each, blocks = (n + most - 1) / most;
#pragma omp parallel for schedule(static) if (blocks >= 32)
  for (size_t block = 0; block < blocks; block++) {
    const size_t first = block * most, left = n - first;
    sum_some(out, from, members, left < most ? left : most, type, op, first * each);
  }
}

void shared_copy(void *to, const void *from, size_t bytes)
{
  enum { PIECE = 1 << 16 };
  const size_t pieces = (bytes + PIECE - 1) / PIECE;
  if (to == from) return;
#pragma omp parallel for schedule(static) if (pieces >= 8)
  for (size_t piece = 0; piece < pieces; piece++) {
    const size_t first = piece * PIECE, left = bytes - first;
    memcpy((char *)to + first, (const char *)from + first, left < PIECE ? left : PIECE);
  }
}

int MPI_Type_size(MPI_Datatype type, int *bytes) SHARED_ALIAS(PMPI_Type_size);
int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op)
    SHARED_ALIAS(PMPI_Op_create);
int MPI_Op_free(MPI_Op *op) SHARED_ALIAS(PMPI_Op_free);
