/* The time of an all-reduce of floats over two ranks or more, in place in memory as a program's is:
   over shared memory with -DTPGEN_SHARED, else by MPI. Rank 0 prints a line for each size: bytes,
   and microseconds, the least average of many short series: a busy machine disturbs most of them.
 */
#include "base/program.h"
#include "base/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 1 << 20 };

/* In the runtime they tell the ranks' watchdogs. */
const struct place *pending;
int pending_microbatch;
struct waits rank_waits;
unsigned long collectives;

void fail_call(const char *file, int line, const char *call, const char *why)
{
  fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, why ? why : "");
  exit(EXIT_FAILURE);
}

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void all_reduce(float *x, int n)
{
  CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
}

static double least_time(float *x, int n)
{
  const int calls = n < 65536 ? 20 : 5;
  double least = 1e9;
  for (int series = 0; series < SERIES; series++) {
    for (int i = 0; i < n; i++) x[i] = 0;
    all_reduce(x, n);
    const double begin = now();
    for (int i = 0; i < calls; i++) all_reduce(x, n);
    const double time = (now() - begin) / calls;
    if (time < least) least = time;
  }
  return least;
}

int main(int argc, char **argv)
{
  static const int sizes[] = {4, 4096, 65536, 1 << 20};
  struct failure why;
  int level, place;
  CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &place));
  float *x = target_allocate(MOST, &why);
  if (!x) return EXIT_FAILURE;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const double time = least_time(x, sizes[i] / 4);
    if (place == 0) printf("%d %.3f\n", sizes[i], time);
  }
  return MPI_Finalize();
}
