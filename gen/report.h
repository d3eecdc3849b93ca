/* report.h: what the files that write plan.txt and plan.json share. */
#ifndef REPORT_H
#define REPORT_H

#include "tpgen.h"

struct json_t;

/* What became of one redistribution. A bucket of all-reduces stands alone. */
struct chain {
  int times; /* it runs in a step of the program */
  int nstep, room, *step;
};
/* All of the program, in the order in which they begin; gives how many in *n. */
const struct chain *find_chains(int *n);

const struct op *first_step(const struct chain *c);
const struct op *last_step(const struct chain *c);
/* The value that is moved; how it lies before, and after. */
const struct value *moved_value(const struct chain *c);
struct layout layout_before(const struct chain *c);
struct layout layout_reached(const struct chain *c);
/* Steps in which something moves or is put in its place, without the packing before and after. */
int count_steps(const struct chain *c);
/* The bytes that no way can do without, of a piece its share; or NONE where it is not known: of a
   bucket, and of what is cut in strides. */
int64_t bound_of(const struct chain *c);
/* The seconds that it takes by the model of the links, or 0 where the model has another way. */
double seconds_of(const struct chain *c);

/* report.c: how things are told. */
extern const char *const phase_name[];
/* A collective's kind; an exchange in which each rank has one partner at most is a permute. */
const char *kind_of(const struct op *op);
/* "a_b" of a collective; of another step the dimensions of the mesh on which it changes the
   layout. */
char *over_text(const struct op *op);
/* "S(0) R -> R R" of a step; "" of one that only packs. */
char *step_layouts(const struct op *op);
char *seconds_text(double seconds);
/* The value that a rank brings to a collective; of an exchange, whose ranks differ, what the
   busiest sends. */
int64_t bytes_brought(const struct op *op);
/* The parameters; those that all is told of alike are a family. */
struct families find_parameters(void);

/* order.c: adds to plan.txt in which order collectives are issued. */
void put_order(struct buffer *b);

/* streams.c: what runs between a collective and its await, but what is no work; and what such an
   operation is called: a loop by its function, all others by what they make. Adds to plan.txt on
   which stream each collective runs, and beside what. */
struct list beside(const struct op *op);
const char *called(const struct op *op, const char *(*name)(int value));
void put_streams(struct buffer *b);

/* pipelined.c: adds to plan.txt what became of each collective that async_tp asks for; the same for
   plan.json. */
void put_pipelined(struct buffer *b);
struct json_t *json_pipelined(void);

/* timeline.c: adds to plan.txt how long a step takes, and what runs when; the same for plan.json,
   without the when. */
void put_step(struct buffer *b);
struct json_t *json_step(void);
/* trace.c: the file trace.json, where it is asked for. */
void add_trace(void);

/* What a rank holds besides its arena, as plan.txt calls it. */
enum { MEMORY_PARTS = 5 };
extern const struct memory_part {
  const char *name;
  enum role role;
} memory_part[MEMORY_PARTS];
/* Bytes of rank 0, which has the largest parts: of its values by role (outputs for ACTIVATION), of
   all that the program asks for, and an allowance for what libraries keep for themselves. */
const int64_t *memory_by_role(void);
int64_t memory_of_role(enum role role);
int64_t memory_of_rank(void);
int64_t memory_besides(void); /* fit.c */
/* "91.3 GiB" of what is needed, rounded up. fit.c. */
char *size_text(int64_t bytes);

#endif
