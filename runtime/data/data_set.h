// SPDX-License-Identifier: MIT
// Samples for the inputs of a program, from safetensors and .npy files.
//
// In a file the first dimension of an input counts samples: an input [32, 28, 28] of the program is
// [60000, 28, 28] in the file, 60,000 samples. Several files with the same input are concatenated.
// An input that has the program's size in the file, while others have more samples, is the same in
// every batch.
#ifndef DATA_SET_H
#define DATA_SET_H

#include "data/input_files.h"
#include "data/shuffle.h"
#include "formats/safetensors_set.h"

struct set_input;

struct data_set {
  struct archive *archives; // one for each file
  struct set_input *inputs; // one for each input of the program
  size_t narchives, ninputs;
  uint64_t samples, batch; // in all, and in a batch of the program
  void *stage;
  char summary[256];
};

// Whether these files hold samples, by their names.
bool data_set_is(const struct input_files *files);

// False, and why; data_set_close in either case.
bool data_set_open(struct data_set *set, const struct input_files *files, struct failure *why);
void data_set_close(struct data_set *set);

// Checks this rank's share of the integers of samples first .. last - 1. False, and why, if one is
// out of range.
bool data_set_check(const struct data_set *set, uint64_t first, uint64_t last, struct failure *why);

// Fills this rank's part of all inputs with a range of samples. If that is shorter than a
// batch, the rest is zeros and ignored labels. False, and why.
bool data_set_fill(const struct data_set *set, const struct order *order,
                   const struct sample_range *of, struct failure *why);

// Pads all rows of an input in a batch from row `first` on: zeros, and ignored labels. `stage` has
// room for STAGED_BYTES.
void rows_pad(int row, long first, void *stage);

#endif
