// SPDX-License-Identifier: MIT
// Tensors in one safetensors file, or in several that an index lists.
#ifndef SAFETENSORS_SET_H
#define SAFETENSORS_SET_H

#include "formats/safetensors.h"

// A tensor and its file.
struct kept {
  const struct safetensors *file;
  const struct entry *entry;
  const struct kept *const *stack; // it is these, each an index of its first dimension; or NULL
  struct packed *packed;           // it is read by packed_read; or NULL
};

// Tensors of equal shapes, as one.
struct stack {
  struct kept kept;
  struct entry entry;
  long *shape;
  const struct kept **members;
  struct stack *next;
};

struct archive {
  char *path; // of the file, or of the index
  struct safetensors *files;
  size_t nfiles;
  struct kept *all; // ascending by name
  size_t count;
  struct stack *stacks;
  struct packed *packed; // of two tensors each
  struct names *names;   // that have a prefix
  char *stale;           // a tensor that the index lists and no file has; NULL: none
};

// Opens a safetensors file; an archive of torch.export; an index, whose name ends with .index.json;
// or a folder with model.safetensors or, failing that, model.safetensors.index.json. Every file of
// an index is validated, and its tensors must be those that the index lists for it; the index may
// list some that no file has. False, and why, on any error; then nothing is left open.
bool archive_open(struct archive *archive, const char *path, struct failure *why);
void archive_close(struct archive *archive);
// Adds the tensors of another one, whose names get the prefix; it must have none of the same names.
// The other one is closed, also where that fails.
bool archive_join(struct archive *archive, struct archive *other, const char *prefix,
                  struct failure *why);

// The tensor of that name, or NULL.
const struct kept *archive_find(const struct archive *archive, const char *name);

// The `count` tensors "a.0.b", "a.1.b" and so on, for the name "a.{}.b", as one tensor. *found is
// NULL if there is none of them. False, and why, if some are missing or differ.
bool archive_stack(struct archive *archive, const char *name, long count, const struct kept **found,
                   struct failure *why);

// The name for an index: "a.3.b". False if it does not fit.
bool stacked_name(const char *name, long index, char *to, size_t size);

// One checksum of the names and checksums of several tensors, independent of their order: that of a
// set is the exclusive or of those of its parts.
uint32_t entries_crc(const struct entry *entries, size_t count);

// A value of `__metadata__` that is the same in all files, or NULL.
const char *archive_metadata(const struct archive *archive, const char *key);

#endif
