// SPDX-License-Identifier: MIT
// Work with files that all ranks do together. Each part is "collective": every rank calls it, and
// all of them succeed or none does.
#ifndef TOGETHER_H
#define TOGETHER_H

#include "base/failure.h"
#include "checkpoint/checkpoint.h"
#include "tensors/tensors.h"

enum { FILES = 10 }; // deadlines: some ranks may have much to read or write, and others nothing

// True if all ranks are ok; else reports why the first that is not: in a program on standard error,
// in a library as the error of the call. Defined by main.c and library.c.
bool all_ranks_ok(bool ok, const struct failure *why);

// Whether all ranks have one table of tensors: their places in files follow from it. Else reports
// why not.
bool table_is_of_all_ranks(void);

// Saves.
bool save_together(const struct saving *what);

// The same in parts: what comes before the ranks write, and behind it; the caller writes in
// between. NULL: it has failed, and that is reported.
struct save *save_begin_together(const struct saving *what);
bool save_end_together(struct save *s, bool ok);

// Fills the tensors as tensors_fill does, and verifies files that have checksums if `checked` is
// true.
bool fill_together(struct origins *from, bool checked, int *step);

#endif
