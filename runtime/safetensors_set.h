// Tensors in one safetensors file, or spread over several that an index lists.
#ifndef SAFETENSORS_SET_H
#define SAFETENSORS_SET_H

#include "safetensors.h"

// A tensor and the file that it lies in.
struct kept {
  const struct safetensors *file;
  const struct entry *entry;
};

struct archive {
  char *path; // of the file, or of the index
  struct safetensors *files;
  size_t nfiles;
  struct kept *all; // ascending by name
  size_t count;
};

// Opens a safetensors file; an index, whose name ends with .index.json; or a folder that has
// model.safetensors or, where it has not, model.safetensors.index.json. Every file of an index is
// judged, and holds what the index says and no more. False, and why, where something is amiss;
// then nothing is left open.
bool archive_open(struct archive *archive, const char *path, struct failure *why);
void archive_close(struct archive *archive);

// The tensor of that name, or NULL.
const struct kept *archive_find(const struct archive *archive, const char *name);

// One number for what is told of several tensors by their names and checksums, in whichever order:
// of a set of them the exclusive or of the numbers of its parts.
uint32_t entries_crc(const struct entry *entries, size_t count);

// A value of `__metadata__`, the same in all files, or NULL.
const char *archive_metadata(const struct archive *archive, const char *key);

#endif
