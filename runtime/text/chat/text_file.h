// SPDX-License-Identifier: MIT
// Files of text, whole and by lines.
#ifndef TEXT_FILE_H
#define TEXT_FILE_H

#include <stddef.h>
#include "base/failure.h"

// The bytes of a file, with a zero after them; to be freed. NULL, and why, if it cannot be read.
char *whole_file(const char *path, size_t *length, struct failure *why);

// Calls `take` with each line of the file that is not empty; `where` names it. False, and why, if
// that gave false or the file cannot be read.
bool each_line(const char *path,
               bool (*take)(void *to, const char *line, size_t length, const char *where,
                            struct failure *why),
               void *to, struct failure *why);

#endif
