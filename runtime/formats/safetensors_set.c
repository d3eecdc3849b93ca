// SPDX-License-Identifier: MIT
// One safetensors file or many, as one set of tensors.
#include "formats/safetensors_set.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json_memory.h"
#include "base/names.h"
#include "base/open_input.h"
#include "formats/packed.h"
#include "formats/torch_archive.h"

static const char SINGLE[] = "model.safetensors";
static const char INDEX[] = "model.safetensors.index.json";
static const char INDEX_END[] = ".index.json";

// ---- which files -------------------------------------------------------------------------------

static bool exists(const char *path)
{
  struct stat about;
  return stat(path, &about) == 0;
}

// The file or the index that `path` names.
static bool resolve(const char *path, char to[PATH_MAX], struct failure *why)
{
  struct stat about;
  if (stat(path, &about) != 0) return failed(why, "%s: cannot open: %s", path, strerror(errno));
  if (!S_ISDIR(about.st_mode)) {
    if (snprintf(to, PATH_MAX, "%s", path) < PATH_MAX) return true;
    return failed(why, "%s: the path is too long", path);
  }
  if (strlen(path) + sizeof INDEX + 1 > PATH_MAX)
    return failed(why, "%s: the path is too long", path);
  snprintf(to, PATH_MAX, "%s/%s", path, SINGLE);
  if (exists(to)) return true;
  snprintf(to, PATH_MAX, "%s/%s", path, INDEX);
  if (exists(to)) return true;
  return failed(why, "%s: the folder has neither %s nor %s", path, SINGLE, INDEX);
}

// ---- the index ---------------------------------------------------------------------------------

// {"metadata": {..}, "weight_map": {"w": "model-00001-of-00002.safetensors", ...}}
static json_t *read_index(const char *path, struct failure *why)
{
  json_error_t error;
  uint64_t size;
  int fd = open_regular(path, &size, why);
  if (fd < 0) return NULL;
  json_t *index = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error);
  close(fd);
  if (json_memory_ended()) {
    failed(why, "%s: out of memory for reading it", path);
    json_decref(index);
    return NULL;
  }
  if (!index) {
    failed(why, "%s: not an index in JSON: %s", path, error.text);
    return NULL;
  }
  const json_t *map = json_object_get(index, "weight_map");
  if (json_is_object(map) && json_object_size(map) > 0) return index;
  failed(why, "%s: it has no weight_map, which says where each tensor is", path);
  json_decref(index);
  return NULL;
}

// A file of the index is in the same folder: its name has no path.
static bool plain_name(const char *file)
{
  return file && *file && *file != '.' && !strchr(file, '/');
}

// The files that the index names, each once: keys of an object, whose values are their numbers.
static json_t *list_files(const char *path, json_t *map, struct failure *why)
{
  const char *name;
  json_t *value, *files = json_object();
  json_object_foreach(map, name, value)
  {
    const char *file = json_string_value(value);
    if (!plain_name(file)) {
      failed(why, "%s: it does not say in which file beside it %s is", path, name);
      json_decref(files);
      return NULL;
    }
    if (json_object_get(files, file)) continue;
    json_object_set_new(files, file, json_integer((json_int_t)json_object_size(files)));
  }
  if (!json_memory_ended()) return files;
  failed(why, "%s: out of memory for the names of its files", path);
  json_decref(files);
  return NULL;
}

static bool open_files(struct archive *archive, json_t *files, struct failure *why)
{
  char path[PATH_MAX];
  const char *name, *slash = strrchr(archive->path, '/');
  int folder = slash ? (int)(slash - archive->path) + 1 : 0;
  json_t *number;
  raise_file_limit(json_object_size(files));
  archive->files = calloc(json_object_size(files), sizeof *archive->files);
  if (!archive->files) return failed(why, "%s: out of memory", archive->path);
  json_object_foreach(files, name, number)
  {
    int length = snprintf(path, sizeof path, "%.*s%s", folder, archive->path, name);
    if (length >= (int)sizeof path) return failed(why, "%s: the path is too long", archive->path);
    if (!safetensors_open(&archive->files[archive->nfiles], path, why)) return false;
    archive->nfiles++;
  }
  return true;
}

// Checks that each tensor of the files is where the index lists it. An index may be stale, and list
// tensors that no file has: who needs one finds that it is missing.
static bool check_index(struct archive *archive, json_t *map, json_t *files, struct failure *why)
{
  for (size_t i = 0; i < archive->nfiles; i++)
    for (size_t k = 0; k < archive->files[i].count; k++) {
      const char *name = archive->files[i].entries[k].name;
      const json_t *listed = json_object_get(map, name);
      const json_t *number = listed ? json_object_get(files, json_string_value(listed)) : NULL;
      if (!listed)
        return failed(why, "%s: it has %s, which %s does not list", archive->files[i].path, name,
                      archive->path);
      if ((size_t)json_integer_value(number) != i)
        return failed(why, "%s: it has %s, which %s lists for %s", archive->files[i].path, name,
                      archive->path, json_string_value(listed));
    }
  const char *name;
  json_t *value;
  json_object_foreach(map, name, value)
  {
    const json_t *number = json_object_get(files, json_string_value(value));
    if (archive->stale || safetensors_find(&archive->files[json_integer_value(number)], name))
      continue;
    archive->stale = strdup(name);
    if (!archive->stale) return failed(why, "%s: out of memory", archive->path);
  }
  return true;
}

static bool open_index(struct archive *archive, struct failure *why)
{
  json_t *index = read_index(archive->path, why);
  if (!index) return false;
  json_t *map = json_object_get(index, "weight_map");
  json_t *files = list_files(archive->path, map, why);
  bool ok = files && open_files(archive, files, why) && check_index(archive, map, files, why);
  json_decref(files);
  json_decref(index);
  return ok;
}

static bool open_single(struct archive *archive, struct failure *why)
{
  archive->files = calloc(1, sizeof *archive->files);
  if (!archive->files) return failed(why, "%s: out of memory", archive->path);
  const bool torch = torch_archive_is(archive->path);
  if (!(torch ? torch_archive_open : safetensors_open)(archive->files, archive->path, why))
    return false;
  archive->nfiles = 1;
  return true;
}

// ---- the tensors -------------------------------------------------------------------------------

static int by_name(const void *a, const void *b)
{
  return strcmp(((const struct kept *)a)->entry->name, ((const struct kept *)b)->entry->name);
}

static bool gather(struct archive *archive, struct failure *why)
{
  size_t count = 0;
  for (size_t i = 0; i < archive->nfiles; i++) count += archive->files[i].count;
  archive->all = malloc((count + 1) * sizeof *archive->all);
  if (!archive->all) return failed(why, "%s: out of memory", archive->path);
  for (size_t i = 0; i < archive->nfiles; i++)
    for (size_t j = 0; j < archive->files[i].count; j++)
      archive->all[archive->count++] =
          (struct kept){.file = &archive->files[i], .entry = &archive->files[i].entries[j]};
  qsort(archive->all, archive->count, sizeof *archive->all, by_name);
  for (size_t i = 1; i < archive->count; i++)
    if (by_name(&archive->all[i - 1], &archive->all[i]) == 0)
      return failed(why, "%s: %s is in %s, too", archive->all[i].file->path,
                    archive->all[i].entry->name, archive->all[i - 1].file->path);
  return packed_join(archive, why);
}

bool archive_open(struct archive *archive, const char *path, struct failure *why)
{
  char resolved[PATH_MAX];
  *archive = (struct archive){0};
  if (!resolve(path, resolved, why)) return false;
  archive->path = strdup(resolved);
  bool ok = archive->path || failed(why, "out of memory");
  bool index = ends_with(resolved, INDEX_END);
  ok = ok && (index ? open_index(archive, why) : open_single(archive, why)) && gather(archive, why);
  if (!ok) archive_close(archive);
  return ok;
}

// Storage of names with a prefix.
struct names {
  struct names *next;
  char text[];
};

// Gives all tensors of the files of `other` names with the prefix, which `archive` keeps.
static bool put_prefix(struct archive *archive, const struct archive *other, const char *prefix,
                       struct failure *why)
{
  for (size_t i = 0; i < other->nfiles; i++) {
    other->files[i].prefix = strlen(prefix);
    for (size_t k = 0; k < other->files[i].count; k++) {
      struct entry *e = &other->files[i].entries[k];
      const size_t size = strlen(prefix) + strlen(e->name) + 1;
      struct names *name = malloc(sizeof *name + size);
      if (!name) return failed(why, "%s: out of memory", other->path);
      snprintf(name->text, size, "%s%s", prefix, e->name);
      name->next = archive->names;
      archive->names = name;
      e->name = name->text;
    }
  }
  return true;
}

static void free_names(struct archive *archive)
{
  for (struct names *n = archive->names, *next; n; n = next) {
    next = n->next;
    free(n);
  }
}

bool archive_join(struct archive *archive, struct archive *other, const char *prefix,
                  struct failure *why)
{
  const size_t all = archive->nfiles + other->nfiles;
  bool ok = !*prefix || put_prefix(archive, other, prefix, why);
  struct safetensors *files = ok ? realloc(archive->files, all * sizeof *files) : NULL;
  if (ok && !files) ok = failed(why, "%s: out of memory", other->path);
  if (ok) {
    memcpy(files + archive->nfiles, other->files, other->nfiles * sizeof *files);
    archive->files = files;
    archive->nfiles = all;
    other->nfiles = 0; // its files belong to the archive
  }
  archive_close(other);
  if (!ok) return false;
  packed_free(archive);
  free(archive->all);
  archive->all = NULL;
  archive->count = 0;
  return gather(archive, why);
}

static void free_stacks(struct archive *archive)
{
  for (struct stack *s = archive->stacks, *next; s; s = next) {
    next = s->next;
    free(s->shape);
    free(s->members);
    free(s);
  }
}

void archive_close(struct archive *archive)
{
  free_stacks(archive);
  packed_free(archive);
  for (size_t i = 0; i < archive->nfiles; i++) safetensors_close(&archive->files[i]);
  free(archive->files);
  free(archive->all);
  free(archive->path);
  free_names(archive);
  free(archive->stale);
  *archive = (struct archive){0};
}

const struct kept *archive_find(const struct archive *archive, const char *name)
{
  struct entry named = {.name = name};
  struct kept key = {.entry = &named};
  if (archive->count == 0) return NULL;
  return bsearch(&key, archive->all, archive->count, sizeof key, by_name);
}

// ---- several as one ----------------------------------------------------------------------------

bool stacked_name(const char *name, long index, char *to, size_t size)
{
  const char *hole = strstr(name, "{}");
  if (!hole) return false;
  const int n = snprintf(to, size, "%.*s%ld%s", (int)(hole - name), name, index, hole + 2);
  return n >= 0 && (size_t)n < size;
}

static bool same_shapes(const struct entry *a, const struct entry *b)
{
  return a->ndim == b->ndim && strcmp(a->dtype, b->dtype) == 0 &&
         memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

static struct stack *add_stack(struct archive *archive, const char *name, long count, size_t ndim,
                               struct failure *why)
{
  struct stack *s = calloc(1, sizeof *s);
  if (!s) {
    failed(why, "%s: out of memory", archive->path);
    return NULL;
  }
  s->next = archive->stacks;
  archive->stacks = s;
  s->shape = calloc(ndim + 1, sizeof *s->shape);
  s->members = calloc((size_t)count, sizeof *s->members);
  if (!s->shape || !s->members) {
    failed(why, "%s: out of memory", archive->path);
    return NULL;
  }
  s->entry = (struct entry){.name = name, .ndim = ndim + 1, .shape = s->shape};
  s->shape[0] = count;
  return s;
}

bool archive_stack(struct archive *archive, const char *name, long count, const struct kept **found,
                   struct failure *why)
{
  char one[4096];
  *found = NULL;
  const struct kept *first =
      stacked_name(name, 0, one, sizeof one) ? archive_find(archive, one) : NULL;
  if (!first) return true;
  struct stack *s = add_stack(archive, name, count, first->entry->ndim, why);
  if (!s) return false;
  for (long i = 0; i < count; i++) {
    const struct kept *k =
        stacked_name(name, i, one, sizeof one) ? archive_find(archive, one) : NULL;
    if (!k) return failed(why, "%s: it has no %s, which the program needs", archive->path, one);
    if (!same_shapes(k->entry, first->entry))
      return failed(why, "%s: %s and %s have other shapes or types", archive->path,
                    first->entry->name, k->entry->name);
    s->members[i] = k;
  }
  s->entry.dtype = first->entry->dtype;
  memcpy(s->shape + 1, first->entry->shape, first->entry->ndim * sizeof *s->shape);
  s->kept = (struct kept){.file = first->file, .entry = &s->entry, .stack = s->members};
  *found = &s->kept;
  return true;
}

uint32_t entries_crc(const struct entry *entries, size_t count)
{
  uint32_t all = 0;
  for (size_t i = 0; i < count; i++) {
    struct checksum sum = {.state = UINT32_MAX};
    const unsigned char crc[] = {
        (unsigned char)(entries[i].crc >> 24), (unsigned char)(entries[i].crc >> 16),
        (unsigned char)(entries[i].crc >> 8), (unsigned char)entries[i].crc};
    checksum_add(&sum, 0, entries[i].name, strlen(entries[i].name));
    checksum_add(&sum, sum.at, crc, sizeof crc);
    all ^= ~sum.state;
  }
  return all;
}

const char *archive_metadata(const struct archive *archive, const char *key)
{
  const char *value = archive->nfiles > 0 ? safetensors_metadata(&archive->files[0], key) : NULL;
  for (size_t i = 1; value && i < archive->nfiles; i++) {
    const char *other = safetensors_metadata(&archive->files[i], key);
    if (!other || strcmp(other, value) != 0) return NULL;
  }
  return value;
}
