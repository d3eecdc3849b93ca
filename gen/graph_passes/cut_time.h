/* cut_time.h: what the files of the pass cut_time share. */
#ifndef TPGEN_CUT_TIME_H
#define TPGEN_CUT_TIME_H

#include "ir/ir.h"

/* The dimension of a value that holds the tokens, or NONE: it is the same for all texts. There, an
   element of a token is `inner` elements. The first `lead` of its `size` elements come before the
   text, and are zero, as those from token `end` on. */
struct token_axis {
  int dim;
  int64_t inner, size, lead, end;
};

/* The forms of a value in an entry: a bit for each that is wanted. A value with tokens is made of
   all tokens of the call, or of the last one. A constant is whole, or cut along one of its
   dimensions. */
enum {
  OF_ALL,
  OF_LAST,
  ENTIRE = OF_ALL,
  AT_ALL = 2, /* and the dimension */
  AT_LAST = AT_ALL + MAX_DIMS,
  FORMS = AT_LAST + MAX_DIMS
};

/* Bounds of the elements of a value for pairs of tokens: cut_pairs.c. */
struct bounds {
  double low, high;
  bool known;
};

struct cutting {
  int known; /* the values of the whole text */
  int n;     /* its operations, */
  int *op;   /* in their order */
  int ncall; /* its calls */
  struct call *call;
  int text; /* the operation whole_text */
  int64_t length;
  struct token_axis *along; /* by value of the whole text */
  unsigned *wanted;         /* the forms that are wanted, by value */
  int64_t *zeroed;          /* by value: so many first tokens are zero in it, in its input not */
  bool *counts;             /* by value: it counts the rows of the call's tokens, by expert */
  bool *live;               /* by operation: the logits depend on it */
  struct list outputs;
  /* By operation of the whole text that is an attention: the caches of its keys and values. */
  struct caches {
    int k, v;
  } * caches;
  int *kept;       /* by value: the cache of its last tokens, or of its sum so far; or NONE */
  int64_t *window; /* by operation: how many tokens back it sees; 0: all */
  int *scan_of;    /* by operation: the scan over tokens whose step it is of, or NONE */
  int *place;      /* by operation of a step: which of the step's it is */
  bool *of_step;   /* by value: an operation of a step over tokens made it */
  int *keys; /* by value that has an element for each pair of tokens: the dimension of the keys */
  struct bounds *ahead,
      *own; /* bounds of those whose key is later, and of each token's with itself */
  int ncarry, carry_room;
  struct carry *carry;
  double **array; /* by value: a constant's elements, or NULL; whether they were looked for */
  bool *tried;
  bool *again; /* by value: it is made of all calls' tokens again, from what is kept before it */
  /* By operation that reads values of all calls' tokens: whether what they are made of is smaller;
     what that would take. */
  bool *reads_smaller;
  const char **instead;
  int reader; /* the operation of the whole text that an entry makes now */
};

/* What a scan over the tokens carries from step to step. */
struct carry {
  int scan, hold;   /* the module; the operation scan_hold */
  int first, place; /* the value with which the first step begins; which of a step's operations
                       hands it on */
  int cache;        /* of its state behind the last token, by slot; or NONE */
};

/* An entry while its operations are made. */
struct entry {
  enum phase phase;
  const char *name;
  int64_t tokens; /* of a call */
  int own;        /* the tokens, [1, tokens] */
  int slot, start;
  int last; /* the index of the last token that counts; or NONE: each is the last one of its slot */
  int position[2]; /* by form, OF_ALL and OF_LAST: the positions of these tokens */
  int (*made)[FORMS];
  int *settled;         /* by value that has a lead: the value at the call's tokens */
  int *gathered;        /* by value that has keys: its elements of all calls; or NONE */
  int *of_all;          /* by value: that of all calls' tokens, a slot's after another's; or NONE */
  int places;           /* of the tokens of all calls in a slot: made by then; or NONE */
  int modules, *module; /* by module of the whole text: that of its operations in the entry */
  bool *begun;          /* by module: a scan whose steps have begun */
  /* Of scans. For each token whether it is none behind the last one, or NONE; that of a step. */
  int counted, counted_now, counted_in;
  struct list *state;    /* by carry: what each step of the entry hands on */
  int *recalled;         /* by carry: with what the call begins, */
  int *taken, *taken_in; /* with what the step of a slot begins, and that step */
};

/* The letter of the tokens in the operation's rule, and the elements of it for each token; and
   where it has elements for pairs of tokens, that of the keys, or NONE. */
struct token_letter {
  int letter;
  int64_t inner;
  int key;
};

/* ---------------------------------------------------------------------------- smaller_caches.c */

/* Which values are made again if the caches are to be as small as can be: `again`. */
void find_smaller(struct cutting *c);

/* -------------------------------------------------------------------------------- along_time.c */

/* Where the tokens are in each value that the logits depend on. An operation that needs later
   tokens, or whose state a call cannot keep, is the plan's error. */
void find_tokens(struct cutting *c);
/* Before that: what scans carry. The carry that begins with the value, or NONE. */
void find_carries(struct cutting *c);
int carry_entered_by(const struct cutting *c, int value);
/* The forms in which the logits of the last token need each value. */
void find_wanted(struct cutting *c);
struct token_letter letter_of_tokens(const struct cutting *c, const struct op *op,
                                     const struct letters *l);
/* Whether the operation makes a constant's elements along the dimension from those of its inputs
   there; if so, the letter. */
bool goes_through(const struct op *op, const struct letters *l, int dim, int *letter);
bool has_no_tokens(const struct cutting *c, const struct op *op);
/* Whether it leaves elements as they are: their order, and how many come before the text; whether
   it adds or removes elements before and behind the text; whether it reads earlier tokens. */
bool is_reshaped(const struct op *op);
bool is_token_margin(const struct cutting *c, const struct op *op);
bool is_over_tokens(const struct cutting *c, const struct op *op);

/* --------------------------------------------------------------------------------- cut_pairs.c */

/* The dimension of an input that has the letter, or NONE. */
int dimension_having(const struct letters *l, int input, int letter);
/* Where the keys are in what the operation makes, and its bounds; or why it cannot be continued. */
const char *find_pairs(struct cutting *c, const struct op *op, const struct letters *l,
                       struct token_letter t);
/* Whether the input has the keys' tokens: an entry takes those of all calls. */
bool takes_all_keys(const struct cutting *c, const struct letters *l, struct token_letter t,
                    int input, int value);

/* --------------------------------------------------------------------------------- cut_scans.c */

/* Operations of a scan over tokens in an entry: what it begins with, an operation of a step, what
   holds a carry, the outputs of all steps. */
void make_entering(struct cutting *c, struct entry *e, int carry, const struct op *op);
void make_of_step(struct cutting *c, struct entry *e, int i);
void make_held(struct cutting *c, struct entry *e, int carry);
void make_stack(struct entry *e, const struct op *op);

/* -------------------------------------------------------------------------------- time_entry.c */

/* The operation in the entry, of the module and line of that of the whole text. */
struct op op_in_entry(const struct entry *e, const struct op *origin, struct op op);
/* Values in the entry, for an operation of the whole text: in another shape; the elements of a
   dimension at an index; with the dimensions in another order; a number; of the type of `like`. */
int view_in_entry(const struct entry *e, const struct op *origin, int value, struct shape shape);
int selected_in_entry(const struct entry *e, const struct op *origin, int value, int dim,
                      int index);
int permuted_in_entry(const struct entry *e, const struct op *origin, int value, const char *rule);
int number_in_entry(const struct entry *e, const struct op *origin, double number, enum type type);
int cast_in_entry(const struct entry *e, const struct op *origin, int made, int like);
/* A value as rows of tokens, [sequences, their tokens, all else], and back: so many tokens of each
   sequence, as in the shape, which has the call's tokens. */
int rows_in_entry(const struct entry *e, const struct op *origin, int value, int dim);
int from_rows_in_entry(const struct entry *e, const struct op *origin, int rows, struct shape shape,
                       int dim);
/* A value of the whole text in a form; it is made before. The value that a reader takes, at the
   call's own tokens: of one with a lead, the element that so many tokens before have. */
int value_in_form(const struct cutting *c, struct entry *e, const struct op *reader, int value,
                  int form);
int tokens_of_call(struct cutting *c, struct entry *e, const struct op *reader, int value,
                   int form);
/* For what a cache of all earlier tokens is kept: what it has of them, and what else could be. */
const char *kept_for(struct cutting *c, const struct op *reader, const char *what);
/* "mul [1, 64, 16]": a value by its operation and shape. The name of an operation in a plan. */
const char *kept_value_name(int value);
const char *reader_name(const struct op *op);
/* A cache of the operation's module, and for what it is kept; that of a value's last tokens, or of
   its sum so far, for both entries, of `width` elements of `each` numbers a token; the rows of a
   value's tokens in this call, after those of the `back` tokens before. */
int add_state_cache(const struct op *op, const char *name, struct shape shape, enum type type,
                    const struct cutting *c, const char *why);
int cache_of_value(struct cutting *c, const struct op *origin, int value, const char *name,
                   int64_t back, int64_t width, int64_t each, const char *why);
/* An input that has the keys' tokens: those of all calls. `own` is the entry's operation, whose
   rule may change. */
int gathered_in_entry(struct cutting *c, struct entry *e, struct op *own, const struct op *op,
                      const struct letters *l, struct token_letter t, int i);
int recent_in_entry(struct cutting *c, const struct entry *e, const struct op *origin, int value,
                    int made, int64_t back);

/* ------------------------------------------------------------------------- written_attention.c */

/* In the program of a whole text of so many tokens. also: by operation, those whose keys and values
   are made again at each call; or NULL. */
void write_out_attention(int64_t length, const bool *also);
/* Goes through the order: an operation for which `replacement` adds others is left out, and those
   of its outputs for which it gives a value are that. false: it stays. */
void replace_operations(bool (*replacement)(int op, const void *with, int *made), const void *with);
/* For what takes the place of an operation: an operation of its module and line; a value in another
   shape; a product. */
struct op from_origin(const struct op *origin, struct op op);
int viewed_from_origin(const struct op *origin, int x, struct shape shape);
int product_from_origin(const struct op *origin, const char *rule, int a, int b);

/* ------------------------------------------------------------------------------------ absorb.c */

/* Whether each value of the attention is the first numbers of its key: one cache has both. */
bool has_values_in_keys(const struct op *op);
/* How many numbers a token keys and values are made of by a projection of each head, which can be
   absorbed; 0: they are not. */
int64_t absorbable_numbers(const struct op *op);

/* ------------------------------------------------------------------------------ visible_keys.c */

/* Bounds of a constant's elements at all pairs of a query and a later key, or of a token with
   itself. Each of the two may have no dimension: NONE. */
struct bounds bounds_of_pairs(struct cutting *c, int value, int query_dim, int key_dim, bool own);
/* How many tokens back, its own included, each query of the attention sees, of a text of `length`
   tokens; 0: all that come before. -1: it sees others, and why. */
#define SEES_LATER "sees later tokens"
int64_t window_of_attention(const struct op *op, int64_t length, const char **why);

#endif
