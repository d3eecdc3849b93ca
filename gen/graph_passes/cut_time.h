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
  bool *counts;             /* by value: it counts the rows of the call's tokens, by expert */
  bool *live;               /* by operation: the logits depend on it */
  struct list outputs;
  /* By operation of the whole text that is an attention: the caches of its keys and values. */
  struct caches {
    int k, v;
  } * caches;
  int *kept;       /* by value: the cache of its last tokens, or of its sum so far; or NONE */
  int64_t *window; /* by operation: how many tokens back it sees; 0: all */
};

/* The letter of the tokens in the operation's rule, and the elements of it for each token. */
struct token_letter {
  int letter;
  int64_t inner;
};

/* -------------------------------------------------------------------------------- along_time.c */

/* Where the tokens are in each value that the logits depend on. An operation that needs later
   tokens, or whose state a call cannot keep, is the plan's error. */
void find_tokens(struct cutting *c);
/* The forms in which the logits of the last token need each value. */
void find_wanted(struct cutting *c);
struct token_letter letter_of_tokens(const struct cutting *c, const struct op *op,
                                     const struct letters *l);
/* The dimension of an input that has the letter, or NONE. */
int dimension_having(const struct letters *l, int input, int letter);
/* Whether the operation makes a constant's elements along the dimension from those of its inputs
   there; if so, the letter. */
bool goes_through(const struct op *op, const struct letters *l, int dim, int *letter);
bool has_no_tokens(const struct cutting *c, const struct op *op);
/* Whether it leaves elements as they are: their order, and how many come before the text; whether
   it adds or removes elements before and behind the text; whether it reads earlier tokens. */
bool is_reshaped(const struct op *op);
bool is_token_margin(const struct cutting *c, const struct op *op);
bool is_over_tokens(const struct cutting *c, const struct op *op);

/* ------------------------------------------------------------------------------ visible_keys.c */

/* How many tokens back, its own included, each query of the attention sees, of a text of `length`
   tokens; 0: all that come before. -1: it sees others, and why. */
int64_t window_of_attention(const struct op *op, int64_t length, const char **why);

#endif
