/* schedule.h: what schedule.c and overlap.c share. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "tpgen.h"

/* The most that is alive while some of a function's operations run in this order, over what was
   before it. */
int64_t peak_of(const int *op, int n);
/* Prepares for this function's operations. */
void enter_function(const struct function *f);

/* Whether the value is a view, which has no bytes of its own: it shows those of what it reads. */
bool has_no_bytes(int value);

/* overlap.c: before the first function; and lets the function's collectives run beside other
   operations. Those that loops call come first. most_live: in the program as it stands. */
void open_overlap(void);
void overlap_function(struct function *f, int64_t most_live);

#endif
