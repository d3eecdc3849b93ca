// SPDX-License-Identifier: MIT
// safetensors files: a file is validated as a whole before any of it is used.
#include "formats/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json_memory.h"
#include "base/open_input.h"
#include "formats/crc32c.h"

enum { LONGEST_HEADER = 100000000 };

static const char METADATA[] = "__metadata__";

// In the metadata of a checkpoint: the text before the header's own checksum, which is computed
// with all of its digits as 0; and the text before a tensor's name.
static const char SEAL[] = "\"crc32c\":\"";
static const char OF_TENSOR[] = "crc32c:";

enum { CRC_DIGITS = 8 };

// ---- elements ----------------------------------------------------------------------------------

unsigned safetensors_bits(const char *dtype)
{
  static const struct {
    const char *name;
    unsigned bits;
  } types[] = {
      {"BOOL", 8},        {"U8", 8},   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8},     {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32}, {"F32", 32},    {"F64", 64},    {"I64", 64},
      {"U64", 64},        {"C64", 64},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].name, dtype) == 0) return types[i].bits;
  return 0;
}

// The bytes of a tensor; false if they overflow or do not fill whole bytes.
static bool count_bytes(const struct entry *e, uint64_t *bytes)
{
  uint64_t bits = 1;
  for (size_t d = 0; d < e->ndim; d++)
    if (__builtin_mul_overflow(bits, (uint64_t)e->shape[d], &bits)) return false;
  if (__builtin_mul_overflow(bits, (uint64_t)safetensors_bits(e->dtype), &bits)) return false;
  *bytes = bits / 8;
  return bits % 8 == 0;
}

// ---- checksums ---------------------------------------------------------------------------------

static bool read_crc(const char *digits, uint32_t *crc)
{
  *crc = 0;
  for (int i = 0; i < CRC_DIGITS; i++) {
    const char *hex = "0123456789abcdef", *at = digits[i] ? strchr(hex, digits[i]) : NULL;
    if (!at) return false;
    *crc = *crc << 4 | (uint32_t)(at - hex);
  }
  return !digits[CRC_DIGITS] || digits[CRC_DIGITS] == '"';
}

// The digits of the header's own checksum, or NULL. Within a name or a value a backslash would
// precede the quotation mark.
static char *find_seal(char *text, size_t length)
{
  char *at = memmem(text, length, SEAL, strlen(SEAL));
  if (!at || length - (size_t)(at - text) <= strlen(SEAL) + CRC_DIGITS) return NULL;
  at += strlen(SEAL);
  return at[CRC_DIGITS] == '"' ? at : NULL;
}

static uint32_t header_crc(char *text, size_t length, char *digits)
{
  char kept[CRC_DIGITS];
  memcpy(kept, digits, sizeof kept);
  memset(digits, '0', sizeof kept);
  uint32_t crc = crc32c(text, length);
  memcpy(digits, kept, sizeof kept);
  return crc;
}

static enum seal judge_seal(char *text, size_t length)
{
  uint32_t said;
  char *digits = find_seal(text, length);
  if (!digits) return UNSEALED;
  return read_crc(digits, &said) && said == header_crc(text, length, digits) ? INTACT : BROKEN;
}

// The tensors' checksums in the metadata.
static void read_checksums(struct safetensors *file)
{
  const char *key;
  json_t *value;
  json_object_foreach(json_object_get(file->header, METADATA), key, value)
  {
    if (strncmp(key, OF_TENSOR, strlen(OF_TENSOR)) != 0) continue;
    // The entries are the file's own, so it may change them.
    struct entry *e = (struct entry *)(uintptr_t)safetensors_find(file, key + strlen(OF_TENSOR));
    if (e) e->has_crc = read_crc(json_string_value(value), &e->crc);
    if (file->seal == UNSEALED) file->seal = BROKEN; // the header's own is missing
  }
}

// ---- reading -----------------------------------------------------------------------------------

static bool read_bytes(int fd, const char *path, uint64_t at, void *to, size_t count,
                       struct failure *why)
{
  for (char *next = to; count > 0;) {
    ssize_t n = pread(fd, next, count, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(why, "%s: cannot read: %s", path, strerror(errno));
    if (n == 0) return failed(why, "%s: the file ended while it was read", path);
    next += n;
    at += (uint64_t)n;
    count -= (size_t)n;
  }
  return true;
}

static bool write_bytes(int fd, const char *path, uint64_t at, const void *from, size_t count,
                        struct failure *why)
{
  for (const char *next = from; count > 0;) {
    ssize_t n = pwrite(fd, next, count, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return failed(why, "%s: cannot write: %s", path, n < 0 ? strerror(errno) : "no progress");
    next += n;
    at += (uint64_t)n;
    count -= (size_t)n;
  }
  return true;
}

static bool read_natural(const json_t *value, long *number)
{
  if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
  *number = (long)json_integer_value(value);
  return true;
}

static bool read_shape(struct entry *e, const json_t *shape, const char *path, struct failure *why)
{
  if (!json_is_array(shape)) return failed(why, "%s: %s has no shape", path, e->name);
  e->ndim = json_array_size(shape);
  long *sizes = calloc(e->ndim ? e->ndim : 1, sizeof *sizes);
  if (!sizes) return failed(why, "%s: out of memory", path);
  e->shape = sizes;
  for (size_t d = 0; d < e->ndim; d++)
    if (!read_natural(json_array_get(shape, d), &sizes[d]))
      return failed(why, "%s: %s has a size in its shape that is not a whole number of 0 or more",
                    path, e->name);
  return true;
}

// A member of a tensor's description, by name, or by index in an array.
static const json_t *part_of(const json_t *info, const char *name, size_t place)
{
  return json_is_array(info) ? json_array_get(info, place) : json_object_get(info, name);
}

static bool read_entry(struct entry *e, const json_t *info, const char *path, struct failure *why)
{
  if (!json_is_object(info) && json_array_size(info) != 3)
    return failed(why, "%s: %s is not an object", path, e->name);
  e->dtype = json_string_value(part_of(info, "dtype", 0));
  if (!e->dtype) return failed(why, "%s: %s has no dtype", path, e->name);
  if (safetensors_bits(e->dtype) == 0)
    return failed(why, "%s: %s has the unknown dtype %s", path, e->name, e->dtype);
  if (!read_shape(e, part_of(info, "shape", 1), path, why)) return false;

  const json_t *offsets = part_of(info, "data_offsets", 2);
  long begin, end;
  if (json_array_size(offsets) != 2 || !read_natural(json_array_get(offsets, 0), &begin) ||
      !read_natural(json_array_get(offsets, 1), &end) || begin > end)
    return failed(why, "%s: %s has no data_offsets [begin, end]", path, e->name);
  e->begin = (uint64_t)begin;
  e->end = (uint64_t)end;

  uint64_t bytes;
  if (!count_bytes(e, &bytes))
    return failed(why, "%s: %s has a shape whose bytes cannot be counted", path, e->name);
  if (bytes != e->end - e->begin)
    return failed(why, "%s: %s takes %llu bytes by its shape, but %llu by its data_offsets", path,
                  e->name, (unsigned long long)bytes, (unsigned long long)(e->end - e->begin));
  return true;
}

static bool check_metadata(json_t *metadata, const char *path, struct failure *why)
{
  const char *key;
  json_t *value;
  if (!metadata || json_is_null(metadata)) return true;
  if (!json_is_object(metadata)) return failed(why, "%s: %s is not an object", path, METADATA);
  json_object_foreach(metadata, key, value)
  {
    if (!json_is_string(value))
      return failed(why, "%s: %s in %s is not a string", path, key, METADATA);
  }
  return true;
}

static bool read_entries(struct safetensors *file, struct failure *why)
{
  const char *name;
  json_t *info;
  file->entries = calloc(json_object_size(file->header) + 1, sizeof *file->entries);
  if (!file->entries) return failed(why, "%s: out of memory", file->path);
  json_object_foreach(file->header, name, info)
  {
    if (strcmp(name, METADATA) == 0) continue;
    struct entry *e = &file->entries[file->count++];
    e->name = name;
    if (!read_entry(e, info, file->path, why)) return false;
  }
  return check_metadata(json_object_get(file->header, METADATA), file->path, why);
}

static int by_place(const void *a, const void *b)
{
  const struct entry *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b)
{
  return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

// Checks that the tensors fill the data from its first byte to its last, each byte once.
static bool check_places(struct safetensors *file, uint64_t size, struct failure *why)
{
  uint64_t end = 0;
  qsort(file->entries, file->count, sizeof *file->entries, by_place);
  for (size_t i = 0; i < file->count; i++) {
    const struct entry *e = &file->entries[i];
    if (e->begin != end)
      return failed(why, "%s: %s %s", file->path, e->name,
                    e->begin < end ? "overlaps the tensor before it" : "comes after a hole");
    end = e->end;
  }
  if (end != size)
    return failed(why, "%s: its tensors take %llu bytes, but %llu follow the header: %s",
                  file->path, (unsigned long long)end, (unsigned long long)size,
                  end > size ? "the file is cut short" : "something comes after the last tensor");
  qsort(file->entries, file->count, sizeof *file->entries, by_name);
  return true;
}

// Rejects texts that the reference library rejects and jansson accepts: deep nesting, and -0 for a
// size.
static bool check_text(const char *path, const char *text, size_t length, struct failure *why)
{
  enum { DEEPEST = 127 };
  bool quoted = false;
  int depth = 0;
  for (size_t i = 0; i < length; i++) {
    if (quoted && text[i] == '\\')
      i++;
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted && (text[i] == '{' || text[i] == '['))
      depth++;
    else if (!quoted && (text[i] == '}' || text[i] == ']'))
      depth--;
    if (depth > DEEPEST) return failed(why, "%s: its header is nested too deeply", path);
    if (!quoted && text[i] == '-' && i + 2 < length && text[i + 1] == '0' &&
        !strchr(".eE", text[i + 2]))
      return failed(why, "%s: its header has a size of -0", path);
  }
  return true;
}

static bool parse_header(struct safetensors *file, const char *text, size_t length,
                         struct failure *why)
{
  json_error_t error;
  size_t space = 0;
  while (space < length && memchr(" \t\n\r", text[space], 4)) space++;
  if (space == length || text[space] != '{')
    return failed(why, "%s: its header does not start with '{': not a safetensors file",
                  file->path);
  if (!check_text(file->path, text, length, why)) return false;
  file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  if (json_memory_ended()) return failed(why, "%s: out of memory for its header", file->path);
  if (!file->header)
    return failed(why, "%s: its header is not JSON: %s, at byte %d", file->path, error.text,
                  error.position + 8);
  return true;
}

static bool read_header(struct safetensors *file, uint64_t size, struct failure *why)
{
  unsigned char raw[8];
  if (size < sizeof raw)
    return failed(why, "%s: %llu bytes are too few for a safetensors file", file->path,
                  (unsigned long long)size);
  if (!read_bytes(file->fd, file->path, 0, raw, sizeof raw, why)) return false;
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | raw[i];
  if (length > LONGEST_HEADER)
    return failed(why,
                  "%s: a header of %llu bytes is above the limit of %d: not a safetensors file",
                  file->path, (unsigned long long)length, LONGEST_HEADER);
  if (length > size - sizeof raw)
    return failed(why, "%s: a header of %llu bytes does not fit in the file, which has %llu",
                  file->path, (unsigned long long)length, (unsigned long long)size);

  char *text = malloc(length + 1);
  if (!text) return failed(why, "%s: out of memory", file->path);
  file->data = sizeof raw + length;
  bool ok = read_bytes(file->fd, file->path, sizeof raw, text, length, why) &&
            parse_header(file, text, length, why);
  file->seal = ok ? judge_seal(text, length) : UNSEALED;
  free(text);
  ok = ok && read_entries(file, why) && check_places(file, size - file->data, why);
  if (ok) read_checksums(file);
  return ok;
}

bool safetensors_is_named(const char *path)
{
  const size_t length = strlen(path);
  return length > 12 && strcmp(path + length - 12, ".safetensors") == 0;
}

bool safetensors_open(struct safetensors *file, const char *path, struct failure *why)
{
  uint64_t size = 0;
  *file = (struct safetensors){.path = strdup(path), .fd = -1};
  bool ok = file->path || failed(why, "out of memory");
  if (ok) file->fd = open_regular(path, &size, why);
  ok = ok && file->fd >= 0 && read_header(file, size, why);
  if (!ok) safetensors_close(file);
  return ok;
}

void safetensors_close(struct safetensors *file)
{
  for (size_t i = 0; i < file->count; i++) {
    free((void *)(uintptr_t)file->entries[i].shape);
    free((void *)(uintptr_t)file->entries[i].strides);
  }
  free(file->entries);
  json_decref(file->header);
  if (file->fd >= 0) close(file->fd);
  free(file->path);
  *file = (struct safetensors){.fd = -1};
}

const struct entry *safetensors_find(const struct safetensors *file, const char *name)
{
  struct entry key = {.name = name};
  if (file->count == 0) return NULL;
  return bsearch(&key, file->entries, file->count, sizeof key, by_name);
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
  return json_string_value(json_object_get(json_object_get(file->header, METADATA), key));
}

// ---- slices ------------------------------------------------------------------------------------

size_t slice_elements(const struct slice *slice)
{
  size_t elements = 1;
  for (size_t d = 0; d < slice->ndim; d++) elements *= (size_t)slice->here[d];
  return elements;
}

// After dimension `cut` the slice is whole, so a run goes from an index of `cut` to its end; the
// dimensions before `cut` determine where the run begins.
struct run slice_run(const struct slice *slice, size_t from, size_t most)
{
  size_t cut = slice->ndim, length = 1;
  uint64_t stride = 1, first = 0;
  while (cut > 0 && slice->here[cut - 1] == slice->of[cut - 1]) {
    stride *= (uint64_t)slice->of[--cut];
    length *= (size_t)slice->here[cut];
  }
  if (cut > 0) {
    first = (uint64_t)slice->first[--cut] * stride;
    stride *= (uint64_t)slice->of[cut];
    length *= (size_t)slice->here[cut];
  }
  if (length == 0) return (struct run){0};

  size_t within = from % length, row = from / length;
  for (size_t d = cut; d-- > 0;) {
    size_t here = (size_t)slice->here[d];
    if (here == 0) return (struct run){0};
    first += ((uint64_t)slice->first[d] + row % here) * stride;
    row /= here;
    stride *= (uint64_t)slice->of[d];
  }
  size_t left = length - within;
  return (struct run){first + within, left < most ? left : most};
}

// The place of an element among the bytes of a tensor with strides, in elements.
static uint64_t strided_place(const struct entry *entry, uint64_t element)
{
  uint64_t place = 0;
  for (size_t d = entry->ndim; d-- > 0;) {
    const uint64_t size = (uint64_t)entry->shape[d];
    place += element % size * (uint64_t)entry->strides[d];
    element /= size;
  }
  return place;
}

// Elements `first` .. first + count - 1 of a tensor with strides. They may be anywhere: if the
// range from the first to the last is little more than they are, it is read at once, else each by
// itself.
static bool read_strided(const struct safetensors *file, const struct entry *entry, uint64_t first,
                         size_t count, char *to, struct failure *why)
{
  enum { LITTLE_MORE = 8, MOST = 1 << 26 };
  const size_t size = safetensors_bits(entry->dtype) / 8;
  uint64_t low = UINT64_MAX, high = 0;
  for (size_t i = 0; i < count; i++) {
    const uint64_t place = strided_place(entry, first + i);
    if (place < low) low = place;
    if (place > high) high = place;
  }
  const uint64_t bytes = count ? (high - low + 1) * size : 0;
  char *between = bytes < MOST && bytes / LITTLE_MORE <= count * size ? malloc(bytes + 1) : NULL;
  const uint64_t at = file->data + entry->begin;
  bool ok = !between || read_bytes(file->fd, file->path, at + low * size, between, bytes, why);
  for (size_t i = 0; ok && i < count; i++) {
    const uint64_t place = strided_place(entry, first + i);
    if (between)
      memcpy(to + i * size, between + (place - low) * size, size);
    else
      ok = read_bytes(file->fd, file->path, at + place * size, to + i * size, size, why);
  }
  free(between);
  return ok;
}

bool safetensors_read(const struct safetensors *file, const struct entry *entry,
                      const struct slice *slice, size_t from, size_t count, void *to,
                      struct failure *why)
{
  size_t size = safetensors_bits(entry->dtype) / 8;
  for (char *next = to; count > 0;) {
    struct run run = slice_run(slice, from, count);
    uint64_t at = file->data + entry->begin + run.first * size;
    bool read = entry->strides ? read_strided(file, entry, run.first, run.count, next, why)
                               : read_bytes(file->fd, file->path, at, next, run.count * size, why);
    if (!read) return false;
    from += run.count;
    count -= run.count;
    next += run.count * size;
  }
  return true;
}

bool safetensors_write(int fd, const char *path, uint64_t at, size_t size,
                       const struct slice *slice, size_t from, size_t count, const void *data,
                       struct failure *why)
{
  for (const char *next = data; count > 0;) {
    struct run run = slice_run(slice, from, count);
    if (!write_bytes(fd, path, at + run.first * size, next, run.count * size, why)) return false;
    from += run.count;
    count -= run.count;
    next += run.count * size;
  }
  return true;
}

void slice_checksum(struct checksum *sum, const struct slice *slice, size_t size, size_t from,
                    size_t count, const void *data)
{
  for (const char *next = data; count > 0;) {
    struct run run = slice_run(slice, from, count);
    checksum_add(sum, run.first * size, next, run.count * size);
    from += run.count;
    count -= run.count;
    next += run.count * size;
  }
}

// ---- a new file's header -----------------------------------------------------------------------

static bool place_entries(struct entry *entries, size_t count, struct failure *why)
{
  uint64_t end = 0, bytes;
  for (unsigned bits = 64; bits >= 8; bits /= 2)
    for (size_t i = 0; i < count; i++) {
      struct entry *e = &entries[i];
      if (safetensors_bits(e->dtype) != bits) continue;
      if (!count_bytes(e, &bytes)) return failed(why, "%s is too large for a file", e->name);
      e->begin = end;
      if (__builtin_add_overflow(end, bytes, &end) || end > LONG_MAX)
        return failed(why, "the tensors are too large for a file");
      e->end = end;
    }
  return true;
}

static json_t *describe(const struct entry *e)
{
  json_t *shape = json_array();
  for (size_t d = 0; d < e->ndim; d++) json_array_append_new(shape, json_integer(e->shape[d]));
  json_t *info = json_pack("{s:s, s:o, s:[I, I]}", "dtype", e->dtype, "shape", shape,
                           "data_offsets", (json_int_t)e->begin, (json_int_t)e->end);
  if (info && json_array_size(shape) == e->ndim) return info;
  json_decref(info);
  return NULL;
}

// "crc32c": of the header, for now 0; "crc32c:w": "1a2b3c4d", and so on. Nothing if no tensor has a
// checksum.
static bool add_checksums(json_t *strings, const struct entry *entries, size_t count)
{
  bool ok = true, first = true;
  for (size_t i = 0; ok && i < count; i++) {
    const struct entry *e = &entries[i];
    if (!e->has_crc) continue;
    if (first) ok = json_object_set_new(strings, "crc32c", json_string("00000000")) == 0;
    first = false;
    size_t size = strlen(OF_TENSOR) + strlen(e->name) + 1;
    char *key = malloc(size);
    if (!key) return false;
    snprintf(key, size, "%s%s", OF_TENSOR, e->name);
    ok = ok && json_object_set_new(strings, key, json_sprintf("%08x", (unsigned)e->crc)) == 0;
    free(key);
  }
  return ok;
}

static json_t *make_header(const struct entry *entries, size_t count,
                           const char *const (*metadata)[2], size_t pairs, struct failure *why)
{
  json_t *header = json_object(), *strings = json_object();
  bool ok = true;
  for (size_t i = 0; i < pairs; i++)
    ok = json_object_set_new(strings, metadata[i][0], json_string(metadata[i][1])) == 0 && ok;
  ok = add_checksums(strings, entries, count) && ok;
  ok = json_object_set_new(header, METADATA, strings) == 0 && ok;
  if (!ok) failed(why, "the file's metadata is not UTF-8, or memory ended");
  for (size_t i = 0; ok && i < count; i++) {
    ok = json_object_set_new(header, entries[i].name, describe(&entries[i])) == 0;
    if (!ok) failed(why, "%s: its name is not UTF-8, or memory ended", entries[i].name);
  }
  if (ok && json_object_size(header) != count + 1)
    ok = failed(why, "two tensors of the file would have one name, or it is %s", METADATA);
  if (ok) return header;
  json_decref(header);
  return NULL;
}

// Writes the header's own checksum, if it has one.
static void seal_header(char *text, size_t length)
{
  char crc[CRC_DIGITS + 1], *digits = find_seal(text, length);
  if (!digits) return;
  snprintf(crc, sizeof crc, "%08x", (unsigned)header_crc(text, length, digits));
  memcpy(digits, crc, CRC_DIGITS);
}

bool safetensors_layout(struct entry *entries, size_t count, const char *const (*metadata)[2],
                        size_t pairs, char **head, size_t *length, struct failure *why)
{
  if (!place_entries(entries, count, why)) return false;
  json_t *header = make_header(entries, count, metadata, pairs, why);
  if (!header) return false;
  size_t text = json_dumpb(header, NULL, 0, JSON_COMPACT);
  size_t padded = (text + 7) / 8 * 8;
  char *bytes = text > 0 ? malloc(8 + padded) : NULL;
  bool ok = bytes && json_dumpb(header, bytes + 8, text, JSON_COMPACT) == text;
  json_decref(header);
  ok = !json_memory_ended() && ok;
  if (!ok || padded > LONGEST_HEADER) {
    free(bytes);
    return failed(why, ok ? "the header of the file would be above its limit"
                          : "out of memory for the header of a file");
  }
  memset(bytes + 8 + text, ' ', padded - text);
  seal_header(bytes + 8, padded);
  for (int i = 0; i < 8; i++) bytes[i] = (char)(padded >> 8 * i & 0xff);
  *head = bytes;
  *length = 8 + padded;
  return true;
}
