// SPDX-License-Identifier: MIT
// NumPy's .npy files: one array each, read as a safetensors file of one tensor.
#ifndef NPY_H
#define NPY_H

#include "formats/safetensors.h"

// Whether the file has such a name.
bool npy_is_named(const char *path);

// Opens it: its array is the file's one entry, under this name, which must stay valid. Close it
// with safetensors_close. False, and why, if it is no such file, or the type or the order of its
// elements is not supported; then nothing is left open.
bool npy_open(struct safetensors *file, const char *path, const char *name, struct failure *why);

#endif
