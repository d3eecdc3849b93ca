// NumPy's .npy files: one array each, read as a safetensors file of one tensor.
#ifndef NPY_H
#define NPY_H

#include "safetensors.h"

// Whether a file of this name is one.
bool npy_is_named(const char *path);

// Opens it: its array is the file's one entry, under this name, which must stay. To be closed by
// safetensors_close. False, and why, where it is none, or its elements are of a type or in an order
// that is not read; then nothing is left open.
bool npy_open(struct safetensors *file, const char *path, const char *name, struct failure *why);

#endif
