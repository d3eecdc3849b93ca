// SPDX-License-Identifier: MIT
// The files that --data and --validate name.
#ifndef INPUT_FILES_H
#define INPUT_FILES_H

#include <stddef.h>
#include "base/failure.h"

struct input_file {
  const char *input; // the input it belongs to, if given: "target=labels.npy"; else NULL
  char *path;
};

struct input_files {
  struct input_file *all; // in the given order; those of a pattern by name
  size_t count;
};

// Each entry of the NULL-terminated list is a file, or a pattern of files, such as "shards/*.bin";
// either may follow the name of an input, as in "target=labels.npy". False, and why, if a pattern
// matches no file or out of memory.
bool input_files_find(struct input_files *files, const char *const *names, struct failure *why);
void input_files_free(struct input_files *files);

#endif
