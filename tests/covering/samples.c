/* samples DIRECTORY BATCH: data sets for tests/covering/plan.lua with batches of that size, as
   safetensors: labels, ignored and mse, each with samples for two batches and a half, and for one
   and a half more for validations. Some samples of `ignored` have no label that counts, and some
   have all. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 11, LENGTH = 8 };

static uint64_t state = 7;

static uint64_t next(void)
{
  state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = (state ^ (state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static void write_file(const char *directory, const char *kind, const char *of, int samples)
{
  char path[4096], header[1024];
  int is_mse = !strcmp(kind, "mse"), ignores = !strcmp(kind, "ignored");
  size_t inputs = (size_t)samples * LENGTH * 8,
         targets = is_mse ? (size_t)samples * LENGTH * WORDS * 4 : inputs;
  snprintf(path, sizeof path, "%s/%s.%s.safetensors", directory, kind, of);
  FILE *f = fopen(path, "wb");
  if (!f) exit(1);
  int n = snprintf(header, sizeof header,
                   "{\"input\":{\"dtype\":\"I64\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]},"
                   "\"target\":{\"dtype\":\"%s\",\"shape\":[%d,%d%s],\"data_offsets\":[%zu,%zu]}}",
                   samples, LENGTH, inputs, is_mse ? "F32" : "I64", samples, LENGTH,
                   is_mse ? ",11" : "", inputs, inputs + targets);
  uint64_t length = (uint64_t)(n + 7) / 8 * 8;
  fwrite(&length, 8, 1, f);
  fprintf(f, "%-*s", (int)length, header);
  for (int i = 0; i < samples * LENGTH; i++) {
    int64_t word = (int64_t)(next() % WORDS);
    fwrite(&word, sizeof word, 1, f);
  }
  for (int s = 0; s < samples; s++)
    for (int i = 0; i < LENGTH * (is_mse ? WORDS : 1); i++) {
      float x = (float)(next() % 2001) / 1000 - 1;
      int64_t word = (int64_t)(next() % WORDS);
      if (ignores && (s % 5 == 3 || (s % 5 != 1 && next() % 2))) word = -100;
      if (is_mse)
        fwrite(&x, sizeof x, 1, f);
      else
        fwrite(&word, sizeof word, 1, f);
    }
  if (fclose(f)) exit(1);
}

int main(int argc, char **argv)
{
  static const char *const kinds[] = {"labels", "ignored", "mse"};
  int batch = argc == 3 ? atoi(argv[2]) : 0;
  if (batch < 1) return 2;
  for (int k = 0; k < 3; k++) {
    write_file(argv[1], kinds[k], "train", batch * 2 + batch * 7 / 12);
    write_file(argv[1], kinds[k], "valid", batch + batch * 5 / 12);
  }
  return 0;
}
