// SPDX-License-Identifier: MIT
// Batches of a program's inputs, read from files of tokens or of samples. next_batch (program.h)
// fills the inputs with the batches of the training.
//
// Tokens that are not shuffled are read as a stream (tokens.h); all other data epoch by epoch
// (order.h).
#ifndef BATCHES_H
#define BATCHES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/failure.h"

// FORWARD: all samples for a program that only goes forward; the last batch may be smaller.
enum purpose { TRAINING, VALIDATION, FORWARD, PURPOSES };

// Opens the files of the NULL-terminated list; `form` is the value of --tokens, or NULL. False, and
// why.
bool batches_open(enum purpose purpose, const char *const *names, const char *form,
                  struct failure *why);
bool batches_are_open(enum purpose purpose);

// Whether the training's tokens are the bytes of its files.
bool batches_are_bytes(void);

// Whether the data sets all inputs of the program; token files set only some of them.
bool batches_give_all(void);
void batches_close(void);
void batches_close_one(enum purpose purpose);

// A description of the open files: "text.txt, 65,536 bytes"; "" if none is open.
const char *batches_summary(enum purpose purpose);

// Checks this rank's share of the integers of the batches first .. last - 1. False, and why, if one
// is out of range.
bool batches_check(enum purpose purpose, long first, long last, struct failure *why);

// The number of batches in the whole data; 0 of a stream of tokens.
long batches_of_epoch(enum purpose purpose);

// The samples, or windows of tokens, of a whole batch; 0 of a stream of tokens.
uint64_t batches_samples(enum purpose purpose);

// Those of the whole data; 0 of a stream of tokens.
uint64_t batches_all_samples(enum purpose purpose);

// Fills this rank's part of the inputs with batch number i, counted from 0. *samples: how many the
// batch has; 0 of a stream of tokens. False, and why.
bool batches_fill(enum purpose purpose, long i, uint64_t *samples, struct failure *why);

// The start of a training batch: the number of tokens before it, over all passes through the text;
// or an epoch and a sample of it.
struct position {
  bool of_samples;
  uint64_t tokens, epoch, sample;
};
struct position batches_position(long batch);

// Sets the position of batch number `batch`, as a checkpoint states it; the others are before and
// after it. May be called before batches_open.
void batches_go_on(long batch, const struct position *at);

#endif
