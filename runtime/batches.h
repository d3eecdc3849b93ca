// Where a program's inputs come from, batch by batch: files of tokens, or of samples. next_batch
// (program.h) hands out the training's.
//
// Tokens are a stream where nothing shuffles them: tokens.h. All else goes epoch by epoch: order.h.
#ifndef BATCHES_H
#define BATCHES_H

#include <stdbool.h>
#include <stdint.h>
#include "failure.h"

enum purpose { TRAINING, VALIDATION, PURPOSES };

// Opens the files told, up to a NULL; `form` is what --tokens says, or NULL. False, and why.
bool batches_open(enum purpose purpose, const char *const *told, const char *form,
                  struct failure *why);
bool batches_are_open(enum purpose purpose);

// Whether they give the training all of the program's inputs; tokens are only some of them.
bool batches_give_all(void);
void batches_close(void);

// What is open, for people to read: "text.txt, 65,536 bytes"; "" where nothing is.
const char *batches_summary(enum purpose purpose);

// Looks at the whole numbers of the batches first .. last - 1, this rank at its share of them.
// False, and why, where one is none that the program takes.
bool batches_check(enum purpose purpose, long first, long last, struct failure *why);

// How many batches all of what is open for validation are.
long batches_of_validation(void);

// Fills this rank's part of the inputs with batch number i, counted from 0. *weight: how many
// labels count in it that this rank tells of; where no labels are ignored it is samples, of which
// rank 0 tells. The sum over the ranks is the batch's weight in a mean. False, and why.
bool batches_fill(enum purpose purpose, long i, long *weight, struct failure *why);

// Where a batch of the training begins: behind so many tokens, however often the text has begun
// again; or at a sample of an epoch.
struct position {
  bool of_samples;
  uint64_t tokens, epoch, sample;
};
struct position batches_position(long batch);

// Batch number `batch` begins there, and the others lie before and behind it: what a checkpoint
// says. It may come before batches_open.
void batches_go_on(long batch, const struct position *at);

#endif
