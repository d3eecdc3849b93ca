/* A file of tensors (safetensors), for the tests' own programs: read whole, and not by the
   runtime's code, which it is there to test.  */
#ifndef TENSOR_FILE_H
#define TENSOR_FILE_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct file {
  const char *path;
  json_t *header;
  const unsigned char *data;
  size_t size;
};

static _Noreturn void die(const char *path, const char *what)
{
  fprintf(stderr, "%s: %s\n", path, what);
  exit(1);
}

static struct file load(const char *path)
{
  FILE *f = fopen(path, "rb");
  if (!f) die(path, "cannot be opened");
  fseek(f, 0, SEEK_END);
  size_t size = (size_t)ftell(f);
  rewind(f);
  unsigned char *bytes = malloc(size + 1);
  if (!bytes || fread(bytes, 1, size, f) != size || size < 8) die(path, "cannot be read");
  fclose(f);
  uint64_t header = 0;
  for (int i = 0; i < 8; i++) header |= (uint64_t)bytes[i] << (8 * i);
  if (header > size - 8) die(path, "its header is longer than the file");
  json_t *json = json_loadb((char *)bytes + 8, header, JSON_REJECT_DUPLICATES, NULL);
  if (!json) die(path, "its header is no JSON");
  json_object_del(json, "__metadata__");
  return (struct file){path, json, bytes + 8 + header, size - 8 - header};
}

/* A tensor's elements; of which type, as the files say it. */
struct elements {
  const char *dtype;
  const unsigned char *bytes;
  size_t n;
};

static size_t size_of(const char *dtype)
{
  static const struct {
    const char *dtype;
    size_t size;
  } known[] = {{"F32", 4}, {"BF16", 2}, {"I32", 4}, {"I64", 8}, {"BOOL", 1}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i].dtype, dtype)) return known[i].size;
  return 0;
}

static struct elements elements_of(const struct file *f, json_t *tensor)
{
  json_int_t first, end;
  struct elements e;
  if (json_unpack(tensor, "{s:s, s:[I, I]}", "dtype", &e.dtype, "data_offsets", &first, &end) ||
      !size_of(e.dtype) || first < 0 || end < first || (size_t)end > f->size)
    die(f->path, "a tensor of no known type, or outside the file");
  e.bytes = f->data + first;
  e.n = (size_t)(end - first) / size_of(e.dtype);
  return e;
}

static inline double number(const struct elements *e, size_t i)
{
  float f;
  uint32_t f32;
  int32_t i32;
  int64_t i64;
  switch (*e->dtype) {
  case 'F':
    return memcpy(&f, e->bytes + 4 * i, 4), (double)f;
  case 'B':
    if (size_of(e->dtype) == 1) return e->bytes[i];
    f32 = (uint32_t)e->bytes[2 * i] << 16 | (uint32_t)e->bytes[2 * i + 1] << 24;
    return memcpy(&f, &f32, 4), (double)f;
  default:
    if (size_of(e->dtype) == 4) return memcpy(&i32, e->bytes + 4 * i, 4), i32;
    return memcpy(&i64, e->bytes + 8 * i, 8), (double)i64;
  }
}

#endif
