// The program's tensors: filled from files or by Philox.
#ifndef TENSORS_H
#define TENSORS_H

#include "failure.h"

// Where tensors come from; NULL: no file.
struct origins {
  const char *weights; // parameters, under the program's names or their aliases
  const char *load;    // parameters and state, as a checkpoint has them
  const char *data;    // the inputs
};

// Fills every PARAMETER, STATE and BATCH tensor of this rank. What no file gives comes from its
// init. *step is where training stands: the step that `load` was saved after, else 0.
bool tensors_fill(const struct origins *from, int *step, struct failure *why);

#endif
