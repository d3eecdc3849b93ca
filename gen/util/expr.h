/* expr.h: expressions as trees: those of generated C, and the formulas in comments. A text is made
   of a tree once, with the brackets that its signs need; nothing reads the text again. */
#ifndef TPGEN_EXPR_H
#define TPGEN_EXPR_H

#include <stdbool.h>
#include <stdint.h>

enum expr_kind {
  NAME_EXPR,   /* a variable or a constant: "x", "rank->seed", "INFINITY" */
  NUMBER_EXPR, /* a literal: "2", "0.5f" */
  CALL_EXPR,   /* word(at[0], at[1], ...) */
  SIGN_EXPR,   /* at[0] word at[1]; with the word "?" at[0] ? at[1] : at[2] */
  PREFIX_EXPR, /* word at[0]: "-", "!", "*", "&", "(float)" */
  INDEX_EXPR   /* at[0][at[1]] */
};

/* A tree is never changed. */
struct expr {
  enum expr_kind kind;
  bool fenced; /* a constant of several numbers, "(1.0f / 96)": always in brackets */
  int n;
  const char *word;
  const struct expr *at[3];      /* the first operands */
  const struct expr *const *all; /* all of them */
};

/* A name, or a number. */
const struct expr *word_expr(const char *word);
const struct expr *int_expr(int64_t n);
const struct expr *call_expr(const char *function, const struct expr *const *at, int n);
const struct expr *prefix_expr(const char *sign, const struct expr *of);
const struct expr *sign_expr(const char *sign, const struct expr *a, const struct expr *b);
const struct expr *choice_expr(const struct expr *when, const struct expr *yes,
                               const struct expr *no);
const struct expr *index_expr(const struct expr *of, const struct expr *at);
/* The same tree with other operands. */
const struct expr *expr_with(const struct expr *e, const struct expr *const *at);
/* The sum of whole numbers, or of a pointer and whole numbers, from left to right: a + (b - c) is
   a + b - c. `sign`: "+" or "-". NULL means 0. */
const struct expr *plus_expr(const struct expr *a, const char *sign, const struct expr *b);
/* a * n, a / n; a itself if n is 1. */
const struct expr *times_expr(const struct expr *a, const char *sign, int64_t n);
/* A float, or a double, as a factor: "0.5f", or the quotient (1.0f / 96) where that is shorter and
   gives the same bits. */
const struct expr *float_factor(double x);
const struct expr *double_factor(double x);
/* The tree of a text in C. An operand in it is %e for a tree, %s a word, %d an int and %ld an
   int64_t. */
const struct expr *expr(const char *form, ...);

bool same_expr(const struct expr *a, const struct expr *b);
/* Whether the tree has this part. */
bool has_part_expr(const struct expr *e, const struct expr *part);
bool expr_names(const struct expr *e, const char *name);
bool is_zero_expr(const struct expr *e);
bool is_sign(const struct expr *e, const char *sign);

/* The text. */
char *expr_text(const struct expr *e);

#endif
