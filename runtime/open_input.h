// Opens what a command line names, without ever waiting for it: a path may lead to a FIFO or a
// device.
#ifndef OPEN_INPUT_H
#define OPEN_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include "failure.h"

#ifdef __cplusplus
extern "C" {
#endif

// A regular file, to be read: its descriptor, and its size in bytes. -1, and why, where it is none.
int open_regular(const char *path, uint64_t *size, struct failure *why);

// A file to be written anew, or a device or FIFO that takes it; NULL, and why, where it cannot be,
// or where nobody reads the FIFO.
FILE *create_stream(const char *path, struct failure *why);

// Lets so many files and sockets be open at once, as far as the system allows.
void raise_file_limit(size_t files);

#ifdef __cplusplus
}
#endif

#endif
