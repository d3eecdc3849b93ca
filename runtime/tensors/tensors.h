// SPDX-License-Identifier: MIT
// The program's tensors: filled from files or by Philox.
#ifndef TENSORS_H
#define TENSORS_H

#include <stdint.h>
#include "base/failure.h"
#include "tensors/checksums.h"
#include "tensors/surplus.h"

// The sources of tensors; NULL: no file.
struct origins {
  const char *weights;             // parameters, under the program's names or their aliases
  const char *const *more_weights; // further files of them, PATH or PREFIX=PATH, then NULL; or NULL
  struct surplus_patterns patterns; // of names in these files
  const char *adapter;              // adapters: PEFT's file or its folder
  const char *load;                 // parameters and state, from a checkpoint
  const char *best_name;            // of the best validation's measure in it
  const char *data;                 // the inputs, of one batch
  bool without_inputs;              // they are filled later, batch by batch
  bool checks_later;                // drawn integers are checked where they are used
  struct checks *checks;            // verifies weights and load; NULL: does not
  struct failure *note;             // on rank 0, what is unusual about a file; NULL: no note
};

// The progress of a checkpoint's training.
struct progress {
  int step;
  bool has_data,
      of_samples; // whether it records its position in the data; in samples, or in tokens
  uint64_t tokens, epoch, sample;
  bool has_validations; // their results: see validation_results.h
  double best;
  int best_step, without;
};

// Fills every PARAMETER, STATE and BATCH tensor of this rank. Tensors that are in no file are
// filled by their init. *at: the progress of the checkpoint `load`, else zeros. Makes the checks,
// one for each tensor of the program; they hold once their shares are combined over all ranks.
bool tensors_fill(const struct origins *from, struct progress *at, struct failure *why);

// Fills the inputs as tensors_fill does without a file.
bool tensors_draw_inputs(struct failure *why);

#endif
