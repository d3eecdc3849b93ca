/* The table of operators itself: what each row says in C is what the interpreter's reference
   computes, and what a row says of itself fits together. */
#include "interpreter.h"

#include <ctype.h>

/* ----------------------------------------------------------------- expressions in C, read again */

static const char *at; /* where in the expression we are */
static const double *input;
static double scalar;

static double conditional(void);

static bool eat(const char *word)
{
  at += strspn(at, " ");
  if (strncmp(at, word, strlen(word))) return false;
  at += strlen(word);
  return true;
}

static double factor(void)
{
  double x = 0;
  if (eat("-")) return -factor();
  if (eat("expf("))
    x = exp(conditional());
  else if (eat("tanhf("))
    x = tanh(conditional());
  else if (eat("("))
    x = conditional();
  else if (eat("$s"))
    return scalar;
  else if (eat("$"))
    return input[*at++ - 'a'];
  else if (isdigit((unsigned char)*at))
    return strtod(at, (char **)&at);
  else
    give_up("what is this: %s", at);
  must(eat(")"), "a bracket is left open before: %s", at);
  return x;
}

static double term(void)
{
  double x = factor();
  for (;;)
    if (eat("*"))
      x *= factor();
    else if (eat("/"))
      x /= factor();
    else
      return x;
}

static double sum(void)
{
  double x = term();
  for (;;)
    if (eat("+"))
      x += term();
    else if (eat("-"))
      x -= term();
    else
      return x;
}

static double conditional(void)
{
  double x = sum();
  if (eat("<="))
    x = x <= sum();
  else if (eat(">="))
    x = x >= sum();
  else if (eat(">"))
    x = x > sum();
  else if (eat("<"))
    x = x < sum();
  if (!eat("?")) return x;
  double yes = sum();
  must(eat(":"), "no other case before: %s", at);
  double no = sum();
  return x != 0 ? yes : no;
}

/* The row's expression of these operands. */
static double in_c(enum op_kind kind, const double *x, double s)
{
  at = op_row[kind].expression;
  input = x;
  scalar = s;
  double y = conditional();
  at += strspn(at, " ");
  must(!*at, "%s: left over: %s", op_row[kind].name, at);
  return y;
}

static void test_expressions(void **state)
{
  (void)state;
  int rows = 0;
  for (int kind = 0; kind < OP_COUNT; kind++) {
    if (!*op_row[kind].expression) continue;
    rows++;
    for (int trial = 0; trial < 200; trial++) {
      double x[MAX_INPUTS], y, s = 3 * draw_number();
      for (int i = 0; i < MAX_INPUTS; i++) x[i] = 3 * draw_number();
      must(element((enum op_kind)kind, x, s, &y), "no reference for %s", op_row[kind].name);
      double c = in_c((enum op_kind)kind, x, s);
      must(is_near(c, y, 1e-12), "%s of %g, %g, %g by %g: %g in C, not %g", op_row[kind].name, x[0],
           x[1], x[2], s, c, y);
    }
  }
  print_message("%d expressions\n", rows);
  assert_true(rows >= 20);
}

/* What is no number stays none: a training that goes astray must not look healthy. */
static void test_no_number_stays_none(void **state)
{
  (void)state;
  static const enum op_kind kind[] = {OP_add,  OP_mul,  OP_div, OP_relu,   OP_sigmoid,
                                      OP_tanh, OP_silu, OP_exp, OP_square, OP_scale};
  for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
    double x[MAX_INPUTS] = {NAN, 1};
    must(isnan(in_c(kind[i], x, 2)), "%s of no number is one", op_row[kind[i]].name);
  }
}

/* Which inputs an expression names. */
static unsigned operands(const char *expression)
{
  unsigned set = 0;
  for (const char *c = expression; (c = strchr(c, '$'));)
    if (*++c != 's') set |= 1u << (*c - 'a');
  return set;
}

/* Operators that make elements have an expression, with the operands from the first on; others
 * none. */
static void test_rows_fit_together(void **state)
{
  (void)state;
  for (int kind = 0; kind < OP_COUNT; kind++) {
    const struct op_row *row = &op_row[kind];
    bool elements = is_pointwise((enum op_kind)kind) || is_reduce((enum op_kind)kind);
    must(elements == (*row->expression != 0), "%s: its expression is \"%s\"", row->name,
         row->expression);
    unsigned used = operands(row->expression);
    must(!(used & (used + 1)), "%s leaves out an operand", row->name);
    bool known = elements || !strcmp(row->dimensions, "equation") || !strcmp(row->dimensions, "-");
    must(known, "%s: what are \"%s\"", row->name, row->dimensions);
    must(row->linear == NEVER || strcmp(row->dimensions, "-"), "%s has no rule to be linear in",
         row->name);
    for (int other = 0; other < kind; other++)
      must(strcmp(row->name, op_row[other].name), "two rows are called %s", row->name);
  }
}

/* Where a row says that sums may go through, adding inputs adds what it makes: in each input alone,
   in all at once, or in the first. */
static double made(enum op_kind kind, const double *x)
{
  double y;
  element(kind, x, 0.7, &y);
  return y;
}

static bool adds_up(enum op_kind kind, unsigned inputs)
{
  for (int trial = 0; trial < 50; trial++) {
    double a[MAX_INPUTS], b[MAX_INPUTS], both[MAX_INPUTS];
    for (int i = 0; i < MAX_INPUTS; i++) {
      a[i] = b[i] = both[i] = 2 * draw_number();
      if (!(inputs >> i & 1)) continue;
      b[i] = 2 * draw_number();
      both[i] = a[i] + b[i];
    }
    if (!is_near(made(kind, a) + made(kind, b), made(kind, both), 1e-9)) return false;
  }
  return true;
}

static void test_linearity(void **state)
{
  (void)state;
  for (int k = 0; k < OP_COUNT; k++) {
    enum op_kind kind = (enum op_kind)k;
    if (!*op_row[k].expression || kind == OP_full) continue;
    unsigned all = operands(op_row[k].expression), each = 0;
    for (int i = 0; i < MAX_INPUTS; i++)
      if ((all >> i & 1) && adds_up(kind, 1u << i)) each |= 1u << i;
    enum linear should = NEVER;
    if (each & 1) should = FIRST;
    if (each == all && (all & (all - 1))) should = EACH;
    if (!each && adds_up(kind, all)) should = TOGETHER;
    must(op_row[k].linear == should, "%s is linear otherwise: %d, not %d", op_row[k].name,
         (int)op_row[k].linear, (int)should);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_expressions),
      cmocka_unit_test(test_no_number_stays_none),
      cmocka_unit_test(test_rows_fit_together),
      cmocka_unit_test(test_linearity),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
