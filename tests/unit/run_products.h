/* The end of each program that test_matmul.c writes. Before it stand `struct memory`, `m`, `run`
   and where the operands and the results of the products lie in memory. The program takes two
   files: it reads the operands' bytes from the first, runs, and writes the results' to the
   second. All else in memory begins as NaN. */
#include <stdio.h>
#include <stdlib.h>

static struct memory image;

#ifdef TPGEN_CUDA
cudaStream_t stream;
bool profiling;
void note_work(const char *, cudaStream_t)
{
}
void *rank_memory;
static const struct rank this_rank = {};
const struct rank *rank = &this_rank;

void fail_call(const char *file, int line, const char *call, const char *why)
{
  fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, why ? why : "failed");
  exit(1);
}

static void run_on_image(void)
{
  CHECK_CUDA(cudaMalloc((void **)&m, sizeof image));
  CHECK_CUDA(cudaStreamCreate(&stream));
  rank_memory = m;
  prepare_products();
  CHECK_CUDA(cudaMemcpy(m, &image, sizeof image, cudaMemcpyHostToDevice));
  run();
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaMemcpy(&image, m, sizeof image, cudaMemcpyDeviceToHost));
  forget_products();
}
#else
static void run_on_image(void)
{
  m = &image;
  run();
}
#endif

int main(int argc, char **argv)
{
  memset((void *)&image, 0xff, sizeof image);
  FILE *in = argc == 3 ? fopen(argv[1], "rb") : NULL;
  for (size_t i = 0; in && i < sizeof operands / sizeof *operands; i++)
    if (fread((char *)&image + operands[i].at, 1, operands[i].n, in) != operands[i].n) return 1;
  if (!in || fclose(in)) return 1;
  run_on_image();
  FILE *out = fopen(argv[2], "wb");
  for (size_t i = 0; out && i < sizeof results / sizeof *results; i++)
    if (fwrite((char *)&image + results[i].at, 1, results[i].n, out) != results[i].n) return 1;
  return !out || fclose(out);
}
