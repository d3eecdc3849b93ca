// SPDX-License-Identifier: MIT
// The start and end of ranks that talk through shared memory, their memory, and how they meet.
//
// Nothing of it has a name in a file system: the first rank has the slots as an anonymous file
// (memfd), each rank its memory, and the others open them by /proc/PID/fd. The remains of a killed
// job go with its processes.
#include "cpu/shared_memory/shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif
#include "base/program.h"
#include "base/target.h"
#include "cpu/memory.h"

enum { GROUPS = 128, BLOCKS = 32, BLOCK_SHIFT = 56 };

struct slot {
  struct posted posted[2];
  _Alignas(64) _Atomic uint32_t parted; // the number of its waits for all beyond those of calls
  _Atomic uint32_t sleepers;
};

// A rank's memory, as the others find it.
struct block {
  int file;
  size_t bytes;
};

struct job {
  int process[SHARED_RANKS], rank[SHARED_RANKS];
  cpu_set_t cores[SHARED_RANKS]; // that it may run on
  struct block block[SHARED_RANKS][BLOCKS];
  struct slot slot[]; // of each group in turn, for each rank
};

static struct shared_group machine = {.n = 1}; // until shared_start
struct shared_group *const shared_machine = &machine;

static struct job *job;
static int groups = 1;
static int spins;          // the number of looks of a rank before it sleeps
static void (*idle)(void); // the function that it then calls

// ---- errors -------------------------------------------------------------------------------------

static char error_text[256];

int shared_error(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
  return -1;
}

const char *shared_error_text(void)
{
  return error_text;
}

// Why memory to share can't be had, by errno.
static const char *shared_memory_reason(void)
{
  return errno == EFBIG ? "a file may not be so large, and shared memory counts as one (ulimit -f)"
                        : strerror(errno);
}

// ---- waiting ------------------------------------------------------------------------------------

static bool has_come(_Atomic uint32_t *word, uint32_t number)
{
  return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - number) >= 0;
}

static void rest(void)
{
#ifdef __SSE2__
  _mm_pause();
#endif
}

// Until the word is at least this number: first it looks, then it sleeps.
void shared_wait_for(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t number)
{
  for (int i = 0; i < spins; i++) {
    if (has_come(word, number)) return;
    rest();
  }
  sched_yield();
  if (has_come(word, number)) return;
  atomic_fetch_add(sleepers, 1);
  const struct timespec most = {0, 1000000};
  for (uint32_t now; (int32_t)((now = atomic_load(word)) - number) < 0;) {
    if (idle) idle();
    syscall(SYS_futex, word, FUTEX_WAIT, now, &most, NULL, 0);
  }
  atomic_fetch_sub(sleepers, 1);
}

static void wake(_Atomic uint32_t *word, _Atomic uint32_t *sleepers)
{
  if (atomic_load_explicit(sleepers, memory_order_relaxed) > 0)
    syscall(SYS_futex, word, FUTEX_WAKE, SHARED_RANKS, NULL, NULL, 0);
}

// No fence is between the two: a rank that falls asleep meanwhile looks again by itself.
static void tell(_Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t number)
{
  atomic_store_explicit(word, number, memory_order_release);
  wake(word, sleepers);
}

void shared_add(_Atomic uint32_t *word, _Atomic uint32_t *sleepers)
{
  atomic_fetch_add(word, 1);
  wake(word, sleepers);
}

struct mailbox *shared_box(struct shared_group *group, int member)
{
  struct mailbox *boxes = (struct mailbox *)(job->slot + (size_t)machine.n * GROUPS);
  return &boxes[group->ranks[member]];
}

static struct slot *slot_of(struct shared_group *group, int member)
{
  return &job->slot[group->index * machine.n + group->ranks[member]];
}

// ---- a collective -------------------------------------------------------------------------------

static struct posted *post_of(struct shared_group *group, int member)
{
  return &slot_of(group, member)->posted[group->calls % 2];
}

const struct posted *shared_post(struct shared_group *group, int member)
{
  return post_of(group, member);
}

char *shared_begin(struct shared_group *group, enum shared_call call, uint64_t size)
{
  group->calls++;
  group->announced = (struct announcement){.call = call, .is_here = true, .size = size};
  return post_of(group, group->me)->room;
}

static const char *name_of(uint32_t call)
{
  static const char *const names[] = {[SHARED_MEET] = "a wait for all",
                                      [SHARED_BCAST] = "MPI_Bcast",
                                      [SHARED_ALLREDUCE] = "MPI_Allreduce",
                                      [SHARED_REDUCE_SCATTER] = "MPI_Reduce_scatter",
                                      [SHARED_ALLGATHER] = "MPI_Allgather",
                                      [SHARED_ALLTOALL] = "MPI_Alltoall",
                                      [SHARED_SENDRECV] = "MPI_Sendrecv",
                                      [SHARED_GATHER_SEGMENTS] = "gather_segments",
                                      [SHARED_REDUCE_SEGMENTS] = "reduce_segments"};
  return names[call & 0xff];
}

int shared_rank_of(const struct shared_group *group, int member)
{
  return job->rank[group->ranks[member]];
}

int shared_number_of(const struct shared_group *group, int member)
{
  return group->ranks[member];
}

int shared_meet(struct shared_group *group)
{
  struct posted *post = post_of(group, group->me);
  const struct announcement *mine = &group->announced;
  post->announced = *mine;
  tell(&post->arrived, &post->sleepers, group->calls);
  for (int m = 0; m < group->n; m++) {
    if (m == group->me) continue;
    post = post_of(group, m);
    shared_wait_for(&post->arrived, &post->sleepers, group->calls);
    if (post->announced.call != mine->call || post->announced.size != mine->size)
      return shared_error("rank %d is in %s (%llu), and this one in %s (%llu)",
                          shared_rank_of(group, m), name_of(post->announced.call),
                          (unsigned long long)post->announced.size, name_of(mine->call),
                          (unsigned long long)mine->size);
  }
  return 0;
}

void shared_wait(struct shared_group *group)
{
  struct slot *mine = slot_of(group, group->me);
  group->partings++;
  tell(&mine->parted, &mine->sleepers, group->partings);
  for (int m = 0; m < group->n; m++) {
    if (m == group->me) continue;
    struct slot *theirs = slot_of(group, m);
    shared_wait_for(&theirs->parted, &theirs->sleepers, group->partings);
  }
}

void shared_leave(struct shared_group *group)
{
  bool all_here = true;
  for (int m = 0; m < group->n; m++) all_here &= post_of(group, m)->announced.is_here != 0;
  if (!all_here) shared_wait(group);
}

// ---- memory -------------------------------------------------------------------------------------

static char *blocks[SHARED_RANKS][BLOCKS]; // as they are mapped here
static int own_blocks;

// Aligned to huge pages: the others' mappings can have them then.
static char *map_file(int file, size_t bytes, int protection)
{
  char *room = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return NULL;
  char *at = room + (HUGE_PAGE - (uintptr_t)room % HUGE_PAGE) % HUGE_PAGE;
  if (mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) at = NULL;
  return at;
}

// A new block of this rank's, of zeros. NULL: it cannot be had.
static char *add_block(size_t bytes)
{
  if (own_blocks == BLOCKS) return NULL;
  const int file = memfd_create("tpgen-memory", MFD_CLOEXEC);
  char *at = NULL;
  if (file >= 0 && fallocate(file, 0, 0, (off_t)bytes) == 0)
    at = map_file(file, bytes, PROT_READ | PROT_WRITE);
  if (!at) {
    const int error = errno;
    if (file >= 0) close(file);
    errno = error;
    return NULL;
  }
#ifdef MADV_COLLAPSE
  if (bytes >= HUGE_PAGE) // a hint; it may be refused
    madvise(at, bytes / HUGE_PAGE * HUGE_PAGE, MADV_COLLAPSE);
#endif
  job->block[machine.me][own_blocks] = (struct block){file, bytes};
  blocks[machine.me][own_blocks++] = at;
  return at;
}

static location find(const char *bytes)
{
  for (int b = 0; b < own_blocks; b++) {
    const uintptr_t offset = (uintptr_t)bytes - (uintptr_t)blocks[machine.me][b];
    if (offset < job->block[machine.me][b].bytes)
      return (location)(b + 1) << BLOCK_SHIFT | (location)offset;
  }
  return 0;
}

location shared_place(const void *bytes, size_t n, char **copy)
{
  static char *room;
  static size_t has;
  location at = find(bytes);
  if (at || n == 0) {
    if (copy) *copy = (char *)(uintptr_t)bytes;
    return at;
  }
  if (has < n) {
    const size_t twice = 2 * has;
    has = ((n > twice ? n : twice) + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
    room = add_block(has);
    if (!room) fail_call(__FILE__, __LINE__, "memfd_create", shared_memory_reason());
  }
  memcpy(room, bytes, n);
  if (copy) *copy = room;
  return find(room);
}

void shared_operand(struct shared_group *group, const void *in, size_t bytes)
{
  group->announced.is_here = bytes <= SHARED_ROOM;
  if (!group->announced.is_here)
    group->announced.in = shared_place(in, bytes, NULL);
  else if (bytes > 0)
    shared_copy(post_of(group, group->me)->room, in, bytes, true);
}

// The memory of another rank, which this one only reads.
static char *open_block(int of, int b)
{
  char path[64];
  const struct block *block = &job->block[of][b];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", job->process[of], block->file);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  char *at = file < 0 ? NULL : map_file(file, block->bytes, PROT_READ);
  if (file >= 0) close(file);
  return at;
}

const char *shared_at(struct shared_group *group, int member, location place)
{
  const int of = group->ranks[member], b = (int)(place >> BLOCK_SHIFT) - 1;
  if (!place) return NULL;
  if (!blocks[of][b]) blocks[of][b] = open_block(of, b);
  if (!blocks[of][b]) {
    sleep(1); // that rank may have been killed just now: then run.sh ends this one, too
    fail_call(__FILE__, __LINE__, "open", "the memory of another rank cannot be read");
  }
  return blocks[of][b] + (place & (((location)1 << BLOCK_SHIFT) - 1));
}

const char *shared_read(struct shared_group *group, int member)
{
  const struct posted *post = post_of(group, member);
  return post->announced.is_here ? post->room : shared_at(group, member, post->announced.in);
}

// A program with one rank shares nothing.
void *target_allocate(size_t bytes, struct failure *why)
{
  void *memory = machine.n == 1 ? own_memory(bytes) : add_block(bytes ? bytes : 1);
  if (!memory) {
    if (machine.n == 1) errno = ENOMEM;
    failed(why, "no memory for the program's %zu bytes: %s", bytes, shared_memory_reason());
  }
  return memory;
}

void target_free(void *memory)
{
  if (machine.n == 1) free(memory); // shared memory goes with the process
}

// ---- the start and the end ----------------------------------------------------------------------

static size_t job_bytes(int ranks)
{
  return sizeof *job + (size_t)ranks * (GROUPS * sizeof *job->slot + sizeof(struct mailbox));
}

// Only this job has the name of its first rank's file.
static const char *file_name(const char *secret, char name[128])
{
  snprintf(name, 128, "tpgen-job-%.100s", secret);
  return name;
}

// In the process of the first rank. -1: it is not there, or not yet.
static int find_job(const struct shared_ranks *ranks, size_t bytes)
{
  char path[64], link[512], target[512], sought[160], name[128];
  int found = -1;
  struct stat about;
  snprintf(path, sizeof path, "/proc/%d/fd", ranks->first);
  snprintf(sought, sizeof sought, "/memfd:%s ", file_name(ranks->job, name));
  DIR *files = opendir(path);
  for (struct dirent *d; files && found < 0 && (d = readdir(files));) {
    snprintf(link, sizeof link, "%s/%s", path, d->d_name);
    const ssize_t n = readlink(link, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    if (strncmp(target, sought, strlen(sought)) == 0) found = open(link, O_RDWR | O_CLOEXEC);
  }
  if (files) closedir(files);
  if (found < 0 || (fstat(found, &about) == 0 && (size_t)about.st_size == bytes)) return found;
  close(found);
  return -1;
}

// The file of the slots: the first rank makes it, and the others wait for it. -1: it cannot be had,
// or one rank needs none.
static int open_job(const struct shared_ranks *ranks, size_t bytes)
{
  char name[128];
  if (ranks->n == 1) return -1; // nobody looks for it
  if (ranks->me == 0) {
    const int file = memfd_create(file_name(ranks->job, name), MFD_CLOEXEC);
    return file >= 0 && ftruncate(file, (off_t)bytes) == 0 ? file : -1;
  }
  for (;;) {
    const int file = find_job(ranks, bytes);
    if (file >= 0) return file;
    nanosleep(&(struct timespec){0, 500000}, NULL);
  }
}

// If there is a core for each rank, they look for as long as most waits take, some 50 us.
static void choose_spins(void)
{
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int r = 0; r < machine.n; r++) CPU_OR(&all, &all, &job->cores[r]);
  spins = CPU_COUNT(&all) >= machine.n ? 2000 : 0;
}

int shared_start(const struct shared_ranks *ranks)
{
  if (ranks->n < 1 || ranks->n > SHARED_RANKS || ranks->me < 0 || ranks->me >= ranks->n)
    return shared_error("a machine can have %d ranks at most", SHARED_RANKS);
  machine.n = ranks->n;
  machine.me = ranks->me;
  for (int r = 0; r < machine.n; r++) machine.ranks[r] = r;
  const size_t bytes = job_bytes(machine.n);
  const int file = open_job(ranks, bytes);
  if (file < 0 && machine.n > 1)
    return shared_error("no shared memory: %s", shared_memory_reason());
  job = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file,
             0);
  if (job == MAP_FAILED) return shared_error("no memory to share");
  idle = ranks->idle;
  job->process[machine.me] = (int)getpid();
  job->rank[machine.me] = ranks->rank;
  sched_getaffinity(0, sizeof job->cores[machine.me], &job->cores[machine.me]);
  const int error = shared_barrier(&machine);
  choose_spins();
  return error;
}

int shared_barrier(struct shared_group *group)
{
  shared_begin(group, SHARED_MEET, 0);
  return shared_meet(group);
}

// ---- groups -------------------------------------------------------------------------------------

int shared_members(const struct shared_group *group)
{
  return group->n;
}

int shared_place_in(const struct shared_group *group)
{
  return group->me;
}

struct shared_group *shared_make_group(int n, const int *ranks)
{
  const int index = groups++;
  struct shared_group *made = index < GROUPS ? calloc(1, sizeof *made) : NULL;
  if (!made) {
    shared_error("no room for more than %d groups", GROUPS);
    return NULL;
  }
  made->index = index;
  made->n = n;
  for (int i = 0; i < n; i++) {
    made->ranks[i] = ranks[i];
    if (ranks[i] == machine.me) made->me = i;
  }
  return made;
}

void shared_free_group(struct shared_group *group)
{
  free(group);
}
