// Samples for the inputs of a program, from safetensors and .npy files.
//
// In a file an input has one dimension more to go through: where the program's is [32, 28, 28], it
// is [60000, 28, 28] there, 60,000 samples. Several files with an input follow one another. An
// input that is as large in the file as in the program, where others have more samples, is the same
// in every batch.
#ifndef DATA_SET_H
#define DATA_SET_H

#include "input_files.h"
#include "order.h"
#include "safetensors_set.h"

struct set_input;

struct data_set {
  struct archive *archives; // one for each file
  struct set_input *inputs; // one for each input of the program
  size_t narchives, ninputs;
  uint64_t samples, batch; // in all, and of a batch of the program's
  void *stage;
  char summary[256];
};

// Whether these files hold samples: of their names.
bool data_set_is(const struct input_files *files);

// False, and why; data_set_close in either case.
bool data_set_open(struct data_set *set, const struct input_files *files, struct failure *why);
void data_set_close(struct data_set *set);

// Looks at the whole numbers of samples first .. last - 1, this rank at its share of them. False,
// and why, where one is none that the program takes.
bool data_set_check(const struct data_set *set, uint64_t first, uint64_t last, struct failure *why);

// Fills this rank's part of all inputs with the samples of a stretch. Where that is shorter than a
// batch, what is missing are zeros, and labels that count for nothing. *labels grows by
// those of this rank's that count. False, and why.
bool data_set_fill(const struct data_set *set, const struct order *order, const struct stretch *of,
                   long *labels, struct failure *why);

// Of an input, all rows of a batch from row `first` on: zeros, and labels that count for nothing.
// `stage` has room for STAGED_BYTES.
void rows_pad(int row, long first, void *stage);

#endif
