// SPDX-License-Identifier: MIT
// The header of a .npy file: "\x93NUMPY", a version, a length, and a literal of Python's:
//   {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }
#include "formats/npy.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/open_input.h"

enum { MAGIC = 6, LONGEST = 1 << 16, MOST_DIMS = 32 };

static const struct {
  const char *descr, *dtype;
} types[] = {
    {"|b1", "BOOL"}, {"|u1", "U8"},  {"|i1", "I8"},  {"<u2", "U16"}, {"<i2", "I16"}, {"<u4", "U32"},
    {"<i4", "I32"},  {"<u8", "U64"}, {"<i8", "I64"}, {"<f2", "F16"}, {"<f4", "F32"}, {"<f8", "F64"},
};

bool npy_is_named(const char *path)
{
  const size_t length = strlen(path);
  return length > 4 && strcmp(path + length - 4, ".npy") == 0;
}

static bool not_npy(const struct safetensors *file, struct failure *why)
{
  return failed(why, "%s: not a .npy file, or one of a version that is not known", file->path);
}

static bool read_at(const struct safetensors *file, uint64_t at, void *to, size_t count,
                    struct failure *why)
{
  return pread(file->fd, to, count, (off_t)at) == (ssize_t)count || not_npy(file, why);
}

// The text after "'key':" and blanks, or NULL.
static const char *value_of(const char *text, const char *key)
{
  const char *at = strstr(text, key);
  if (!at) return NULL;
  at += strlen(key);
  while (*at == ' ') at++;
  return at;
}

static bool read_dtype(const struct safetensors *file, struct entry *e, const char *text,
                       struct failure *why)
{
  const char *at = value_of(text, "'descr':");
  if (!at || *at != '\'')
    return failed(why, "%s: its elements are records, which no input is", file->path);
  const size_t length = strcspn(at + 1, "'");
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strlen(types[i].descr) == length && strncmp(at + 1, types[i].descr, length) == 0)
      e->dtype = types[i].dtype;
  if (e->dtype) return true;
  return failed(why,
                "%s: its elements are of NumPy's type '%.*s'; whole numbers, bools and floats are "
                "read, little-endian",
                file->path, (int)(length < 20 ? length : 20), at + 1);
}

// "(60000, 28, 28)", "(5,)", "()"
static bool read_shape(const struct safetensors *file, struct entry *e, const char *text,
                       struct failure *why)
{
  const char *at = value_of(text, "'shape':");
  long *sizes = calloc(MOST_DIMS, sizeof *sizes);
  e->shape = sizes;
  if (!sizes) return failed(why, "out of memory");
  if (!at || *at++ != '(') return not_npy(file, why);
  while (*at != ')') {
    char *end;
    if (!isdigit((unsigned char)*at) || e->ndim == MOST_DIMS) return not_npy(file, why);
    sizes[e->ndim++] = strtol(at, &end, 10);
    for (at = end; *at == ',' || *at == ' ';) at++;
  }
  return true;
}

static bool read_text(const struct safetensors *file, struct entry *e, const char *text,
                      struct failure *why)
{
  const char *fortran = value_of(text, "'fortran_order':");
  if (!fortran) return not_npy(file, why);
  if (strncmp(fortran, "False", 5) != 0)
    return failed(why,
                  "%s: its array is in Fortran's order: save numpy.ascontiguousarray(x) instead",
                  file->path);
  return read_dtype(file, e, text, why) && read_shape(file, e, text, why);
}

// Checks that the size of the data matches type and shape.
static bool check_size(const struct safetensors *file, struct entry *e, uint64_t size,
                       struct failure *why)
{
  uint64_t bytes = safetensors_bits(e->dtype) / 8;
  bool fits = true;
  for (size_t d = 0; d < e->ndim; d++)
    fits = fits && !__builtin_mul_overflow(bytes, (uint64_t)e->shape[d], &bytes);
  e->end = bytes;
  if (fits && size >= file->data && size - file->data == bytes) return true;
  return failed(why, "%s: its header says %llu bytes, but %llu follow it", file->path,
                (unsigned long long)bytes,
                (unsigned long long)(size < file->data ? 0 : size - file->data));
}

static bool read_header(struct safetensors *file, uint64_t size, struct failure *why)
{
  unsigned char start[12] = {0};
  if (!read_at(file, 0, start, 10, why)) return false;
  const bool is_long = start[MAGIC] > 1;
  if (memcmp(start, "\x93NUMPY", MAGIC) != 0 || start[MAGIC] < 1 || start[MAGIC] > 3)
    return not_npy(file, why);
  if (is_long && !read_at(file, 10, start + 10, 2, why)) return false;
  const size_t at = is_long ? 12 : 10;
  size_t length = start[8] | (size_t)start[9] << 8;
  if (is_long) length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
  if (length > LONGEST) return not_npy(file, why);
  char *text = calloc(length + 1, 1);
  if (!text) return failed(why, "out of memory");
  file->data = at + length;
  bool ok = read_at(file, at, text, length, why) && read_text(file, file->entries, text, why) &&
            check_size(file, file->entries, size, why);
  free(text);
  return ok;
}

bool npy_open(struct safetensors *file, const char *path, const char *name, struct failure *why)
{
  uint64_t size = 0;
  *file = (struct safetensors){
      .path = strdup(path), .fd = -1, .entries = calloc(1, sizeof(struct entry)), .count = 1};
  bool ok = (file->path && file->entries) || failed(why, "out of memory");
  if (!file->entries) file->count = 0;
  if (ok) {
    file->entries->name = name;
    file->fd = open_regular(path, &size, why);
  }
  ok = ok && file->fd >= 0 && read_header(file, size, why);
  if (!ok) safetensors_close(file);
  return ok;
}
