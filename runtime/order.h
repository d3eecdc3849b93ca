// In which order a data set's samples come: epoch by epoch, in each of them every sample once.
//
// Which sample comes when is a function of the seed, the epoch and the place in it: every rank of
// every mesh knows it without asking, and a resumed job goes on at any place.
#ifndef ORDER_H
#define ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct order {
  uint64_t samples; // of the data set, at least 1
  uint64_t batch;   // so many of them are a batch
  bool drops;       // what is left behind an epoch's last whole batch is left out
  bool shuffles;    // each epoch has an order of its own, by the seed
  unsigned long long seed;
  // Batch number `first` begins at this sample of this epoch; all are 0 where training begins.
  long first;
  uint64_t epoch, sample;
};

// What a batch is of: samples sample .. sample + count - 1 of an epoch's order.
struct stretch {
  uint64_t epoch, sample, count;
};

// Whether an epoch has a batch at all.
bool order_has_batches(const struct order *o);

// Batch number `batch`, which is not before `first`.
struct stretch order_batch(const struct order *o, long batch);

// Which sample of the data set is the one at a place of an epoch's order.
uint64_t order_sample(const struct order *o, uint64_t epoch, uint64_t place);

#endif
