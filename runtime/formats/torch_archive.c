// SPDX-License-Identifier: MIT
// Archives of torch.export: a ZIP whose entries are stored as they are. All are in one folder:
//
//   ROOT/data/weights/model_weights_config.json      {"config": {NAME: {"path_name": "weight_0",
//                                                     "tensor_meta": {"dtype": 7, "sizes": ...}}}}
//   ROOT/data/weights/weight_0 ...                   the bytes of a whole storage; several tensors
//                                                    may share one, and in any order of dimensions
//   ROOT/data/constants/...                          the same of constants
//   ROOT/models/model.json                           the program; only its checksum is read
//
// The ZIP library finds the entries; slices of tensors are then read at their places in the file.
#include "formats/torch_archive.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json_memory.h"
#include "base/open_input.h"

bool torch_archive_is(const char *path)
{
  struct failure unused;
  uint64_t size;
  char start[4] = "";
  int fd = open_regular(path, &size, &unused);
  if (fd < 0) return false;
  bool is = pread(fd, start, sizeof start, 0) == sizeof start && memcmp(start, "PK\3\4", 4) == 0;
  close(fd);
  return is;
}

#ifndef TPGEN_TORCH_ARCHIVE

bool torch_archive_open(struct safetensors *file, const char *path, struct failure *why)
{
  *file = (struct safetensors){.fd = -1};
  return failed(why,
                "%s: an archive of torch.export, which this program was built without: install "
                "libminizip-dev and build it again",
                path);
}

#else

#include <unzip.h>
#include "formats/zip_entry.h"

enum { MOST_CONFIG = 1 << 26, MOST_NAME = 512, MOST_DIMS = 32 };

struct zip {
  unzFile file;
  int fd;
  uint64_t size;
  char root[MOST_NAME];
};

static bool damaged(const struct safetensors *file, const char *what, struct failure *why)
{
  return failed(why, "%s: no archive of torch.export, or damaged: %s", file->path, what);
}

static bool find_root(struct zip *zip, const struct safetensors *file, struct failure *why)
{
  if (unzGoToFirstFile(zip->file) != UNZ_OK ||
      unzGetCurrentFileInfo64(zip->file, NULL, zip->root, MOST_NAME - 1, NULL, 0, NULL, 0) !=
          UNZ_OK)
    return damaged(file, "it has no entries", why);
  char *slash = strchr(zip->root, '/');
  if (!slash) return damaged(file, "its first entry is in no folder", why);
  slash[1] = 0;
  return true;
}

static bool read_at(void *zip, uint64_t at, void *to, size_t n)
{
  const struct zip *z = zip;
  return at <= z->size && n <= z->size - at && pread(z->fd, to, n, (off_t)at) == (ssize_t)n;
}

// Finds an entry; false if there is none, or if it is compressed.
static bool find_entry(struct zip *zip, const char *folder, const char *name, struct zip_entry *at)
{
  char path[3 * MOST_NAME];
  snprintf(path, sizeof path, "%s%s%s", zip->root, folder, name);
  return strlen(path) < MOST_NAME && unzLocateFile(zip->file, path, 1) == UNZ_OK &&
         zip_entry_at(read_at, zip, zip->size, unzGetOffset64(zip->file), at);
}

// The "config" of a JSON entry; NULL if there is none.
static json_t *read_config(struct zip *zip, const struct safetensors *file, const char *folder,
                           const char *name)
{
  struct zip_entry at;
  if (!find_entry(zip, folder, name, &at) || at.size > MOST_CONFIG) return NULL;
  char *text = malloc(at.size + 1);
  bool read = text && pread(file->fd, text, at.size, (off_t)at.begin) == (ssize_t)at.size;
  json_error_t error;
  json_t *all = read ? json_loadb(text, at.size, JSON_REJECT_DUPLICATES, &error) : NULL;
  free(text);
  return json_memory_ended() ? NULL : all;
}

enum { COMPLEX = 10 }; // of two F32, which are the last dimension

static const char *dtype_of(json_int_t number)
{
  static const char *const names[] = {
      [1] = "U8",  [2] = "I8",  [3] = "I16",       [4] = "I32",   [5] = "I64",  [6] = "F16",
      [7] = "F32", [8] = "F64", [COMPLEX] = "F32", [12] = "BOOL", [13] = "BF16"};
  if (number < 0 || number >= (json_int_t)(sizeof names / sizeof *names)) return NULL;
  return names[number];
}

static bool whole_number(const json_t *of, long *number)
{
  const json_t *value = json_object_get(of, "as_int");
  if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
  *number = (long)json_integer_value(value);
  return true;
}

// The place of a tensor in its storage, in elements.
struct place {
  uint64_t first, behind; // its first element, and the one after its last
  bool contiguous;        // in row-major order
};

// Complex numbers as pairs of floats.
static bool split(struct entry *e, struct place *place)
{
  long *shape = (long *)(uintptr_t)e->shape, *stride = (long *)(uintptr_t)e->strides;
  if (e->ndim == MOST_DIMS || place->behind > LONG_MAX / 2) return false;
  for (size_t d = 0; d < e->ndim; d++) {
    if (stride[d] > LONG_MAX / 2) return false;
    stride[d] *= 2;
  }
  shape[e->ndim] = 2;
  stride[e->ndim++] = 1;
  place->first *= 2;
  place->behind *= 2;
  return true;
}

// Sizes, strides, and the place of the tensor. False where one is missing or too large.
static bool read_shape(struct entry *e, const json_t *meta, struct place *place)
{
  const json_t *sizes = json_object_get(meta, "sizes"), *strides = json_object_get(meta, "strides");
  long offset, *shape = calloc(MOST_DIMS, sizeof *shape),
               *stride = calloc(MOST_DIMS, sizeof *stride);
  uint64_t elements = 1, last = 0, step;
  e->shape = shape;
  e->strides = stride;
  e->ndim = json_array_size(sizes);
  *place = (struct place){.contiguous = true};
  if (!shape || !stride || e->ndim > MOST_DIMS || json_array_size(strides) != e->ndim) return false;
  for (size_t d = e->ndim; d-- > 0;) {
    if (!whole_number(json_array_get(sizes, d), &shape[d]) ||
        !whole_number(json_array_get(strides, d), &stride[d]))
      return false;
    place->contiguous = place->contiguous && (shape[d] <= 1 || (uint64_t)stride[d] == elements);
    if (__builtin_mul_overflow(elements, (uint64_t)shape[d], &elements)) return false;
    if (shape[d] == 0) continue;
    if (__builtin_mul_overflow((uint64_t)shape[d] - 1, (uint64_t)stride[d], &step) ||
        __builtin_add_overflow(last, step, &last))
      return false;
  }
  if (!whole_number(json_object_get(meta, "storage_offset"), &offset)) return false;
  place->first = (uint64_t)offset;
  return !__builtin_add_overflow(place->first, elements ? last + 1 : 0, &place->behind) &&
         (json_integer_value(json_object_get(meta, "dtype")) != COMPLEX || split(e, place));
}

static bool read_entry(struct zip *zip, struct safetensors *file, const char *folder,
                       const char *name, const json_t *about, struct failure *why)
{
  struct entry *e = &file->entries[file->count++];
  const json_t *meta = json_object_get(about, "tensor_meta");
  const char *path = json_string_value(json_object_get(about, "path_name"));
  uint64_t end;
  struct place place;
  struct zip_entry at;
  e->name = name;
  e->dtype = dtype_of(json_integer_value(json_object_get(meta, "dtype")));
  if (json_is_true(json_object_get(about, "use_pickle")))
    return failed(why, "%s: %s is a pickle, which is never read", file->path, name);
  if (!e->dtype) return failed(why, "%s: %s has a type that is not read", file->path, name);
  if (!path || strchr(path, '/') || !read_shape(e, meta, &place)) return damaged(file, name, why);
  const unsigned size = safetensors_bits(e->dtype) / 8;
  if (!find_entry(zip, folder, path, &at) || __builtin_mul_overflow(place.behind, size, &end) ||
      end > at.size)
    return damaged(file, name, why);
  e->begin = at.begin + place.first * size;
  e->end = at.begin + end;
  if (place.contiguous) {
    free((void *)(uintptr_t)e->strides);
    e->strides = NULL;
  }
  return true;
}

static int by_name(const void *a, const void *b)
{
  return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static bool read_entries(struct zip *zip, struct safetensors *file, struct failure *why)
{
  static const struct {
    const char *folder, *config;
  } kinds[] = {{"data/weights/", "model_weights_config.json"},
               {"data/constants/", "model_constants_config.json"}};
  // The names are the header's: the file owns it as long as it is open.
  file->header = json_array();
  size_t count = 0;
  for (int k = 0; k < 2; k++) {
    json_t *all = read_config(zip, file, kinds[k].folder, kinds[k].config);
    if (!all && k == 0) return damaged(file, "it has no list of weights", why);
    count += json_object_size(json_object_get(all, "config"));
    json_array_append_new(file->header, all ? all : json_object());
  }
  file->entries = calloc(count + 1, sizeof *file->entries);
  if (!file->entries) return failed(why, "%s: out of memory", file->path);
  for (size_t k = 0; k < 2; k++) {
    const char *name;
    json_t *about;
    json_object_foreach(json_object_get(json_array_get(file->header, k), "config"), name, about)
    {
      if (!read_entry(zip, file, kinds[k].folder, name, about, why)) return false;
      file->entries[file->count - 1].is_constant = k == 1;
    }
  }
  qsort(file->entries, file->count, sizeof *file->entries, by_name);
  return true;
}

bool torch_archive_open(struct safetensors *file, const char *path, struct failure *why)
{
  uint64_t size = 0;
  struct zip zip = {0};
  *file = (struct safetensors){.path = strdup(path), .fd = -1, .has_others = true};
  bool ok = file->path || failed(why, "out of memory");
  if (ok) file->fd = open_regular(path, &size, why);
  ok = ok && file->fd >= 0;
  zip.fd = file->fd;
  zip.size = size;
  if (ok) zip.file = unzOpen64(path);
  if (ok && !zip.file) ok = damaged(file, "it is not a ZIP file", why);
  ok = ok && find_root(&zip, file, why) && read_entries(&zip, file, why);
  struct zip_entry exported;
  if (ok && find_entry(&zip, "", ZIP_PROGRAM, &exported))
    snprintf(file->exported, sizeof file->exported, "%08x", (unsigned)exported.crc);
  // The places that the ZIP gives must be within the file.
  for (size_t i = 0; ok && i < file->count; i++)
    if (file->entries[i].end > size) ok = damaged(file, file->entries[i].name, why);
  if (zip.file) unzClose(zip.file);
  if (!ok) safetensors_close(file);
  return ok;
}

#endif
