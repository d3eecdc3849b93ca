// The program's tensors: filled from files or by Philox.
#ifndef TENSORS_H
#define TENSORS_H

#include "failure.h"
#include "checksums.h"

// Where tensors come from; NULL: no file.
struct origins {
  const char *weights;   // parameters, under the program's names or their aliases
  const char *load;      // parameters and state, as a checkpoint has them
  const char *data;      // the inputs, of one batch
  bool without_inputs;   // they are filled batch by batch, and not here
  struct checks *checks; // what is read of weights and load is checked; NULL: it is not
};

// Fills every PARAMETER, STATE and BATCH tensor of this rank. What no file gives comes from its
// init. *step is where training stands: the step that `load` was saved after, else 0. The checks
// are made here, one for each tensor of the program, and hold once their shares are those of all
// ranks.
bool tensors_fill(const struct origins *from, int *step, struct failure *why);

// Fills the inputs as tensors_fill does where no file gives them.
bool tensors_draw_inputs(struct failure *why);

#endif
