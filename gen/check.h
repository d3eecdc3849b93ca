/* check.h: what check.c and its parts share. */
#ifndef CHECK_H
#define CHECK_H

#include "tpgen.h"

/* The pass after which check() looks at the program; and its assertion: where it does not hold,
   bug() tells of that pass. */
extern const char *checked_pass;
void hold(bool fact, int op, const char *what);

/* check_moves.c: that an operation which moves data does what it says; before the first of a check
   begin_moves. */
void begin_moves(void);
void check_moves_of(int id);
/* check_memory.c: that every value is found where it is read. */
void check_memory(void);

#endif
