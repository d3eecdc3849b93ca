// The files that --data and --validate name.
#ifndef INPUT_FILES_H
#define INPUT_FILES_H

#include <stddef.h>
#include "failure.h"

struct input_file {
  const char *input; // whose it is, where that was told: "target=labels.npy"; else NULL
  char *path;
};

struct input_files {
  struct input_file *all; // in the order told; of a pattern by their names
  size_t count;
};

// Each of what is told, up to a NULL, is a file; or a pattern of files, as "shards/*.bin"; either
// with the name of an input before it, as "target=labels.npy". False, and why, where a pattern fits
// no file or memory ends.
bool input_files_find(struct input_files *files, const char *const *told, struct failure *why);
void input_files_free(struct input_files *files);

#endif
