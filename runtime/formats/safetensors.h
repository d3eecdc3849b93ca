// SPDX-License-Identifier: MIT
// safetensors files: a strict reader, and a writer by slices.
//
// A file is a little-endian u64 length, a JSON header of that many bytes, and the tensors' data:
//
//   | length | {"__metadata__": {..}, "w": {"dtype": "F32", "shape": [5, 32],    | data ...      |
//   |        |                              "data_offsets": [0, 640]}, ...}      | 0 .. 640 ..   |
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>
#include "base/failure.h"
#include "formats/crc32c.h"

struct json_t;

struct entry {
  const char *name;
  const char *dtype; // "F32"
  size_t ndim;
  const long *shape;
  uint64_t begin, end; // bytes, from the start of the data
  const long *strides; // of its elements, if they are not in row-major order; else NULL
  bool is_constant;    // of an archive of torch.export: no parameter, and in no state_dict
  bool has_crc;
  uint32_t crc; // CRC-32C of its bytes, if the file has it
};

// The state of a header's own checksum; checkpoints have one.
enum seal { UNSEALED, INTACT, BROKEN };

struct safetensors {
  char *path;
  int fd;
  uint64_t data; // where the data starts in the file
  size_t count;
  struct entry *entries; // ascending by name
  size_t prefix;         // letters that archive_join has put before each name
  struct json_t *header; // owns the strings
  enum seal seal;
  bool has_others;  // it may hold tensors that no program needs
  char exported[9]; // of an archive of torch.export: the CRC-32 of its program
};

// A rank's part of a tensor: `here` elements from `first` on, of `of`; row-major, all with ndim
// dimensions. A size of `here` may be 0.
struct slice {
  size_t ndim;
  const long *of, *here, *first;
};

// Elements that are contiguous both in the whole tensor and in the slice.
struct run {
  uint64_t first; // in the whole tensor
  size_t count;
};

// Bits of an element; 0 for an unknown dtype.
unsigned safetensors_bits(const char *dtype);

// Whether the path ends as that of such a file.
bool safetensors_is_named(const char *path);

// Opens and validates a file like the reference library; also refuses duplicate keys. False, and
// why, with the file's name, if it is invalid; then nothing is left open.
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

// Adds them to the checksum of the whole tensor; an element has `size` bytes. All elements of a
// slice must be added, in ascending order.
void slice_checksum(struct checksum *sum, const struct slice *slice, size_t size, size_t from,
                    size_t count, const void *data);

// Computes the layout of a new file: sets begin and end of each tensor, wide elements first so that
// all are aligned, and makes all bytes before the data: *head, to be freed by the caller, of
// *length. `metadata` has `pairs` keys and values. If tensors have checksums, these follow, and one
// of the header; *length does not depend on their values. False, and why, if a name is not UTF-8 or
// out of memory.
bool safetensors_layout(struct entry *entries, size_t count, const char *const (*metadata)[2],
                        size_t pairs, char **head, size_t *length, struct failure *why);

// Writes the slice's own elements from .. from + count - 1 of the tensor whose data starts at byte
// `at` of the file; an element has `size` bytes.
bool safetensors_write(int fd, const char *path, uint64_t at, size_t size,
                       const struct slice *slice, size_t from, size_t count, const void *data,
                       struct failure *why);

#endif
