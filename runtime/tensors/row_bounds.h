// SPDX-License-Identifier: MIT
// Rows by expert, if a rank has less room than the most rows that it may get: a note records that a
// count exceeds the room, and the rows beyond it are left out, so nothing is written there. The
// runtime ends the job (row_bounds.c).
#ifndef ROW_BOUNDS_H
#define ROW_BOUNDS_H

#include "base/failure.h"

// Where a rank notes it, as which of the program's row bounds, and for which module.
struct row_note {
  unsigned long long *at;
  int bound, module;
};

// A note is 0 if there was none; ANOTHER_RANK if a rank that this one exchanges rows with had too
// little room; else it has the number of rows, the bound and the module. The first one stays: after
// it numbers have no meaning.
enum { ROWS_AT = 32, NOTED_MODULE_AT = 16, NOTED_BITS = 0xffff, ANOTHER_RANK = 1 };

#ifdef __cplusplus
__device__ static inline void set_note(struct row_note n, unsigned long long note)
{
  atomicCAS(n.at, 0ull, note);
}
#define IN_ROW_KERNELS __device__ static inline
#else
static inline void set_note(struct row_note n, unsigned long long note)
{
  if (*n.at == 0) *n.at = note;
}
#define IN_ROW_KERNELS static inline
#endif

IN_ROW_KERNELS void note_rows(struct row_note n, long rows)
{
  set_note(n, (unsigned long long)rows << ROWS_AT | (unsigned)n.module << NOTED_MODULE_AT |
                  (unsigned)n.bound);
}

// The count of a rank's rows by expert, as far as there is room for them.
IN_ROW_KERNELS void held_counts(int *out, const int *counts, int experts, long room,
                                struct row_note note)
{
  long rows = 0, left = room;
  for (int e = 0; e < experts; e++) {
    rows += counts[e];
    out[e] = counts[e] < left ? counts[e] : (int)left;
    left -= out[e];
  }
  if (rows > room) note_rows(note, rows);
}

#ifdef __cplusplus
extern "C" {
#endif

// Between a step's backward and its update, collective: whether all rows of all ranks had room. If
// not, the step ends there, and step_has_ended_early() says so.
bool all_rows_have_room(void);
bool step_has_ended_early(void);

// Whether this rank's rows had room so far. False, and why; `when` and `then` are parts of the
// message.
bool rows_have_room(const char *when, const char *then, struct failure *why);

// From now on there are no notes.
void forget_rows(void);

#ifdef __cplusplus
}
#endif

#endif
