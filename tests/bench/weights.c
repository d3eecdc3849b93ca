/* weights ROWS N K TYPE: a product of ROWS rows with N x K stored weights on this thread, and how
   many GB of weights that is a second; processor seconds, the best of some. TYPE: bfloat16 or int8.
   For weights.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "cpu/kernels/weights.h"

static double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
  enum { HUGE = 2 << 20, TIMES = 10 };
  if (argc < 5) return 2;
  const long rows = atol(argv[1]), n = atol(argv[2]), k = atol(argv[3]);
  const bool int8 = strcmp(argv[4], "int8") == 0;
  const size_t numbers = (size_t)(n * k), blocks = numbers / BLOCK_NUMBERS;
  const size_t bytes = int8 ? blocks * sizeof(struct weight_block) : numbers * sizeof(bf16);
  float *x = calloc((size_t)(rows * k), sizeof *x), *out = calloc((size_t)(rows * n), sizeof *out);
  void *w = aligned_alloc(HUGE, (bytes + HUGE - 1) / HUGE * HUGE);
  if (!x || !out || !w) return 1;
  madvise(w, bytes, MADV_HUGEPAGE); /* as the program's memory */
  for (long i = 0; i < rows * k; i++) x[i] = (float)(i % 37) / 64;
  float number[BLOCK_NUMBERS];
  for (size_t i = 0; i < numbers; i++) {
    number[i % BLOCK_NUMBERS] = (float)(i % 53) / 64;
    if (!int8)
      ((bf16 *)w)[i] = float_to_bf16(number[i % BLOCK_NUMBERS]);
    else if (i % BLOCK_NUMBERS == BLOCK_NUMBERS - 1)
      weight_block_pack((struct weight_block *)w + i / BLOCK_NUMBERS, number);
  }
  double best = 0;
  for (int i = 0; i < TIMES; i++) {
    const double begin = seconds();
    if (int8)
      linear_of_int8(out, x, w, rows, n, k / BLOCK_NUMBERS);
    else
      linear_of_bf16(out, x, w, rows, n, k);
    const double now = seconds() - begin;
    if (i == 0 || now < best) best = now;
  }
  printf("%-8s %3ld rows, %5ld x %4ld: %8.3f ms, %6.2f GB/s\n", argv[4], rows, n, k, 1e3 * best,
         1e-9 * (double)bytes / best);
  free(x);
  free(out);
  free(w);
  return 0;
}
