/* perturb_weights FROM TO SEED [bfloat16]: a safetensors file of float32 tensors, with every value
   up to two units in the last place away from what it was, or half of a bfloat16's unit: as far as
   rounding could have moved it.  */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void die(const char *path)
{
  perror(path);
  exit(1);
}

/* -1 ... 1, by splitmix64. */
static double any(uint64_t *state)
{
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (double)((z ^ z >> 31) >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

int main(int argc, char **argv)
{
  bool narrow = argc == 5 && !strcmp(argv[4], "bfloat16");
  if (argc != 4 && !narrow) {
    fprintf(stderr, "usage: perturb FROM TO SEED [bfloat16]\n");
    return 2;
  }
  FILE *from = fopen(argv[1], "rb"), *to = fopen(argv[2], "wb");
  if (!from) die(argv[1]);
  if (!to) die(argv[2]);
  /* Eight bytes say how long the header is; what follows it are numbers. */
  unsigned char length[8];
  size_t header = 8;
  if (fread(length, 1, 8, from) != 8) die(argv[1]);
  for (int i = 0; i < 8; i++) header += (size_t)length[i] << (8 * i);
  rewind(from);
  for (; header > 0; header--) fputc(fgetc(from), to);
  uint64_t state = strtoull(argv[3], NULL, 10);
  float x;
  while (fread(&x, sizeof x, 1, from) == 1) {
    x = (float)(x * (1 + (narrow ? 0x1p-8 : 0x1p-22) * any(&state)));
    fwrite(&x, sizeof x, 1, to);
  }
  if (ferror(from)) die(argv[1]);
  if (fclose(to)) die(argv[2]);
  return 0;
}
