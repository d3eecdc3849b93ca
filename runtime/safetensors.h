// safetensors files: a strict reader of what others wrote, and a writer by slices.
//
// A file is a little-endian u64 length, a JSON header of that many bytes, and the tensors' data:
//
//   | length | {"__metadata__": {..}, "w": {"dtype": "F32", "shape": [5, 32],    | data ...      |
//   |        |                              "data_offsets": [0, 640]}, ...}      | 0 .. 640 ..   |
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>
#include "crc32c.h"
#include "failure.h"

struct json_t;

struct entry {
  const char *name;
  const char *dtype; // "F32"
  size_t ndim;
  const long *shape;
  uint64_t begin, end; // bytes, from the start of the data
  bool has_crc;
  uint32_t crc; // CRC-32C of its bytes, where the file says it
};

// What a header's own checksum says of it: a checkpoint has one.
enum seal { UNSEALED, INTACT, BROKEN };

struct safetensors {
  char *path;
  int fd;
  uint64_t data; // where the data starts in the file
  size_t count;
  struct entry *entries; // ascending by name
  struct json_t *header; // owns the strings
  enum seal seal;
};

// A rank's part of a tensor: `here` elements from `first` on, of `of`; row-major, all of ndim.
// A size of `here` may be 0.
struct slice {
  size_t ndim;
  const long *of, *here, *first;
};

// Elements that lie side by side in the whole tensor and in the slice.
struct run {
  uint64_t first; // in the whole tensor
  size_t count;
};

// Bits of an element, 0 where the name is no dtype.
unsigned safetensors_bits(const char *dtype);

// Opens and judges a file as the reference library does, and refuses duplicate keys besides.
// False, and why with the file's name, where it is not one; then nothing is left open.
bool safetensors_open(struct safetensors *file, const char *path, struct failure *why);
void safetensors_close(struct safetensors *file);

// The tensor of that name, or NULL.
const struct entry *safetensors_find(const struct safetensors *file, const char *name);

// A value of `__metadata__`, or NULL.
const char *safetensors_metadata(const struct safetensors *file, const char *key);

size_t slice_elements(const struct slice *slice);

// The run that starts at the slice's own element `from`, of at most `most` elements.
struct run slice_run(const struct slice *slice, size_t from, size_t most);

// Reads the slice's own elements from .. from + count - 1 of a tensor into `to`.
bool safetensors_read(const struct safetensors *file, const struct entry *entry,
                      const struct slice *slice, size_t from, size_t count, void *to,
                      struct failure *why);

// Adds them to the checksum of the whole tensor; an element has `size` bytes. Of a slice all
// elements, upwards.
void slice_checksum(struct checksum *sum, const struct slice *slice, size_t size, size_t from,
                    size_t count, const void *data);

// Lays out the tensors of a new file: fills in begin and end of each, wide elements first so that
// all are aligned, and makes all bytes before the data: *head, for the caller to free, of *length.
// `metadata` holds `pairs` keys and values. Where tensors have checksums these follow, and one of
// the header; *length does not depend on what they are. False, and why, where a name is no UTF-8 or
// memory ends.
bool safetensors_layout(struct entry *entries, size_t count, const char *const (*metadata)[2],
                        size_t pairs, char **head, size_t *length, struct failure *why);

// Writes the slice's own elements from .. from + count - 1 into the tensor whose data starts at
// byte `at` of the file; an element has `size` bytes.
bool safetensors_write(int fd, const char *path, uint64_t at, size_t size,
                       const struct slice *slice, size_t from, size_t count, const void *data,
                       struct failure *why);

#endif
