/* shared_store.c: answers that all processes of a run share. A search evaluates its candidates in
   processes of their own, and passes run on trial in others: these ask the same questions.

   A question is a row of numbers with everything on which the answer depends, so any process may
   give the answer. Nothing is locked, since a process may be ended at any time: an answer is
   written first, then shown. An answer for which the room is too small is not kept. */
#include "util/util.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { PLACES = 1 << 14, LOOKED_AT = 16, STORE_ALIGNMENT = 16, ADDRESS_BITS = 32 };
#define STORE_BYTES ((size_t)16 << 20)

struct kept {
  size_t numbers; /* of the question; the answer follows them */
  int64_t at[];
};

static struct store {
  atomic_size_t used;
  /* Half of a question's hash, and where it is kept, in units of the alignment; 0: free. */
  _Atomic uint64_t place[PLACES];
  _Alignas(STORE_ALIGNMENT) char room[STORE_BYTES];
} * store;

void open_shared_store(void)
{
  if (store) return;
  void *at = mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return;
  store = at;
  atomic_store(&store->used, STORE_ALIGNMENT);
}

static struct kept *kept_at(uint64_t place)
{
  return (struct kept *)(store->room +
                         (place & ((UINT64_C(1) << ADDRESS_BITS) - 1)) * STORE_ALIGNMENT);
}

static uint64_t hash_of_question(const int64_t *question, size_t n)
{
  const uint64_t hash = hash_bytes(HASH_START, question, n * sizeof *question);
  return hash ^ hash >> ADDRESS_BITS;
}

const void *shared_answer(const int64_t *question, size_t n)
{
  if (!store) return NULL;
  const uint64_t hash = hash_of_question(question, n);
  for (int i = 0; i < LOOKED_AT; i++) {
    const uint64_t place =
        atomic_load_explicit(&store->place[(hash + (uint64_t)i) % PLACES], memory_order_acquire);
    if (!place) return NULL;
    if (place >> ADDRESS_BITS != hash >> ADDRESS_BITS) continue;
    const struct kept *kept = kept_at(place);
    if (kept->numbers == n && !memcmp(kept->at, question, n * sizeof *question))
      return kept->at + n;
  }
  return NULL;
}

void share_answer(const int64_t *question, size_t n, const void *answer, size_t size)
{
  if (!store) return;
  const size_t whole = (sizeof(struct kept) + n * sizeof *question + size + STORE_ALIGNMENT - 1) /
                       STORE_ALIGNMENT * STORE_ALIGNMENT;
  if (whole > STORE_BYTES || atomic_load(&store->used) > STORE_BYTES - whole) return;
  const size_t at = atomic_fetch_add(&store->used, whole);
  if (at > STORE_BYTES - whole) return;
  struct kept *kept = (struct kept *)(store->room + at);
  kept->numbers = n;
  memcpy(kept->at, question, n * sizeof *question);
  memcpy(kept->at + n, answer, size);
  const uint64_t hash = hash_of_question(question, n);
  const uint64_t place = hash >> ADDRESS_BITS << ADDRESS_BITS | at / STORE_ALIGNMENT;
  for (int i = 0; i < LOOKED_AT; i++) {
    uint64_t free = 0;
    if (atomic_compare_exchange_strong_explicit(&store->place[(hash + (uint64_t)i) % PLACES], &free,
                                                place, memory_order_release, memory_order_relaxed))
      return;
  }
}
