// SPDX-License-Identifier: MIT
// Weights that a file has in fewer bits than their type, with scales beside them; read as float32.
//
//   w, w_scale_inv       float8 (E4M3), a scale for each block of 128 x 128, or as config.json
//   beside
//                        the file says (DeepSeek)
//   w_blocks, w_scales   MXFP4: [experts, outputs, inputs / 32, 16] bytes of two numbers each, a
//   power
//                        of two for each 32; read as w [experts, inputs, outputs] (gpt-oss)
#ifndef PACKED_H
#define PACKED_H

#include "formats/safetensors.h"

struct kept;
struct archive;
struct packed;

// Makes one tensor of each such pair in archive->all. False, and why, if the shapes of a pair do
// not fit each other.
bool packed_join(struct archive *archive, struct failure *why);
void packed_free(struct archive *archive);

// Reads the slice's own elements from .. from + count - 1.
bool packed_read(struct packed *p, const struct slice *slice, size_t from, size_t count, float *to,
                 struct failure *why);

#endif
