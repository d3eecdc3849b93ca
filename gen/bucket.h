/* bucket.h: what the files of the pass `bucket` share. */
#ifndef BUCKET_H
#define BUCKET_H

#include "tpgen.h"

/* ------------------------------------------------------------------------------------- choose.c */

/* A collective as the choice sees it. */
struct single {
  enum op_kind kind;
  int group;
  enum reduction reduction;
  enum type type;        /* that travels */
  int unit;              /* of which alone it may travel with others, or NONE */
  int64_t bytes;         /* of what it takes or makes, whichever is more */
  const uint64_t *needs; /* by number, which of those before it have to be there first: a bit for
                            each, in words of 64; NULL: none */
};
/* How much goes into the first bucket of a kind, the second, ...: the last is that of all that
   follow. n 0: there is no end. */
struct caps {
  int n;
  const int64_t *bytes;
};
/* Whether one call can make both, whatever their units. */
bool travels_like(const struct single *a, const struct single *b);
/* How much goes into the bucket of this number, from 0 on. */
int64_t cap_of(const struct caps *caps, int bucket);
struct buckets {
  int n, room;
  struct list *at; /* the numbers of the members */
};
/* Of those that follow one another; and of all that travel alike. */
struct buckets choose_in_order(const struct single *s, int n, const struct caps *caps);
struct buckets choose_alike(const struct single *s, int n, const struct caps *caps);
/* Adds one of two members or more. */
void add_bucket(struct buckets *found, const struct list *member);

/* ------------------------------------------------------------------------- bucket.c, and others */

/* Whether it sums a gradient over ranks in the gradient's place. */
bool is_gradient_sum(const struct op *op);
/* Whether the two are collectives that one call can make: of the same kind over the same group, of
   values of the same type that travel. */
bool same_kind(int a, int b);
/* Whether they are of no unit with bounds, or of the same. */
bool may_share(int a, int b);
/* Whether to start a collective over the group takes longer than to send so many bytes; and how
   many bytes of such are packed into one at most. */
bool is_small(int group, int64_t bytes);
int64_t most_of_small(void);
/* The slowest of the group's links. */
struct link {
  double bandwidth, latency;
};
struct link link_of(int group);

/* leave.c: gives every gradient that is summed a value that may be summed in its place, and, if
   asked, brings small sums of gradients out of the loops over modules. */
void prepare_gradients(bool out_of_loops);
/* side_by_side.c: by operation of the function, when what stands up to it has been computed, by the
   model of cost.c; without collectives, in picoseconds. It serves until it is asked again. */
int64_t *times_in(const struct function *f);
/* Of the function's gradients that are summed where they lie. */
void bucket_gradients(struct function *f);

/* -------------------------------------------------------------------------------------- merge.c */

/* What stands for the value in a loop: one of a family speaks for all of it. */
int speaker(int value);
/* Finds what the functions run, and what that reads: before the first of those below, and after
   functions were changed by others. */
void find_running(void);
/* Whether this function runs the operation, which may be NONE; how often operations that run read
   the value, or one of its family. */
bool runs_in(const struct function *f, int id);
int readers_of(int value);
/* From here on the function runs the operation, too; the operation reads this value first. */
void run_now(const struct function *f, int id);
void read_instead(int id, int value);
/* Puts the members in the order in which their parameters lie; those of none behind them. */
void put_in_order(int *member, int n);
/* Finds what each of a function's operations in the list, n singles, needs of the others. */
void find_needs(const struct function *f, const int *op, struct single *s, int n);
/* Goes through operations of a function: from here on what is noted, and all that depends on it, is
   noted; whether the operation and what is noted have to stay in their order; whether a collective
   cannot be a member with what is noted, as one of them needs the other. back: from the last
   operation to the first. */
void begin_noting(void);
void note_op(const struct op *op);
bool depends(const struct op *op);
bool is_in_the_way(const struct op *op, bool back);
/* Those that can run as one with the first, in *member; the others in *rest. */
void take_alike(const struct function *f, const struct list *all, struct list *member,
                struct list *rest);
/* Makes one collective of the members, if there are several and they can run as one: where the
   first of them stood if they gather, else where the last did. packed: they travel in a buffer.
   Whether it did. */
bool merge(struct function *f, const int *member, int n, bool packed);
/* Whether the collective can be a member: what lies as the parts do, and not as its dimensions, can
   be taken in. */
bool is_mergeable(const struct function *f, int id);

#endif
