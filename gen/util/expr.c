/* expr.c: expressions as trees: how they are built, read from the forms that the generator and the
   table of operators have, compared, and printed. */
#include "util/util.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- building */

static struct expr *new_expr(enum expr_kind kind, const char *word, int n)
{
  struct expr *e = alloc(sizeof *e);
  e->kind = kind;
  e->word = word;
  e->n = n;
  e->all = e->at;
  return e;
}

const struct expr *word_expr(const char *word)
{
  const char *digits = word + (*word == '-');
  return new_expr(isdigit((unsigned char)*digits) ? NUMBER_EXPR : NAME_EXPR, word, 0);
}

const struct expr *int_expr(int64_t n)
{
  return word_expr(text("%ld", (long)n));
}

const struct expr *call_expr(const char *function, const struct expr *const *at, int n)
{
  struct expr *e = new_expr(CALL_EXPR, function, n);
  const struct expr **all = n > 3 ? alloc((size_t)n * sizeof *all) : e->at;
  for (int i = 0; i < n; i++) all[i] = at[i];
  e->all = all;
  return e;
}

const struct expr *prefix_expr(const char *sign, const struct expr *of)
{
  struct expr *e = new_expr(PREFIX_EXPR, sign, 1);
  e->at[0] = of;
  return e;
}

const struct expr *sign_expr(const char *sign, const struct expr *a, const struct expr *b)
{
  struct expr *e = new_expr(SIGN_EXPR, sign, 2);
  e->at[0] = a;
  e->at[1] = b;
  return e;
}

const struct expr *choice_expr(const struct expr *when, const struct expr *yes,
                               const struct expr *no)
{
  struct expr *e = new_expr(SIGN_EXPR, "?", 3);
  e->at[0] = when;
  e->at[1] = yes;
  e->at[2] = no;
  return e;
}

const struct expr *index_expr(const struct expr *of, const struct expr *at)
{
  struct expr *e = new_expr(INDEX_EXPR, "[", 2);
  e->at[0] = of;
  e->at[1] = at;
  return e;
}

const struct expr *expr_with(const struct expr *e, const struct expr *const *at)
{
  bool same = true;
  for (int i = 0; i < e->n; i++) same = same && at[i] == e->all[i];
  if (same) return e;
  struct expr *other = new_expr(e->kind, e->word, e->n);
  const struct expr **all = e->n > 3 ? alloc((size_t)e->n * sizeof *all) : other->at;
  for (int i = 0; i < e->n; i++) all[i] = at[i];
  other->all = all;
  other->fenced = e->fenced;
  return other;
}

bool is_sign(const struct expr *e, const char *sign)
{
  return e->kind == SIGN_EXPR && !strcmp(e->word, sign);
}

bool is_zero_expr(const struct expr *e)
{
  return !strcmp(e->word, "0");
}

const struct expr *plus_expr(const struct expr *a, const char *sign, const struct expr *b)
{
  if (!a) return b;
  bool sum = is_sign(b, "+"), difference = is_sign(b, "-"), minus = *sign == '-';
  if (!sum && !difference) return sign_expr(sign, a, b);
  return sign_expr(sum == minus ? "-" : "+", plus_expr(a, sign, b->at[0]), b->at[1]);
}

const struct expr *times_expr(const struct expr *a, const char *sign, int64_t n)
{
  return n == 1 ? a : sign_expr(sign, a, int_expr(n));
}

/* "(1.0f / 96)" */
static const struct expr *quotient(const char *one, int n)
{
  struct expr *e = new_expr(SIGN_EXPR, "/", 2);
  e->at[0] = word_expr(one);
  e->at[1] = int_expr(n);
  e->fenced = true;
  return e;
}

const struct expr *double_factor(double x)
{
  int n = one_over(x);
  return n > 0 ? quotient("1.0", n) : word_expr(n ? text("(1.0 / %d)", n) : double_text(x));
}

const struct expr *float_factor(double x)
{
  int n = one_over(x);
  bool same = n && 1.0f / (float)n == (float)x;
  return same && n > 0 ? quotient("1.0f", n)
                       : word_expr(same ? text("(1.0f / %d)", n) : number_text(x));
}

/* -------------------------------------------------------------------------------------- reading */

/* How tightly signs bind their operands; more binds more. */
enum binding { CHOICE, OR, AND, COMPARISON, TERMS, FACTORS, PREFIX, ATOM };

static enum binding binding_of_sign(const char *sign)
{
  static const char *const signs[] = {
      [CHOICE] = " ? ",  [OR] = " || ",          [AND] = " && ", [COMPARISON] = " == != < <= > >= ",
      [TERMS] = " + - ", [FACTORS] = " * / % @ "};
  const char *word = text(" %s ", sign);
  for (int i = 0; i <= FACTORS; i++)
    if (strstr(signs[i], word)) return (enum binding)i;
  bug("emit", "no sign '%s'", sign);
}

struct reader {
  const char *c, *form;
  va_list *given;
};

static const struct expr *read_choice(struct reader *r);

static void skip_blanks(struct reader *r)
{
  while (*r->c == ' ') r->c++;
}

static bool expr_takes(struct reader *r, const char *mark)
{
  skip_blanks(r);
  if (strncmp(r->c, mark, strlen(mark))) return false;
  r->c += strlen(mark);
  return true;
}

static void needs(struct reader *r, const char *mark)
{
  if (!expr_takes(r, mark)) bug("emit", "'%s': %s should stand before '%s'", r->form, mark, r->c);
}

/* The argument for a % of the form. */
static const struct expr *given(struct reader *r)
{
  r->c++;
  if (expr_takes(r, "e")) return va_arg(*r->given, const struct expr *);
  if (expr_takes(r, "s")) return word_expr(va_arg(*r->given, const char *));
  if (expr_takes(r, "ld")) return int_expr(va_arg(*r->given, int64_t));
  needs(r, "d");
  return int_expr(va_arg(*r->given, int));
}

/* The end of a number, of a name with its members, or of a name of the table of operators. */
static const char *end_of_word(const char *c)
{
  bool number = isdigit((unsigned char)*c) != 0;
  for (c += *c == '$';; c++) {
    bool more = isalnum((unsigned char)*c) || *c == '_' || *c == '.';
    bool exponent = number && (*c == '-' || *c == '+') && c[-1] == 'e';
    bool arrow = !number && c[0] == '-' && c[1] == '>';
    if (!more && !exponent && !arrow) return c;
    c += arrow;
  }
}

static const struct expr *read_word(struct reader *r)
{
  enum { MOST = 8 };
  const char *end = end_of_word(r->c);
  const char *word = text("%.*s", (int)(end - r->c), r->c);
  if (end == r->c) bug("emit", "'%s': no expression begins at '%s'", r->form, r->c);
  r->c = end;
  if (*r->c != '(') return word_expr(word);
  const struct expr *at[MOST];
  int n = 0;
  r->c++;
  for (bool more = !expr_takes(r, ")"); more;) {
    if (n == MOST) bug("emit", "'%s': a call has too many operands", r->form);
    at[n++] = read_choice(r);
    more = expr_takes(r, ",");
    if (!more) needs(r, ")");
  }
  return call_expr(word, at, n);
}

static const struct expr *read_atom(struct reader *r)
{
  static const char *const prefixes[] = {"-",        "!",     "*",      "&", "(float)",
                                         "(double)", "(int)", "(long)", NULL};
  const struct expr *e;
  skip_blanks(r);
  for (const char *const *sign = prefixes; *sign; sign++)
    if (expr_takes(r, *sign)) return prefix_expr(*sign, read_atom(r));
  if (expr_takes(r, "(")) {
    e = read_choice(r);
    needs(r, ")");
  } else {
    e = *r->c == '%' ? given(r) : read_word(r);
  }
  while (*r->c == '[') {
    r->c++;
    e = index_expr(e, read_choice(r));
    needs(r, "]");
  }
  return e;
}

static const struct expr *read_signs(struct reader *r, enum binding least)
{
  static const char *const signs[] = {"||", "&&", "==", "!=", "<=", ">=", "<",
                                      ">",  "+",  "-",  "*",  "/",  "%",  NULL};
  const struct expr *e = read_atom(r);
  for (;;) {
    const char *const *sign = signs;
    skip_blanks(r);
    while (*sign && strncmp(r->c, *sign, strlen(*sign))) sign++;
    if (!*sign || binding_of_sign(*sign) < least) return e;
    r->c += strlen(*sign);
    e = sign_expr(*sign, e, read_signs(r, binding_of_sign(*sign) + 1));
  }
}

static const struct expr *read_choice(struct reader *r)
{
  const struct expr *e = read_signs(r, OR);
  if (!expr_takes(r, "?")) return e;
  const struct expr *yes = read_choice(r);
  needs(r, ":");
  return choice_expr(e, yes, read_choice(r));
}

const struct expr *expr(const char *form, ...)
{
  va_list list;
  va_start(list, form);
  struct reader r = {.c = form, .form = form, .given = &list};
  const struct expr *e = read_choice(&r);
  va_end(list);
  if (*r.c) bug("emit", "'%s' goes on after an expression: '%s'", form, r.c);
  return e;
}

/* ------------------------------------------------------------------------------------ comparing */

bool same_expr(const struct expr *a, const struct expr *b)
{
  if (a == b) return true;
  if (a->kind != b->kind || a->n != b->n || strcmp(a->word, b->word)) return false;
  for (int i = 0; i < a->n; i++)
    if (!same_expr(a->all[i], b->all[i])) return false;
  return true;
}

bool has_part_expr(const struct expr *e, const struct expr *part)
{
  if (same_expr(e, part)) return true;
  for (int i = 0; i < e->n; i++)
    if (has_part_expr(e->all[i], part)) return true;
  return false;
}

bool expr_names(const struct expr *e, const char *name)
{
  if (e->kind == NAME_EXPR) return !strcmp(e->word, name);
  for (int i = 0; i < e->n; i++)
    if (expr_names(e->all[i], name)) return true;
  return false;
}

/* ------------------------------------------------------------------------------------- printing */

static enum binding binding_of(const struct expr *e)
{
  if (e->kind == SIGN_EXPR) return e->fenced ? ATOM : binding_of_sign(e->word);
  if (e->kind == NUMBER_EXPR && strchr(e->word, '/')) return FACTORS; /* "1/96" of a formula */
  return e->kind == PREFIX_EXPR ? PREFIX : ATOM;
}

static void put_expr(struct buffer *b, const struct expr *e, enum binding least);

/* The operands of a sign: a - (b - c), but a - b - c; no choice within a comparison, and no &&
   beside an || without brackets. */
static void put_sign(struct buffer *b, const struct expr *e)
{
  enum binding own = binding_of_sign(e->word);
  if (own == CHOICE) {
    put_expr(b, e->at[0], OR);
    put_text(b, " ? ", 3);
    put_expr(b, e->at[1], OR);
    put_text(b, " : ", 3);
    put_expr(b, e->at[2], CHOICE);
    return;
  }
  bool chain = own >= TERMS || is_sign(e->at[0], e->word);
  enum binding left = own == COMPARISON ? TERMS : chain ? own : COMPARISON;
  put_expr(b, e->at[0], left);
  put(b, " %s ", e->word);
  put_expr(b, e->at[1], own < COMPARISON ? COMPARISON : own + 1);
}

static void put_expr(struct buffer *b, const struct expr *e, enum binding least)
{
  bool brackets = e->fenced || binding_of(e) < least;
  if (brackets) put_text(b, "(", 1);
  switch (e->kind) {
  case NAME_EXPR:
  case NUMBER_EXPR:
    put_text(b, e->word, strlen(e->word));
    break;
  case CALL_EXPR:
    put(b, "%s(", e->word);
    for (int i = 0; i < e->n; i++) {
      if (i) put_text(b, ", ", 2);
      put_expr(b, e->all[i], CHOICE);
    }
    put_text(b, ")", 1);
    break;
  case SIGN_EXPR:
    put_sign(b, e);
    break;
  case PREFIX_EXPR: {
    const struct expr *of = e->at[0];
    bool twice = *e->word == '-' && *of->word == '-' && of->n < 2;
    put_text(b, e->word, strlen(e->word));
    if (twice) put_text(b, "(", 1);
    put_expr(b, of, PREFIX);
    if (twice) put_text(b, ")", 1);
    break;
  }
  case INDEX_EXPR:
    put_expr(b, e->at[0], ATOM);
    put_text(b, "[", 1);
    put_expr(b, e->at[1], CHOICE);
    put_text(b, "]", 1);
    break;
  }
  if (brackets) put_text(b, ")", 1);
}

char *expr_text(const struct expr *e)
{
  struct buffer b = {0};
  if (!e->n && e->kind <= NUMBER_EXPR) return copy_text(e->word);
  put_text(&b, "", 0);
  put_expr(&b, e, CHOICE);
  return b.text;
}
