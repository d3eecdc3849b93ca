// SPDX-License-Identifier: MIT
// A program that generates: its run from the options of the command line.
#ifndef TEXT_GENERATE_H
#define TEXT_GENERATE_H

#include "base/failure.h"
#include "base/options.h"

// Collective, after the weights have been read. Rank 0 generates as the options ask, and the others
// follow. all_ranks_ok: main.c's.
bool text_generate(const struct options *o,
                   bool (*all_ranks_ok)(bool ok, const struct failure *why));

// Without other ranks: --encode's lines of {"text"} as {"ids", "ids_special", "decoded"}, to
// --output. False, and why.
bool text_encode(const struct options *o, struct failure *why);

#endif
