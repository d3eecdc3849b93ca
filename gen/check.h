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
/* check_places.c. The program is run from begin_run to end_run with fewer rounds of long loops than
   there are: gives the most rounds of any. Modules are numbered among those that are run. */
int begin_run(void);
void end_run(void);

/* A value, and its place among those of its family. */
struct one {
  int value, index; /* index NONE: it is a module's that is left out */
};
/* What is meant by a value where `module` is at work, NONE: outside of loops. */
struct one one_of(int value, int module);

/* Of a value that is looked at. There are many of which none needs to be known. */
struct known {
  int modules;        /* of a family's first: how many there are of it */
  int *members;       /* if these have places of their own: they, by module of those that are run */
  int own, grad, sum; /* which places are its own, its gradient's, that of the sum for it; NONE */
  int left;           /* check_memory.c: where the numbers begin that were left for it; NONE */
};
struct known *known_of(int value);

/* Bytes: `from` up to `to`, of the arena or of the places of their own. There the first `bytes` are
   the value's, and those behind them of modules that are left out. */
struct place {
  bool own;
  int64_t from, to, bytes;
};
/* Where the value lies, which is not of a module that is left out; the piece of a place that is the
   k-th of n. */
struct place place_of(int value, int module);
struct place piece_of(struct place p, int k, int n);

/* Which pieces of a value an operation (NULL: none) touches: from the first up to the last. Of a
   family in pieces others than what stands for it, `one`, are touched as a whole. */
struct pieces {
  int first, end, all;
};
struct pieces pieces_of(const struct op *op, int value, struct one one);

/* Stretches of bytes that are known to be alike, each with a row of `width` numbers, 0 at first;
   one ends where the next begins. */
struct space {
  int n, room, width;
  int64_t *from;
  int *row;
};
struct bytes {
  struct space arena, own;
};
struct stretches {
  struct space *in;
  int first, n;
};
void open_bytes(struct bytes *b, int width);
/* The stretches of a place: cut at its ends, or, for a look, with what is around it. */
struct stretches stretches_of(struct bytes *b, struct place p, bool cut);
int *row_of(struct stretches s, int k);
/* They become one stretch, with the first one's row. */
void make_one(struct stretches s);

/* check_memory.c: that every value is found where it is read. */
void check_memory(void);

#endif
