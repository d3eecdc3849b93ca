// SPDX-License-Identifier: MIT
// The order of a data set's samples: epoch by epoch, each sample once per epoch.
//
// The sample at a position is a function of the seed, the epoch and the position in it: every rank
// of every mesh knows it without communication, and a resumed job continues at any position.
#ifndef ORDER_H
#define ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct order {
  uint64_t samples; // of the data set, at least 1
  uint64_t batch;   // samples of a batch
  bool drops;       // drops the incomplete batch at the end of an epoch
  bool shuffles;    // each epoch has its own order, by the seed
  unsigned long long seed;
  // Batch number `first` begins at this sample of this epoch; all are 0 at the start of training.
  long first;
  uint64_t epoch, sample;
};

// The samples of a batch: sample .. sample + count - 1 of an epoch's order.
struct sample_range {
  uint64_t epoch, sample, count;
};

// Whether an epoch has a batch at all.
bool order_has_batches(const struct order *o);

// Batch number `batch`, which is not before `first`.
struct sample_range order_batch(const struct order *o, long batch);

// The sample of the data set at a position of an epoch's order.
uint64_t order_sample(const struct order *o, uint64_t epoch, uint64_t place);

#endif
