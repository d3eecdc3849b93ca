/* schedule.h: what schedule.c and overlap.c share. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "tpgen.h"

/* Lists that are filled anew for each operation, and made wide enough for what it reads, or writes.
   schedule.c. */
extern int *read_list, *write_list;
void widen_lists(const struct op *op);
/* The most that is alive while some of a function's operations run in this order, over what was
   before it. */
int64_t peak_of(const int *op, int n);
/* What lives at once is asked of one order after the other, and each time all of the program is
   gone through: whether it may be once more, where `of` counts the operations and `most` bounds
   them. */
bool may_ask_again(int64_t *of, int64_t most);
/* Prepares for this function's operations. */
void enter_function(const struct function *f);

/* Whether the value is a view, which has no bytes of its own: it shows those of what it reads. */
bool has_no_bytes(int value);

/* The value that speaks for all whose bytes are, or may be, the same: of a view what it shows, of a
   family its first, of what is added up in place its parameter, as nvalue and more. overlap.c. */
int byte_speaker(int value);
/* Longer functions are ordered in parts. */
enum { LONGEST_ORDERED = 512 };

/* Whether the collective can begin when the other one is done, whatever else is at work: all that
   it reads that one makes, and nothing has to be copied for it. overlap.c. */
bool can_follow(const struct op *op, const struct op *leader);

/* ahead.c: lets the collectives of a loop's body run beside other operations, some of them beside
   those of another round. most_live: in the program as it stands; gives what may live in it
   then. */
int64_t overlap_body(int body, int64_t most_live);
/* The plan's error where it asks for prefetch, and nothing could be begun ahead. */
void check_prefetch(void);
/* Whether the operation touches the gradients that this one makes for any module of a list. */
bool touches_gradients_of(const struct op *op, const struct op *reduction);
/* How long the function takes as it was ordered last, by the model. overlap.c. */
int64_t time_of_function(int function);

/* last_round.c: lets what a phase's function gathers behind a loop begin in the loop's last round.
   most_live: what may live in the program. */
void begin_in_last_rounds(int function, int64_t most_live);
/* What is pending when the loop has ended takes so long from there. overlap.c. */
void leave_pending(int collective, int body, int64_t time);
/* What ahead.c and last_round.c change functions by. An await of the collective; a call of the
   function, on its behalf; a part of a body, of these operations, whose name ends so; the function
   with an operation more, or less. ahead.c */
int await_of(int collective);
int call_for(int function, enum round round, int far, const struct op *collective);
int add_part(int body, const char *name, const struct list *op);
void insert(struct function *f, int at, int op);
void leave_out(struct function *f, int op);
/* Whether the collective may be pending from one round to another, and takes longer than that does.
   A piece goes with its products. */
bool is_worth_it(const struct op *op);
/* The program's functions as they were, to go back to: a new order is a new list. */
struct state {
  int nfunction;
  struct function *function;
};
struct state remember_functions(void);
void go_back(const struct state *to);

/* overlap.c: before the first function; and lets the function's collectives run beside other
   operations. Those that loops call come first. most_live: in the program as it stands. */
void open_overlap(void);
void overlap_function(struct function *f, int64_t most_live);

#endif
