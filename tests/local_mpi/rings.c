#include "rings.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
  _Atomic int sleeps;     /* whether it must be woken */
  _Atomic uint32_t heard; /* what it has seen of its rings before it fell asleep */
};

struct shared {
  struct bell bell[MOST_RANKS];
  _Atomic int lost[MOST_RANKS];
  struct ring ring[]; /* from * ranks + to */
};

int ranks_in_all, ranks_me;
static struct shared *shared;

/* Of n ranks, in a file or, with -1, with those that are forked. */
static void map_shared(int n, int file)
{
  const size_t bytes = sizeof *shared + (size_t)n * (size_t)n * sizeof *shared->ring;
  const int in_file = file < 0 ? MAP_ANONYMOUS | MAP_NORESERVE : 0;
  ranks_in_all = n;
  if (n > MOST_RANKS) {
    fprintf(stderr, "local MPI: %d ranks, at most %d\n", n, MOST_RANKS);
    exit(EXIT_FAILURE);
  }
  if (file >= 0 && ftruncate(file, (off_t)bytes)) {
    perror("local MPI: ftruncate");
    exit(EXIT_FAILURE);
  }
  shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | in_file, file, 0);
  if (shared == MAP_FAILED) {
    perror("local MPI: mmap");
    exit(EXIT_FAILURE);
  }
}

void ranks_share(int n)
{
  map_shared(n, -1);
}

void ranks_join(const char *path, int rank, int n)
{
  const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) {
    fprintf(stderr, "local MPI: %s: ", path);
    perror(NULL);
    exit(EXIT_FAILURE);
  }
  map_shared(n, file);
  close(file);
  ranks_become(rank);
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

/* Whether each rank that has not ended sleeps, and has seen all that was done for it. */
static bool all_sleep(void)
{
  for (int i = 0; i < ranks_in_all; i++) {
    struct bell *bell = &shared->bell[i];
    if (!shared->lost[i] && !(bell->sleeps && bell->heard == bell->rings)) return false;
  }
  return true;
}

bool ranks_sleep(uint32_t heard)
{
  enum { TIMES = 20 }; /* two seconds */
  static const struct timespec limit = {.tv_nsec = 100 * 1000 * 1000};
  static int stuck;
  struct bell *bell = &shared->bell[ranks_me];
  bell->heard = heard;
  bell->sleeps = 1;
  futex(&bell->rings, FUTEX_WAIT, heard, &limit);
  stuck = all_sleep() ? stuck + 1 : 0;
  bell->sleeps = 0;
  return stuck >= TIMES;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
  return a < b ? a : b;
}

/* The number of contiguous bytes in a ring from position `at` on. */
static size_t in_one_piece(size_t at, size_t n)
{
  return least(n, RING - at % RING);
}

static void tell(int peer)
{
  if (peer != ranks_me) ring(peer);
}

size_t ranks_write(int peer, const void *from, size_t bytes)
{
  struct ring *r = &shared->ring[ranks_me * ranks_in_all + peer];
  size_t done = 0;
  for (size_t n;; done += n) {
    const size_t at = r->written, room = RING - (at - r->read);
    n = in_one_piece(at, least(bytes - done, room));
    if (n == 0) break;
    memcpy(r->bytes + at % RING, (const char *)from + done, n);
    r->written = at + n;
  }
  if (done > 0) tell(peer);
  return done;
}

size_t ranks_read(int peer, void *to, size_t bytes)
{
  struct ring *r = &shared->ring[peer * ranks_in_all + ranks_me];
  size_t done = 0;
  for (size_t n;; done += n) {
    const size_t at = r->read;
    n = in_one_piece(at, least(bytes - done, r->written - at));
    if (n == 0) break;
    memcpy((char *)to + done, r->bytes + at % RING, n);
    r->read = at + n;
  }
  if (done > 0) tell(peer);
  return done;
}

bool ranks_has_ended(int peer)
{
  return shared->lost[peer];
}
