// SPDX-License-Identifier: MIT
// Opens paths of the command line without blocking: a path may lead to a FIFO or a device.
#ifndef OPEN_INPUT_H
#define OPEN_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include "base/failure.h"

#ifdef __cplusplus
extern "C" {
#endif

// Opens a regular file for reading: its descriptor, and its size in bytes. -1, and why, if it is
// not one.
int open_regular(const char *path, uint64_t *size, struct failure *why);

// Creates or truncates a file for writing, or opens a device or FIFO; NULL, and why, if that fails,
// or if the FIFO has no reader.
FILE *create_stream(const char *path, struct failure *why);

// Raises the limit of open files and sockets to this number, as far as the system allows.
void raise_file_limit(size_t files);

// Creates the directory and its parents, if they are missing.
bool folder_make(const char *path, struct failure *why);

#ifdef __cplusplus
}
#endif

#endif
