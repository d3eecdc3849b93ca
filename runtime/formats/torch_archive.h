// SPDX-License-Identifier: MIT
// Archives of torch.export: their tensors, read like those of a safetensors file.
#ifndef TORCH_ARCHIVE_H
#define TORCH_ARCHIVE_H

#include "formats/safetensors.h"

// Whether the file begins as a ZIP does.
bool torch_archive_is(const char *path);

// Opens an archive that torch.export.save of PyTorch 2.8 or later wrote: parameters, buffers and
// constants, under their names in the module's state. A tensor that is stored transposed is an
// error. False, and why, if it is invalid; then nothing is left open.
bool torch_archive_open(struct safetensors *file, const char *path, struct failure *why);

#endif
