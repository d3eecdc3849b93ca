/* lua_memory.c: the memory of the Lua that reads a plan.

   A plan allocates a hundred thousand small blocks; most live to the end. The allocator cuts them
   from large pieces, one after the other, and reuses a freed block for the next one of its size.
   Larger blocks come from malloc. */
#include "lua/lua.h"

#include <lua.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { UNIT = 16, SMALL = 512, PIECE = 2 << 20 };

struct spare {
  struct spare *next;
};
static struct spare *spare[SMALL / UNIT + 1]; /* by size, in units */
static char *rest, *end;                      /* of the current piece */

static size_t units(size_t size)
{
  return (size + UNIT - 1) / UNIT;
}

static void *take_block(size_t size)
{
  size_t n = units(size);
  struct spare *at = spare[n];
  if (at) {
    spare[n] = at->next;
    return at;
  }
  if ((size_t)(end - rest) < n * UNIT) {
    char *piece = aligned_alloc(PIECE, PIECE);
    if (!piece) return NULL;
    madvise(piece, PIECE, MADV_HUGEPAGE);
    rest = piece;
    end = piece + PIECE;
  }
  rest += n * UNIT;
  return rest - n * UNIT;
}

void *pool_move(void *block, size_t before, size_t size)
{
  bool was_small = before <= SMALL, is_small = size <= SMALL;
  if (block && was_small && is_small && units(before) == units(size)) return block;
  if (!was_small && !is_small) return realloc(block, size);
  void *at = is_small ? take_block(size) : malloc(size);
  if (!at || !block) return at;
  memcpy(at, block, before < size ? before : size);
  pool_free(block, before);
  return at;
}

void pool_free(void *block, size_t size)
{
  if (!block) return;
  if (size <= SMALL) {
    struct spare *at = block;
    at->next = spare[units(size)];
    spare[units(size)] = at;
  } else
    free(block);
}
