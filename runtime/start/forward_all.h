// SPDX-License-Identifier: MIT
// A program that only goes forward, over all samples of files: batch by batch, with one file of
// outputs.
#ifndef FORWARD_ALL_H
#define FORWARD_ALL_H

#include <stdbool.h>
#include "base/failure.h"
#include "base/options.h"
#include "checkpoint/checkpoint.h"

// Opens the files of --data or --evaluate, if these are more than the one batch that is read with
// the weights (forward_all_is_due). False, and why.
bool forward_all_open(const struct options *o, struct failure *why);
bool forward_all_is_due(void);

// Collective. Runs all batches, and saves the outputs of all samples as `what` says; NULL: saves
// nothing.
bool forward_all(const struct saving *what);

#endif
