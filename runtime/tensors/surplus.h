// SPDX-License-Identifier: MIT
// What a file of weights has beside the program's parameters, and what it may lack.
#ifndef SURPLUS_H
#define SURPLUS_H

#include "formats/safetensors_set.h"
#include "tensors/tensor_table.h"

// Lists of patterns for names, as a shell has them, with NULL behind the last; NULL: no list.
struct surplus_patterns {
  const char *const *ignore, *const *allow_missing;
};

// Whether a tensor that the program does not have may be in the file: a buffer that other versions
// of a model saved, a head that is its embedding, or what `ignore` names. *noted: grows by one
// where this is worth a note. False, and why: it may not.
bool surplus_takes(const struct archive *archive, const struct kept *surplus,
                   const struct members *members, const struct surplus_patterns *patterns,
                   size_t *noted, struct failure *why);

// PyTorch's count of the batches that a BatchNorm has seen: nothing that a program does depends on
// it.
bool is_count_of_batches(const char *name);

// A layer that a PEFT model has wrapped, in a file of all its tensors; refuses it, and returns
// false.
bool surplus_is_base_layer(const char *name);
bool surplus_refuse_base_layer(const struct archive *archive, const char *name,
                               struct failure *why);

// The tensor of the file that is the member under another name: the head of a model whose embedding
// is its head, or NULL.
const struct kept *surplus_tied(const struct archive *archive, const struct member *m,
                                const struct members *members);

// Whether one of the patterns fits the member's name or alias.
bool surplus_may_lack(const struct member *m, const struct surplus_patterns *patterns);

#endif
