// SPDX-License-Identifier: MIT
// A model's files beside its weights, for others that use it: config.json, generation_config.json,
// and the tokenizer's.
#ifndef MODEL_FILES_H
#define MODEL_FILES_H

#include "base/failure.h"

// Copies them from the folder of the job's weights, or of its checkpoint, to that of a save.
// config.json says float32 then, as the save has it, and no quantization. An older file stays, with
// a note if it differs. False, and why, if one cannot be written.
bool model_files_copy(const char *from, const char *to, struct failure *why);

#endif
