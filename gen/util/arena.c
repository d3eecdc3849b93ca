/* arena.c: the memory of all passes. It is never freed, and shared with the process that reads the
   plan. Other threads than the compiler's have arenas of their own. */
#include "util/util.h"

#include <jansson.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 16 };
#define ARENA_BYTES ((size_t)384 << 20)

/* At the start of the arena. */
struct arena {
  size_t used;
};

static _Thread_local struct arena *arena;

/* The arena of this thread, with its first bytes. */
static void first_bytes(char *at)
{
  arena = (struct arena *)at;
  arena->used = (sizeof *arena + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Tables follow the arena. Each reserves room for more elements than most plans need: reserved
   pages that are not written take no memory, and a table that grows by moving would take it
   twice. */
enum { HUGE = 2 << 20, MOST_TABLES = 2 };
static size_t reserved;
static struct table {
  size_t at, size; /* from the start of the arena; of one element */
  const int *n;    /* how many elements it has */
} table[MOST_TABLES];
static int ntable;

/* At the start of a huge page, so that mremap can move these pages. */
static char *reserve(int kind)
{
  char *at = mmap(NULL, reserved + HUGE, PROT_READ | PROT_WRITE,
                  kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at + (HUGE - (uintptr_t)at % HUGE) % HUGE;
}

static bool is_own;     /* the arena is private to this process, as far as there was memory */
static bool is_private; /* it is */

static void forget(void *block)
{
  (void)block;
}

void arena_open(size_t tables)
{
  /* Tests prepare several arenas. An earlier one must not count against the memory limit of the
     process that reads the plan: it has private memory that can be written. */
  if (is_own) mprotect(arena, reserved, PROT_READ);
  is_own = is_private = false;
  ntable = 0;
  reserved = ARENA_BYTES + tables;
  open_messages();
  char *at = reserve(MAP_SHARED);
  if (!at) usage_error(3, "no memory: cannot reserve %zu bytes", reserved);
  first_bytes(at);
  json_set_alloc_funcs(alloc, forget); /* jansson would ignore a failed allocation */
  json_object_seed(1);                 /* a random hash seed would open a file */
}

void *arena_table(size_t size, const int *n)
{
  size_t at = ARENA_BYTES;
  if (ntable) at = table[ntable - 1].at + table[ntable - 1].size * TABLE_ROOM;
  table[ntable++] = (struct table){at, size, n};
  return (char *)arena + at;
}

static char *own; /* where arena_own moves the arena to, or NULL */

static char *reserve_own(void)
{
  if (!own) own = reserve(MAP_PRIVATE);
  if (own) madvise(own, reserved, MADV_HUGEPAGE);
  return own;
}

void arena_prepare(bool (*is_over)(void))
{
#ifdef MADV_POPULATE_WRITE
  enum { ROUNDS = 3, OF_TABLES = 2 };
  if (!reserve_own()) return;
  for (size_t i = 0; i < ROUNDS; i++) {
    size_t piece[MOST_TABLES + 3], n = 0;
    for (int k = 0; k < ntable && i < OF_TABLES; k++) piece[n++] = table[k].at + i * HUGE;
    for (size_t k = 0; k < 3; k++) piece[n++] = (3 * i + k) * HUGE;
    for (size_t k = 0; k < n; k++)
      if (is_over() || madvise(own + piece[k], HUGE, MADV_POPULATE_WRITE)) return;
  }
#else
  (void)is_over;
#endif
}

static void copy_to_own(const void *from, size_t size)
{
  memcpy(own + ((const char *)from - (const char *)arena), from, size);
}

void arena_own(void)
{
  is_own = true;
  if (!reserve_own()) return;
  copy_to_own(arena, arena->used);
  for (int k = 0; k < ntable; k++)
    if (*table[k].n <= TABLE_ROOM)
      copy_to_own((char *)arena + table[k].at, (size_t)*table[k].n * table[k].size);
  if (mremap(own, reserved, reserved, MREMAP_MAYMOVE | MREMAP_FIXED, arena) == MAP_FAILED)
    munmap(own, reserved);
  else
    is_private = true;
  own = NULL;
}

bool arena_is_private(void)
{
  if (!is_private) arena_own();
  return is_private;
}

void arena_not_own(void)
{
  if (own) munmap(own, reserved);
  own = NULL;
}

void arena_of_thread(void)
{
  char *at = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) usage_error(3, "no memory: cannot reserve %zu bytes", ARENA_BYTES);
  first_bytes(at);
}

void end_arena_of_thread(void)
{
  munmap(arena, ARENA_BYTES);
  arena = NULL;
}

size_t arena_used(void)
{
  return arena->used;
}

size_t arena_room(void)
{
  return ARENA_BYTES;
}

void *alloc(size_t size)
{
  if (size > ARENA_BYTES - arena->used - ALIGNMENT)
    plan_error(
        0,
        "the plan needs more than %zu MiB to compile: where ranks differ, fewer at once need "
        "less; say which to write, as in --ranks 0-7",
        ARENA_BYTES >> 20);
  void *at = (char *)arena + arena->used;
  arena->used += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return at;
}

char *arena_end(void)
{
  return (char *)arena + arena->used;
}

bool arena_widen(void *last, size_t size, size_t to)
{
  size_t taken = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (!size || (char *)last + taken != arena_end()) return false;
  arena->used -= taken;
  alloc(to);
  return true;
}

void *grow(void *array, int n, int *room, size_t size)
{
  int wider = *room ? 2 * *room : 16;
  void *at = alloc((size_t)wider * size);
  if (n) memcpy(at, array, (size_t)n * size);
  *room = wider;
  return at;
}

int64_t plus_times(int64_t sum, int64_t n, int64_t each)
{
  int64_t product, all;
  bool over = __builtin_mul_overflow(n, each, &product);
  return over || __builtin_add_overflow(sum, product, &all) ? INT64_MAX : all;
}

bool lists_number(const int *list, int n, int number)
{
  for (int i = 0; i < n; i++)
    if (list[i] == number) return true;
  return false;
}

void add(struct list *list, int number)
{
  enum { FEW = 4 }; /* most lists are short, and there are tens of thousands */
  if (!list->room) list->at = alloc((size_t)(list->room = FEW) * sizeof *list->at);
  GROW(list->at, list->n, list->room);
  list->at[list->n++] = number;
}

void add_once(struct list *list, int number)
{
  if (!lists_number(list->at, list->n, number)) add(list, number);
}
