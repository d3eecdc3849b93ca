// SPDX-License-Identifier: MIT
// Low-rank adapters (LoRA): parameters NAME.lora_A.weight and NAME.lora_B.weight of a program,
// which adds scale B A to NAME.weight as it computes. Their files are PEFT's:
// adapter_model.safetensors, and adapter_config.json beside it.
#ifndef ADAPTERS_H
#define ADAPTERS_H

#include <stdint.h>
#include "base/failure.h"
#include "tensors/tensor_table.h"

static const char ADAPTER_FILE[] = "adapter_model.safetensors";
static const char ADAPTER_CONFIG[] = "adapter_config.json";

// Whether the tensor of this name is a part of an adapter.
bool adapters_have(const char *name);

// The file of adapters at `path`, which is that file or its folder. False, and why, if the folder's
// adapter_config.json describes other adapters than the program's.
bool adapters_find_file(const char *path, char *to, size_t room, struct failure *why);

// Merging, for an export. begin copies this rank's parts of all adapters; the exclusive or of the
// numbers over all ranks completes them; add adds scale B A to the elements
// from .. from + count - 1 of this rank's slice of a weight. A weight without an adapter stays as
// it is.
bool adapters_begin(const struct members *members, struct failure *why);
uint32_t *adapters_numbers(size_t *count);
void adapters_add(const struct member *weight, size_t from, size_t count, void *elements);
void adapters_end(void);

// Writes adapter_config.json into the folder. base: the path of the weights, or NULL. token: of the
// job.
bool adapters_describe(const char *folder, const char *base, const char *token,
                       struct failure *why);

#endif
