/* check.h: what check.c and its parts share. */
#ifndef CHECK_H
#define CHECK_H

#include "tpgen.h"

/* The pass after which check() looks at the program; and its assertion: where it does not hold,
   bug() tells of that pass. */
extern const char *checked_pass;
void hold(bool fact, int op, const char *what);

/* Whether an operation was looked at before, in this way, that is the same in all that is to be
   seen: its rule, what it moves, and how its operands lie when this check began. */
enum { LIES_IN_NO_WAY = 1, IS_STEP = 2, IS_MOVE = 4, IS_COPIED = 8 };
bool is_known(const struct op *op, int way);

/* check_moves.c: that an operation which moves data does what it says; before the first of a check
   begin_moves. */
void begin_moves(void);
void check_moves_of(int id);
/* check_memory.c: that every value is found where it is read. */
void check_memory(void);

#endif
