/* The collectives over shared memory (runtime/cpu_shared*.c) against plain loops: shared_memory
   RANKS forks so many ranks. Each collective has operands of several types and sizes, in the memory
   that target_allocate gives and outside of it, on all ranks and on groups of some; ranks come late
   at random. Sums must have the bits of a sum in the order of the group's members. Ranks send each
   other values, and receive them in the order of their tags. At last two ranks call different
   collectives, which must be an error on both. */
#include "cpu/shared_memory/shared.h"
#include "cpu/kernels/segments.h"
#include "cpu/stages.h"
#include "base/program.h"
#include "base/target.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 100000, BYTES = 16 << 20 };

static int place, ranks; /* in the group */
static MPI_Comm group;
static char *in, *out, *expected;
static unsigned salt;

void fail_call(const char *file, int line, const char *call, const char *why)
{
  fprintf(stderr, "%s:%d: %s failed: %s\n", file, line, call, why ? why : "");
  _exit(EXIT_FAILURE);
}

/* In the runtime they tell the ranks' watchdogs. */
const struct place *pending;
int pending_microbatch;
struct waits rank_waits;
unsigned long collectives;

static void check(bool ok, const char *what, long n)
{
  if (ok) return;
  fprintf(stderr, "rank %d of %d: %s of %ld: other results\n", place, ranks, what, n);
  _exit(EXIT_FAILURE);
}

/* Element i of a member's operand. Sums of such floats depend on their order. */
static double value(int member, long i, MPI_Datatype type)
{
  const unsigned x = ((unsigned)i * 2654435761U + (unsigned)member * 40503U + salt) >> 8;
  return type == MPI_FLOAT || type == MPI_DOUBLE ? (double)(x % 10007) / 7 - 700 : x % 60;
}

#define TYPES(X)                                                                                   \
  X(MPI_FLOAT, float)                                                                              \
  X(MPI_DOUBLE, double)                                                                            \
  X(MPI_INT32_T, int32_t) X(MPI_INT64_T, int64_t) X(MPI_UNSIGNED_CHAR, unsigned char)

static void put(char *to, long at, double x, MPI_Datatype type)
{
#define PUT(name, c)                                                                               \
  if (type == name) ((c *)(void *)to)[at] = (c)x;
  TYPES(PUT)
}

static void fill(char *to, long n, int member, MPI_Datatype type)
{
  for (long i = 0; i < n; i++) put(to, i, value(member, i, type), type);
}

/* The sum of all members' elements from `first` on, in their order. */
static void sum(char *to, long first, long n, MPI_Datatype type)
{
#define SUM(name, c)                                                                               \
  if (type == name)                                                                                \
    for (long i = 0; i < n; i++) {                                                                 \
      c so_far = (c)value(0, first + i, type);                                                     \
      for (int m = 1; m < ranks; m++) so_far = (c)(so_far + (c)value(m, first + i, type));         \
      ((c *)(void *)to)[i] = so_far;                                                               \
    }
  TYPES(SUM)
}

static void next(void)
{
  salt = salt * 1103515245U + 12345U;
  const unsigned late = (salt >> 4) % 7 + (unsigned)place;
  if (late % 5 == 0) usleep(late * 100);
}

static bool same(const char *got, size_t bytes)
{
  return memcmp(got, expected, bytes) == 0;
}

static void reduce(int n, MPI_Datatype type)
{
  const size_t each = shared_size(type), bytes = (size_t)n * each;
  next();
  fill(in, n, place, type);
  sum(expected, 0, n, type);
  CHECK_MPI(MPI_Allreduce(in, out, n, type, MPI_SUM, group));
  check(same(out, bytes), "all-reduce", n);
  next();
  fill(in, n, place, type);
  sum(expected, 0, n, type);
  CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, in, n, type, MPI_SUM, group));
  check(same(in, bytes), "all-reduce in place", n);
}

static void scatter(int n, MPI_Datatype type)
{
  const size_t bytes = (size_t)n * shared_size(type);
  int counts[SHARED_RANKS], first = 0;
  for (int again = 0; again < 2; again++) {
    next();
    fill(in, (long)n * ranks, place, type);
    sum(expected, (long)n * place, n, type);
    if (again)
      CHECK_MPI(reduce_scatter(MPI_IN_PLACE, in, n, type, MPI_SUM, group));
    else
      CHECK_MPI(MPI_Reduce_scatter_block(in, out, n, type, MPI_SUM, group));
    check(same(again ? in : out, bytes), "reduce-scatter", n);
  }
  for (int m = 0; m < ranks; m++) counts[m] = n / (m + 1);
  for (int m = 0; m < place; m++) first += counts[m];
  next();
  fill(in, (long)n * ranks, place, type);
  sum(expected, first, counts[place], type);
  CHECK_MPI(MPI_Reduce_scatter(in, out, counts, type, MPI_SUM, group));
  check(same(out, (size_t)counts[place] * shared_size(type)), "uneven reduce-scatter", n);
}

static void gather(int n, MPI_Datatype type)
{
  const size_t each = shared_size(type);
  int counts[SHARED_RANKS], first[SHARED_RANKS], all = 0;
  for (int even = 0; even < 2; even++) {
    all = 0;
    next();
    for (int m = 0; m < ranks; m++) {
      counts[m] = even ? n : n / (m + 1);
      first[m] = all;
      fill(expected + (size_t)all * each, counts[m], m, type);
      all += counts[m];
    }
    fill(in, counts[place], place, type);
    if (even)
      CHECK_MPI(MPI_Allgather(in, n, type, out, n, type, group));
    else
      CHECK_MPI(MPI_Allgatherv(in, counts[place], type, out, counts, first, type, group));
    check(same(out, (size_t)all * each), "all-gather", n);
  }
  fill(out + (size_t)place * (size_t)n * each, n, place, type);
  CHECK_MPI(MPI_Allgather(MPI_IN_PLACE, n, type, out, n, type, group));
  check(same(out, (size_t)all * each), "all-gather in place", n);
}

/* A member has (its place + the other's) % 3 times n for another. */
static int between(int from, int to, int n)
{
  return (from + to) % 3 * n;
}

static void exchange(int n, MPI_Datatype type)
{
  const size_t each = shared_size(type);
  int give[SHARED_RANKS], give_at[SHARED_RANKS], get[SHARED_RANKS], get_at[SHARED_RANKS];
  int given = 0, got = 0;
  next();
  for (int m = 0; m < ranks; m++) {
    give[m] = between(place, m, n), get[m] = between(m, place, n);
    give_at[m] = given, get_at[m] = got;
    given += give[m], got += get[m];
    long theirs = 0;
    for (int k = 0; k < place; k++) theirs += between(m, k, n);
    for (long i = 0; i < get[m]; i++)
      put(expected, get_at[m] + i, value(m, theirs + i, type), type);
  }
  fill(in, given, place, type);
  CHECK_MPI(MPI_Alltoallv(in, give, give_at, type, out, get, get_at, type, group));
  check(same(out, (size_t)got * each), "uneven all-to-all", n);
  memset(out, 0, (size_t)got * each);
  CHECK_MPI(alltoall_rows(in, give, give_at, out, get, get_at, (long)each, group));
  check(same(out, (size_t)got * each), "all-to-all of rows", n);

  next();
  for (int m = 0; m < ranks; m++)
    for (long i = 0; i < n; i++)
      put(expected, (long)m * n + i, value(m, (long)place * n + i, type), type);
  fill(in, (long)n * ranks, place, type);
  CHECK_MPI(MPI_Alltoall(in, n, type, out, n, type, group));
  check(same(out, (size_t)n * (size_t)ranks * each), "all-to-all", n);

  /* To the next one; the last one has none. */
  next();
  const int to = place + 1 < ranks ? place + 1 : MPI_PROC_NULL;
  const int from = place > 0 ? place - 1 : MPI_PROC_NULL;
  fill(in, n, place, type);
  fill(expected, n, from, type);
  CHECK_MPI(MPI_Sendrecv(in, n, type, to, 0, out, n, type, from, 0, group, MPI_STATUS_IGNORE));
  check(from == MPI_PROC_NULL || same(out, (size_t)n * each), "send to the next one", n);

  next();
  fill(out, n, place, type);
  fill(expected, n, ranks - 1, type);
  CHECK_MPI(MPI_Bcast(out, n, type, ranks - 1, group));
  check(same(out, (size_t)n * each), "broadcast", n);
}

/* Two values, of float and of bfloat16, whose rows are parts of the members', and their chunks. */
static void segments(long run)
{
  enum { ROWS = 3 };
  const long row = run * ranks, chunk = run * (ROWS + 1);
  float *whole = (float *)(void *)in, *chunks = (float *)(void *)out;
  bf16 *narrow = (bf16 *)(void *)(in + BYTES / 8);
  const struct segment list[] = {
      {whole, sizeof *whole, 0, ranks, ROWS, run, row},
      {narrow, sizeof *narrow, ROWS * run, ranks, 1, run, row},
  };
  next();
  for (long i = 0; i < ROWS * row; i++) whole[i] = (float)(i % 100 + place);
  for (long i = 0; i < row; i++) narrow[i] = float_to_bf16((float)(i % 50 + place));
  CHECK_MPI(reduce_segments(chunks + chunk, chunks, 2, list, MPI_FLOAT, MPI_SUM, group));
  const int others = ranks * (ranks - 1) / 2;
  for (long i = 0; i < chunk; i++) {
    const long of = i / run * row + place * run + i % run;
    const long x = i < ROWS * run ? of % 100 : (of - ROWS * row) % 50;
    check(chunks[i] == (float)(x * ranks + others), "segments that are reduced", run);
  }
  next();
  for (long i = 0; i < chunk; i++) chunks[i] = (float)(i % 50 + place);
  CHECK_MPI(gather_segments(chunks, chunks + chunk, 2, list, MPI_FLOAT, group));
  for (long i = 0; i < (ROWS + 1) * row; i++) {
    const long m = i % row / run, at = i / row * run + i % run;
    const float got = i < ROWS * row ? whole[i] : bf16_to_float(narrow[i - ROWS * row]);
    check(got == (float)(at % 50 + m), "segments that are gathered", run);
  }
}

static void add(void *from, void *to, int *n, MPI_Datatype *type)
{
  (void)type;
  for (int i = 0; i < *n; i++)
    ((uint16_t *)to)[i] = (uint16_t)(((uint16_t *)to)[i] * 3 + ((uint16_t *)from)[i]);
}

/* A sum that depends on its order. */
static void own_operation(int n)
{
  MPI_Op op;
  CHECK_MPI(MPI_Op_create(add, 1, &op));
  next();
  for (long i = 0; i < n; i++) {
    uint16_t so_far = (uint16_t)i;
    for (int m = 1; m < ranks; m++) so_far = (uint16_t)(so_far * 3 + (uint16_t)(i + m));
    ((uint16_t *)(void *)expected)[i] = so_far;
    ((uint16_t *)(void *)in)[i] = (uint16_t)(i + place);
  }
  CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_UINT16_T, op, group));
  check(same(in, (size_t)n * sizeof(uint16_t)), "an operation of the program's", n);
  MPI_Op_free(&op);
}

static void check_all(void)
{
  static const int sizes[] = {1, 15, 300, 1024, 1025, 9000, MOST};
  CHECK_MPI(MPI_Comm_rank(group, &place));
  CHECK_MPI(MPI_Comm_size(group, &ranks));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const int n = sizes[i];
#define ONE(name, c)                                                                               \
  if (n < MOST || name == MPI_FLOAT)                                                               \
    reduce(n, name), scatter(n, name), gather(n, name), exchange(n, name);
    TYPES(ONE)
    own_operation(n);
  }
}

/* All ranks, then those of even and of odd numbers in reverse order. */
static void check_groups(int rank_of_world)
{
  group = MPI_COMM_WORLD;
  check_all();
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, rank_of_world % 2, -rank_of_world, &group));
  salt = 1; /* as its other members' */
  check_all();
  CHECK_MPI(MPI_Comm_free(&group));
}

/* Each rank sends its neighbour two values a turn, of two tags, some turns ahead; that one takes
   the second value of a turn first. Then the same places have other values. */
static void send_all(void)
{
  enum { AHEAD = 300, ROUNDS = 9, N = 200 };
  const int to = (place + 1) % ranks, from = (place + ranks - 1) % ranks;
  for (int round = 0; round < ROUNDS; round++) {
    for (long turn = 0; turn < 2 * AHEAD; turn++) {
      char *at = in + turn * N * (long)sizeof(float);
      CHECK_MPI(await_sent(at));
      salt = (unsigned)(round * 1000 + turn);
      fill(at, N, place, MPI_FLOAT);
      CHECK_MPI(send_to(at, N, MPI_FLOAT, to, (int)turn % 2, group));
    }
    for (long turn = 0; turn < 2 * AHEAD; turn++) {
      const int tag = turn % 2 == 0;
      CHECK_MPI(receive_from(out, N, MPI_FLOAT, from, tag, group));
      salt = (unsigned)(round * 1000 + turn / 2 * 2 + tag);
      fill(expected, N, from, MPI_FLOAT);
      check(same(out, N * sizeof(float)), "what is sent", turn);
    }
    if (round % 4 == 3) CHECK_MPI(await_all_sent());
  }
  CHECK_MPI(await_all_sent());
}

static void run_rank(int r)
{
  struct failure why;
  int level;
  char *text = calloc(1, MPI_MAX_ERROR_STRING);
  CHECK_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level));
  expected = malloc(BYTES);
  in = target_allocate(2 * BYTES, &why);
  out = in + BYTES;
  if (!expected || !in || !text) _exit(EXIT_FAILURE);
  check_groups(r);
  group = MPI_COMM_WORLD;
  CHECK_MPI(MPI_Comm_rank(group, &place));
  CHECK_MPI(MPI_Comm_size(group, &ranks));
  for (long run = 1; run < 60000; run = run * 7 + 3) segments(run);
  send_all();
  in = malloc(BYTES);
  out = malloc(BYTES);
  if (!in || !out) _exit(EXIT_FAILURE);
  check_groups(r);
  group = MPI_COMM_WORLD;
  int n = 4, error;
  if (r == 0)
    error = MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, group);
  else
    error = MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, group);
  CHECK_MPI(MPI_Error_string(error, text, &n));
  check(error != MPI_SUCCESS && strstr(text, "MPI_All"), "an error, which is", error);
  exit(EXIT_SUCCESS);
}

int main(int argc, char **argv)
{
  const int all = argc > 1 ? atoi(argv[1]) : 2;
  char text[16];
  int status;
  setenv("WORLD_SIZE", argc > 1 ? argv[1] : "2", 1);
  for (int r = 0; r < all; r++) {
    snprintf(text, sizeof text, "%d", r);
    setenv("RANK", text, 1);
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      run_rank(r);
    }
    snprintf(text, sizeof text, "%d", (int)pid);
    if (r == 0) setenv("TPGEN_RANK0", text, 1);
  }
  for (int r = 0; r < all; r++)
    if (wait(&status) > 0 && status) return EXIT_FAILURE; /* the system ends the others */
  return EXIT_SUCCESS;
}
