// SPDX-License-Identifier: MIT
// The moving average of the weights (train{ema =}) in the place of the weights: --ema.
#ifndef EMA_H
#define EMA_H

#include <stdbool.h>
#include "base/failure.h"

// Prepares for ema_exchange. False, and why, if out of memory.
bool ema_open(struct failure *why);

// After step t, exchanges the weights and their averages; called again, it puts them back to the
// bit. Weights without an average stay, and so do all if ema_open was not called, or before the
// first step.
void ema_exchange(int t);

void ema_close(void);

#endif
