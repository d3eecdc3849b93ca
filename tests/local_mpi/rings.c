#include "rings.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"

enum { RING = 1 << 15 };

struct ring {
  _Alignas(64) _Atomic size_t written;
  _Alignas(64) _Atomic size_t read;
  char bytes[RING];
};

/* Of a rank: it is rung after each move of bytes to or from it. */
struct bell {
  _Alignas(64) _Atomic uint32_t rings;
  _Atomic int sleeps; /* whether it must be woken */
};

struct shared {
  struct bell bell[MOST_RANKS];
  _Atomic int lost[MOST_RANKS];
  struct ring ring[]; /* from * ranks + to */
};

int ranks_in_all, ranks_me;
static struct shared *shared;

void ranks_share(int n)
{
  const size_t bytes = sizeof *shared + (size_t)n * (size_t)n * sizeof *shared->ring;
  ranks_in_all = n;
  if (n > MOST_RANKS) {
    fprintf(stderr, "local MPI: %d ranks, at most %d\n", n, MOST_RANKS);
    exit(EXIT_FAILURE);
  }
  shared =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shared == MAP_FAILED) {
    perror("local MPI: mmap");
    exit(EXIT_FAILURE);
  }
}

void ranks_become(int rank)
{
  ranks_me = rank;
}

_Noreturn void ranks_misuse(const char *call, const char *what, long a, long b)
{
  fprintf(stderr, "local MPI: rank %d: %s: %s (%ld, %ld)\n", ranks_me, call, what, a, b);
  _exit(EXIT_FAILURE);
}

/* ---- bells ----------------------------------------------------------------------------------- */

static long futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *limit)
{
  return syscall(SYS_futex, word, what, value, limit, NULL, 0);
}

static void ring(int rank)
{
  struct bell *bell = &shared->bell[rank];
  bell->rings++;
  if (bell->sleeps) futex(&bell->rings, FUTEX_WAKE, 1, NULL);
}

void ranks_lost(int rank, int status)
{
  (void)status;
  shared->lost[rank] = 1;
  for (int i = 0; i < ranks_in_all; i++) ring(i);
}

uint32_t ranks_news(void)
{
  return shared->bell[ranks_me].rings;
}

void ranks_sleep(uint32_t heard)
{
  static const struct timespec limit = {.tv_nsec = 100 * 1000 * 1000};
  struct bell *bell = &shared->bell[ranks_me];
  bell->sleeps = 1;
  futex(&bell->rings, FUTEX_WAIT, heard, &limit);
  bell->sleeps = 0;
}

/* ---- transfers ------------------------------------------------------------------------------- */

struct transfer ranks_transfer(const char *call, int context, int peer, const void *from, void *to,
                               size_t bytes)
{
  struct transfer t = {.sends = from != NULL, .peer = peer, .from = from, .to = to};
  t.head.context = context;
  t.head.bytes = bytes;
  strncpy(t.head.call, call, sizeof t.head.call - 1);
  return t;
}

bool ranks_is_over(const struct transfer *t)
{
  return t->done == sizeof t->head + t->head.bytes;
}

static struct ring *ring_of(const struct transfer *t)
{
  return &shared->ring[t->sends ? ranks_me * ranks_in_all + t->peer
                                : t->peer * ranks_in_all + ranks_me];
}

size_t ranks_written(int peer)
{
  return shared->ring[ranks_me * ranks_in_all + peer].written;
}

size_t ranks_read(int peer)
{
  return shared->ring[ranks_me * ranks_in_all + peer].read;
}

static size_t least(size_t a, size_t b)
{
  return a < b ? a : b;
}

/* The number of contiguous bytes in a ring from position `at` on. */
static size_t in_one_piece(size_t at, size_t n)
{
  return least(n, RING - at % RING);
}

static bool sends_some(struct transfer *t, struct ring *r)
{
  const size_t all = sizeof t->head + t->head.bytes, before = t->done;
  for (;;) {
    const size_t at = r->written, room = RING - (at - r->read);
    const bool of_head = t->done < sizeof t->head;
    const char *from =
        of_head ? (const char *)&t->head + t->done : t->from + (t->done - sizeof t->head);
    const size_t left = of_head ? sizeof t->head - t->done : all - t->done;
    const size_t n = in_one_piece(at, least(left, room));
    if (n == 0) return t->done > before;
    memcpy(r->bytes + at % RING, from, n);
    r->written = at + n;
    t->done += n;
  }
}

static void compare_heads(const struct transfer *t)
{
  const struct head *a = &t->head, *b = &t->heard;
  if (strncmp(a->call, b->call, sizeof a->call) == 0 && a->context == b->context &&
      a->bytes == b->bytes)
    return;
  fprintf(
      stderr,
      "local MPI: rank %d: MPI_%s on group %d has %zu bytes from rank %d, which calls MPI_%s on "
      "group %d with %zu bytes\n",
      ranks_me, a->call, a->context, a->bytes, t->peer, b->call, b->context, b->bytes);
  _exit(EXIT_FAILURE);
}

static bool receives_some(struct transfer *t, struct ring *r)
{
  const size_t all = sizeof t->head + t->head.bytes, before = t->done;
  for (;;) {
    const size_t at = r->read, there = r->written - at;
    const bool of_head = t->done < sizeof t->head;
    char *to = of_head ? (char *)&t->heard + t->done : t->to + (t->done - sizeof t->head);
    const size_t left = of_head ? sizeof t->head - t->done : all - t->done;
    const size_t n = in_one_piece(at, least(left, there));
    if (n == 0) return t->done > before;
    memcpy(to, r->bytes + at % RING, n);
    r->read = at + n;
    t->done += n;
    if (of_head && t->done == sizeof t->head) compare_heads(t);
  }
}

bool ranks_has_ended(int peer)
{
  return shared->lost[peer];
}

bool ranks_move(struct transfer *t, const char *call)
{
  const bool was_lost = ranks_has_ended(t->peer); /* asked first: it may have sent all and ended */
  if (t->sends ? sends_some(t, ring_of(t)) : receives_some(t, ring_of(t))) {
    if (t->peer != ranks_me) ring(t->peer);
    return true;
  }
  if (was_lost) ranks_misuse(call, "a rank has ended", t->peer, 0);
  return false;
}
