/* read_loop MIB: how many GB a second the threads read from memory, at best; for decode.sh. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
    const double begin = omp_get_wtime();
    long sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (size_t k = 0; k < bytes / sizeof(long); k++) sum += memory[k];
    const double rate = 1e-9 * (double)bytes / (omp_get_wtime() - begin);
    seen = sum;
    if (rate > best) best = rate;
  }
  (void)seen;
  printf("%.2f\n", best);
  free(memory);
  return 0;
}
