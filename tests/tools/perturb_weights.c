/* perturb_weights FROM TO SEED [bfloat16]: copies a safetensors file of float32 tensors, and
   changes every value by at most a rounding error: two units in the last place, or half a unit in
   the last place of bfloat16. */
#include "splitmix64.h"

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

/* -1 ... 1. */
static double any(uint64_t *state)
{
  return (double)(splitmix64(state) >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

int main(int argc, char **argv)
{
  bool narrow = argc == 5 && !strcmp(argv[4], "bfloat16");
  if (argc != 4 && !narrow) {
    fprintf(stderr, "usage: perturb_weights FROM TO SEED [bfloat16]\n");
    return 2;
  }
  FILE *from = fopen(argv[1], "rb"), *to = fopen(argv[2], "wb");
  if (!from) die(argv[1]);
  if (!to) die(argv[2]);
  /* Eight bytes give the length of the header. Numbers follow the header. */
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
