/* read_loop MIB: how many GB a second the threads read from memory, at best; of one thread in its
   processor seconds. For decode.sh and weights.sh. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return omp_get_max_threads() > 1 ? omp_get_wtime() : (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
  enum { HUGE = 2 << 20, ROUNDS = 10 };
  const size_t bytes = (size_t)(argc > 1 ? atol(argv[1]) : 1024) << 20;
  long *memory = aligned_alloc(HUGE, bytes);
  if (!memory || bytes == 0) return 1;
  madvise(memory, bytes, MADV_HUGEPAGE); /* as the program's memory */
  memset(memory, 1, bytes);
  double best = 0;
  volatile long seen;
  for (int i = 0; i < ROUNDS; i++) {
    const double begin = seconds();
    long sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (size_t k = 0; k < bytes / sizeof(long); k++) sum += memory[k];
    const double rate = 1e-9 * (double)bytes / (seconds() - begin);
    seen = sum;
    if (rate > best) best = rate;
  }
  (void)seen;
  printf("%.2f\n", best);
  free(memory);
  return 0;
}
