// SPDX-License-Identifier: MIT
// Weights with scales beside them.
#include "formats/packed.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/elements.h"
#include "base/names.h"
#include "formats/safetensors_set.h"

enum { MX_NUMBERS = 32, MX_BYTES = MX_NUMBERS / 2 };

struct packed {
  bool is_mx;
  char *name;
  struct entry entry; // as it is read
  struct kept numbers, scales;
  long shape[3];
  long block[2]; // of float8: rows and columns that share a scale
  struct packed *next;
  // What is in memory: all scales of a matrix of float8, or a matrix of MXFP4 with its scales.
  float *scale;
  unsigned char *bytes;
  long matrix; // the number of that matrix
};

// ---- pairs -------------------------------------------------------------------------------------

static const char F8_SCALES[] = "_scale_inv", MX_BLOCKS[] = "_blocks", MX_SCALES[] = "_scales";

static bool has_shape(const struct entry *e, const char *dtype, size_t ndim)
{
  return strcmp(e->dtype, dtype) == 0 && e->ndim == ndim;
}

static int by_name(const void *a, const void *b)
{
  return strcmp(((const struct kept *)a)->entry->name, ((const struct kept *)b)->entry->name);
}

// The tensor with that name and another end; NULL: there is none.
static const struct kept *partner_of(const struct archive *archive, const char *name,
                                     const char *end, const char *other)
{
  char to[4096];
  const size_t n = strlen(name) - strlen(end);
  if (n + strlen(other) >= sizeof to) return NULL;
  memcpy(to, name, n);
  memcpy(to + n, other, strlen(other) + 1);
  const struct entry named = {.name = to};
  const struct kept key = {.entry = &named};
  return bsearch(&key, archive->all, archive->count, sizeof key, by_name);
}

// The sizes of blocks that config.json beside the file has, else 128.
static bool block_sizes(const struct archive *archive, long block[2], struct failure *why)
{
  char path[PATH_MAX];
  json_error_t error;
  const char *slash = strrchr(archive->path, '/');
  const int n = snprintf(path, sizeof path, "%.*sconfig.json",
                         slash ? (int)(slash - archive->path) + 1 : 0, archive->path);
  block[0] = block[1] = 128;
  json_t *config =
      n > 0 && n < PATH_MAX ? json_load_file(path, JSON_DECODE_INT_AS_REAL, &error) : NULL;
  const json_t *sizes =
      json_object_get(json_object_get(config, "quantization_config"), "weight_block_size");
  bool ok = true;
  for (size_t i = 0; i < 2 && sizes && !json_is_null(sizes) && ok; i++) {
    const double size = json_number_value(json_array_get(sizes, i));
    ok = (json_array_size(sizes) == 2 && size >= 1 && size <= 1 << 20 && size == floor(size)) ||
         failed(why, "%s: weight_block_size is not two whole numbers", path);
    block[i] = ok ? (long)size : 1;
  }
  json_decref(config);
  return ok;
}

static long blocks_of(long size, long block)
{
  return size / block + (size % block != 0);
}

static bool fits_float8(const struct packed *p, const char *path, struct failure *why)
{
  const struct entry *w = p->numbers.entry, *s = p->scales.entry;
  const bool is_type = !strcmp(s->dtype, "F32") || !strcmp(s->dtype, "BF16");
  const long rows = blocks_of(w->shape[w->ndim - 2], p->block[0]),
             columns = blocks_of(w->shape[w->ndim - 1], p->block[1]);
  if (is_type && s->ndim == w->ndim && (w->ndim == 2 || s->shape[0] == w->shape[0]) &&
      s->shape[s->ndim - 2] == rows && s->shape[s->ndim - 1] == columns)
    return true;
  return failed(why,
                "%s: %s is to have a float32 or bfloat16 scale for each block of %ld x %ld of %s: "
                "%ld rows of %ld",
                path, s->name, p->block[0], p->block[1], w->name, rows, columns);
}

static bool fits_mx(const struct packed *p, const char *path, struct failure *why)
{
  const struct entry *w = p->numbers.entry, *s = p->scales.entry;
  if (has_shape(w, "U8", 4) && has_shape(s, "U8", 3) && w->shape[3] == MX_BYTES &&
      memcmp(w->shape, s->shape, 3 * sizeof *s->shape) == 0 && w->shape[2] <= LONG_MAX / MX_NUMBERS)
    return true;
  return failed(
      why,
      "%s: %s is to be bytes, [experts, outputs, inputs / 32, 16], and %s a byte for each "
      "16 of them",
      path, w->name, s->name);
}

// Adds a tensor of two others, without the end of the first one's name.
static struct packed *add_packed(struct archive *archive, const struct kept *numbers,
                                 const struct kept *scales, const char *end, struct failure *why)
{
  struct packed *p = calloc(1, sizeof *p);
  char *name = p ? strdup(numbers->entry->name) : NULL;
  if (!name) {
    free(p);
    failed(why, "%s: out of memory", archive->path);
    return NULL;
  }
  name[strlen(name) - strlen(end)] = 0;
  *p = (struct packed){.name = name, .numbers = *numbers, .scales = *scales, .matrix = -1};
  p->next = archive->packed;
  archive->packed = p;
  p->entry = (struct entry){.name = name, .dtype = "F32", .shape = p->shape};
  return p;
}

static bool join_float8(struct archive *archive, const struct kept *scales,
                        const struct kept *numbers, struct failure *why)
{
  struct packed *p = add_packed(archive, numbers, scales, "", why);
  if (!p || !block_sizes(archive, p->block, why) || !fits_float8(p, numbers->file->path, why))
    return false;
  p->entry.ndim = numbers->entry->ndim;
  memcpy(p->shape, numbers->entry->shape, p->entry.ndim * sizeof *p->shape);
  return true;
}

static bool join_mx(struct archive *archive, const struct kept *numbers, const struct kept *scales,
                    struct failure *why)
{
  struct packed *p = add_packed(archive, numbers, scales, MX_BLOCKS, why);
  if (!p || !fits_mx(p, numbers->file->path, why)) return false;
  p->is_mx = true;
  p->entry.ndim = 3;
  p->shape[0] = numbers->entry->shape[0];
  p->shape[1] = numbers->entry->shape[2] * MX_NUMBERS;
  p->shape[2] = numbers->entry->shape[1];
  return true;
}

static bool is_part(const struct archive *archive, const struct entry *entry)
{
  for (const struct packed *p = archive->packed; p; p = p->next)
    if (p->numbers.entry == entry || p->scales.entry == entry) return true;
  return false;
}

// In the place of the parts of each, the tensor that they are.
static bool put_in_place(struct archive *archive, struct failure *why)
{
  size_t count = 0;
  for (size_t i = 0; i < archive->count; i++)
    if (!is_part(archive, archive->all[i].entry)) archive->all[count++] = archive->all[i];
  for (struct packed *p = archive->packed; p; p = p->next)
    archive->all[count++] = (struct kept){.file = p->numbers.file, .entry = &p->entry, .packed = p};
  archive->count = count;
  qsort(archive->all, archive->count, sizeof *archive->all, by_name);
  for (size_t i = 1; i < archive->count; i++)
    if (by_name(&archive->all[i - 1], &archive->all[i]) == 0)
      return failed(why, "%s: it has %s twice, once with scales", archive->path,
                    archive->all[i].entry->name);
  return true;
}

bool packed_join(struct archive *archive, struct failure *why)
{
  for (size_t i = 0; i < archive->count; i++) {
    const struct kept *k = &archive->all[i];
    const char *name = k->entry->name;
    const struct kept *other = NULL;
    if (ends_with(name, F8_SCALES)) {
      other = partner_of(archive, name, F8_SCALES, "");
      if (other &&
          (has_shape(other->entry, "F8_E4M3", 2) || has_shape(other->entry, "F8_E4M3", 3)) &&
          !join_float8(archive, k, other, why))
        return false;
    } else if (ends_with(name, MX_BLOCKS)) {
      other = partner_of(archive, name, MX_BLOCKS, MX_SCALES);
      if (other && !strcmp(k->entry->dtype, "U8") && !strcmp(other->entry->dtype, "U8") &&
          !join_mx(archive, k, other, why))
        return false;
    }
  }
  return !archive->packed || put_in_place(archive, why);
}

static void forget(struct packed *p)
{
  free(p->scale);
  free(p->bytes);
  p->scale = NULL;
  p->bytes = NULL;
  p->matrix = -1;
}

void packed_free(struct archive *archive)
{
  for (struct packed *p = archive->packed, *next; p; p = next) {
    next = p->next;
    forget(p);
    free(p->name);
    free(p);
  }
  archive->packed = NULL;
}

// ---- reading -----------------------------------------------------------------------------------

// Reads matrix `number` of a tensor of matrices, or of one matrix, as it is in the file; to be
// freed. NULL, and why. size: of an element in bytes.
static void *read_matrix(const struct kept *k, bool is_one, long number, size_t size, size_t *count,
                         struct failure *why)
{
  long here[4], first[4] = {0};
  const struct entry *e = k->entry;
  memcpy(here, e->shape, e->ndim * sizeof *here);
  if (!is_one) here[0] = 1, first[0] = number;
  const struct slice slice = {e->ndim, e->shape, here, first};
  *count = slice_elements(&slice);
  void *made = malloc(*count * size + 1);
  if (!made) failed(why, "%s: out of memory for %s", k->file->path, e->name);
  if (made && safetensors_read(k->file, e, &slice, 0, *count, made, why)) return made;
  free(made);
  return NULL;
}

static bool load_scales(struct packed *p, long number, struct failure *why)
{
  const bool narrow = strcmp(p->scales.entry->dtype, "BF16") == 0;
  size_t count;
  void *as_is = read_matrix(&p->scales, p->entry.ndim == 2, number, narrow ? 2 : 4, &count, why);
  p->scale = as_is ? calloc(count + 1, sizeof *p->scale) : NULL;
  if (as_is && !p->scale) failed(why, "%s: out of memory", p->scales.file->path);
  for (size_t i = 0; i < count && p->scale; i++) {
    bf16 x;
    if (narrow)
      memcpy(&x, (char *)as_is + i * sizeof x, sizeof x), p->scale[i] = bf16_to_float(x);
    else
      memcpy(&p->scale[i], (char *)as_is + i * sizeof(float), sizeof(float));
  }
  free(as_is);
  return p->scale != NULL;
}

static bool load_mx(struct packed *p, long number, struct failure *why)
{
  size_t count;
  p->bytes = read_matrix(&p->numbers, false, number, 1, &count, why);
  unsigned char *scales = p->bytes ? read_matrix(&p->scales, false, number, 1, &count, why) : NULL;
  p->scale = scales ? calloc(count + 1, sizeof *p->scale) : NULL;
  if (scales && !p->scale) failed(why, "%s: out of memory", p->scales.file->path);
  for (size_t i = 0; i < count && p->scale; i++) p->scale[i] = ldexpf(1, scales[i] - 127);
  free(scales);
  return p->scale != NULL;
}

// What is read of a matrix stays until another one is read.
static bool load(struct packed *p, long number, struct failure *why)
{
  if (p->matrix == number) return true;
  forget(p);
  if (!(p->is_mx ? load_mx : load_scales)(p, number, why)) {
    forget(p);
    return false;
  }
  p->matrix = number;
  return true;
}

// A sign, 4 bits of exponent, 3 of fraction; without infinities.
static float float8_of(unsigned char x)
{
  const int exponent = x >> 3 & 15, fraction = x & 7;
  const float size = (x & 0x7f) == 0x7f ? NAN
                     : exponent == 0    ? ldexpf((float)fraction, -9)
                                        : ldexpf((float)(8 + fraction), exponent - 10);
  return x & 0x80 ? -size : size;
}

static bool read_float8(struct packed *p, const struct slice *slice, size_t from, size_t count,
                        float *to, struct failure *why)
{
  float values[256];
  unsigned char *raw = (unsigned char *)to + count * (sizeof(float) - 1);
  const size_t columns = (size_t)p->shape[p->entry.ndim - 1],
               rows = (size_t)p->shape[p->entry.ndim - 2],
               across = (size_t)blocks_of((long)columns, p->block[1]);
  for (int i = 0; i < 256; i++) values[i] = float8_of((unsigned char)i);
  if (!safetensors_read(p->numbers.file, p->numbers.entry, slice, from, count, raw, why))
    return false;
  for (size_t done = 0; done < count;) {
    const struct run run = slice_run(slice, from + done, count - done);
    for (size_t i = 0; i < run.count; i++, done++) {
      const size_t at = run.first + i, row = at / columns, column = at % columns;
      if (!load(p, (long)(row / rows), why)) return false;
      const size_t block = row % rows / (size_t)p->block[0] * across + column / (size_t)p->block[1];
      to[done] = values[raw[done]] * p->scale[block];
    }
  }
  return true;
}

static bool read_mx(struct packed *p, const struct slice *slice, size_t from, size_t count,
                    float *to, struct failure *why)
{
  static const float values[16] = {0,    0.5,  1,  1.5,  2,  3,  4,  6,
                                   -0.f, -0.5, -1, -1.5, -2, -3, -4, -6};
  const size_t outputs = (size_t)p->shape[2], inputs = (size_t)p->shape[1];
  for (size_t done = 0; done < count;) {
    const struct run run = slice_run(slice, from + done, count - done);
    for (size_t i = 0; i < run.count; i++, done++) {
      const size_t at = run.first + i, output = at % outputs, input = at / outputs % inputs;
      if (!load(p, (long)(at / outputs / inputs), why)) return false;
      const size_t place = output * inputs + input;
      const unsigned two = p->bytes[place / 2], one = place % 2 ? two >> 4 : two & 15;
      to[done] = values[one] * p->scale[place / MX_NUMBERS];
    }
  }
  return true;
}

bool packed_read(struct packed *p, const struct slice *slice, size_t from, size_t count, float *to,
                 struct failure *why)
{
  return (p->is_mx ? read_mx : read_float8)(p, slice, from, count, to, why);
}
