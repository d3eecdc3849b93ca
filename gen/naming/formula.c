/* formula.c: an operation in the model's words, as a tree (util/expr.h), like the statements. */
#include "naming/naming.h"

#include <string.h>

const char *plan_shown(void)
{
  const char *slash = strrchr(plan_options->path, '/');
  return printable(*plan_options->path == '/' ? slash + 1 : plan_options->path);
}

const char *file_shown(int line)
{
  return printable(file_of_line(plan_shown(), line));
}

char *place_shown(int line)
{
  return text("%s:%d", file_shown(line), line % LINES_OF_FILE);
}

const char *shown_operand(int value)
{
  return printable(display_name(value));
}

/* The subject of a formula: an operation, or the operations of one kernel. */
struct formula {
  const struct op *group;
  int left; /* operations that it may still show: a value that is read twice is shown twice, with
               everything that it is made of */
  bool is_short; /* many operations of one function of the plan are shown as a call of it */
};

/* The operation that makes a value within the same kernel without storing it, or NULL: such a
   value is shown as its formula. */
static const struct op *inner_maker(const struct op *group, int value)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (op->out == value && !graph->value[value].stored) return op;
  }
  return NULL;
}

/* "1/96 * x", "2 * x"; "2" where x is 1. */
static const struct expr *times_factor(double factor, const struct expr *of)
{
  if (factor == 1) return of;
  const struct expr *number =
      word_expr(one_over(factor) ? text("1/%d", one_over(factor)) : text("%g", factor));
  return strcmp(of->word, "1") ? sign_expr("*", number, of) : number;
}

static const struct expr *operand_formula(struct formula *f, int value);

/* A function of the plan, "rms_norm", and in the backward "rms_norm_back", as a call. */
struct called_part {
  const char *function;
  bool backward;
  int operations;
  const struct expr **operand; /* each once */
  int n;
};

static bool is_of_backward(const struct op *op)
{
  return op->phase == BACKWARD && !op->recomputed;
}

static void add_to_part(struct formula *f, struct called_part *p, const struct op *op)
{
  p->operations += op->kind != OP_expand;
  for (int i = 0; i < op->nin; i++) {
    const struct op *maker = inner_maker(f->group, op->in[i]);
    if (maker &&
        (maker->kind == OP_expand || (maker->part_of && !strcmp(maker->part_of, p->function) &&
                                      is_of_backward(maker) == p->backward))) {
      add_to_part(f, p, maker);
      continue;
    }
    const struct expr *e = operand_formula(f, op->in[i]);
    bool known = e->kind == NUMBER_EXPR;
    for (int k = 0; k < p->n; k++) known |= same_expr(p->operand[k], e);
    if (!known && p->n < MAX_INPUTS) p->operand[p->n++] = e;
  }
}

/* The call, or NULL where the operation is of no such function, or of one of a few operations. */
static const struct expr *part_formula(struct formula *f, const struct op *op)
{
  enum { FEW = 4 };
  struct called_part p = {.function = op->part_of, .backward = is_of_backward(op)};
  if (!op->part_of || *op->part_of < 'a' || *op->part_of > 'z') return NULL;
  p.operand = alloc(MAX_INPUTS * sizeof *p.operand);
  add_to_part(f, &p, op);
  if (p.operations <= FEW || p.n == MAX_INPUTS) return NULL;
  return call_expr(text("%s%s", p.function, p.backward ? "_back" : ""), p.operand, p.n);
}

/* "a + b" for the operators that C writes between their operands, "relu(a)" for the others. */
static const struct expr *operation_formula(struct formula *f, const struct op *op)
{
  const char *sign = op_row[op->kind].sign;
  const struct expr *part = f->is_short ? part_formula(f, op) : NULL;
  if (part) return part;
  const struct expr **at = alloc((size_t)(op->nin + 1) * sizeof *at);
  int n = op->nin;
  for (int i = 0; i < n; i++) at[i] = operand_formula(f, op->in[i]);
  if (op->kind == OP_scale || op->kind == OP_expand) return times_factor(op->scalar, at[0]);
  if (op->kind == OP_power) at[n++] = word_expr(double_text(op->scalar));
  const struct expr *made = sign ? sign_expr(sign, at[0], at[1]) : call_expr(op_name(op), at, n);
  /* The number that the operation multiplies by, where its name does not show it. */
  bool has_factor = op->kind == OP_scale || op->kind == OP_expand ||
                    (op->kind == OP_sum && !strcmp(op_name(op), "sum"));
  return times_factor(has_factor ? op->scalar : 1, made);
}

static const struct expr *operand_formula(struct formula *f, int value)
{
  const struct op *maker = inner_maker(f->group, value);
  const struct value *v = &graph->value[value];
  if (maker && f->left-- <= 0) return word_expr(text("%s(...)", op_name(maker)));
  if (maker) return operation_formula(f, maker);
  if (v->op != NONE && !v->stored && graph->op[v->op].kind == OP_full)
    return word_expr(text("%g", graph->op[v->op].scalar));
  return word_expr(shown_operand(value));
}

enum { MOST_SHOWN = 40 };

/* Of an operation of the group. */
static const struct expr *formula_of(const struct op *group, const struct op *op)
{
  struct formula f = {group, MOST_SHOWN, false};
  return operation_formula(&f, op);
}

/* The same in one line, if it can be. */
static const struct expr *short_formula_of(const struct op *group, const struct op *op)
{
  enum { LINE = 80 };
  struct formula f = {group, MOST_SHOWN, true};
  const struct expr *e = formula_of(group, op);
  return strlen(expr_text(e)) > LINE ? operation_formula(&f, op) : e;
}

/* The factors of a product that adds to its third operand. */
static struct op factors_of(const struct op *op)
{
  struct op two = *op;
  two.nin = 2;
  return two;
}

/* Whether the operation adds to a value in place: to a sum of the batches before, say, which has
   the name of its terms. */
static bool adds_in_place(const struct op *op)
{
  int sum = op->kind == OP_add && op->nin == 2      ? op->in[0]
            : op->kind == OP_matmul && op->nin == 3 ? op->in[2]
                                                    : NONE;
  return sum != NONE && sum != op->out && same_place(sum, op->out) &&
         !strcmp(shown_operand(sum), shown_operand(op->out));
}

/* "d_w += x @ y", "d_w += d_w of this micro-batch" */
static char *in_place_sum(const struct op *group, const struct op *op)
{
  const char *sum = shown_operand(op->out);
  struct op two = factors_of(op);
  struct formula f = {group, MOST_SHOWN, false};
  if (op->kind == OP_matmul) return text("%s += %s", sum, expr_text(operation_formula(&f, &two)));
  const struct expr *term = operand_formula(&f, op->in[1]);
  const char *of = !strcmp(expr_text(term), sum)
                       ? text(" of this %s", microbatches() > 1 ? "micro-batch" : "batch")
                       : "";
  return text("%s += %s%s", sum, expr_text(term), of);
}

static char *formulas(const struct op *op, bool is_short)
{
  if (op->kind == OP_matmul) {
    /* "x @ w    ak,nk->an", or "d_w += x @ y    ab,ac->bc" if the product adds to its output. */
    struct op two = factors_of(op);
    const struct expr *product = formula_of(op, &two);
    if (adds_in_place(op)) return text("%s    %s", in_place_sum(op, op), op->equation);
    if (op->nin > 2) product = sign_expr("+", word_expr(shown_operand(op->in[2])), product);
    return text("%s    %s", expr_text(product), op->equation);
  }
  if (op->kind == OP_products && !graph->value[graph->op[op->body[0]].out].stored) {
    /* "d_x = d_q @ wq + d_k @ wk" */
    const struct expr *sum = NULL;
    for (int k = 0; k < op->nbody; k++) {
      struct op two = factors_of(&graph->op[op->body[k]]);
      sum = plus_expr(sum, "+", formula_of(op, &two));
    }
    return text("%s = %s", shown_operand(graph->op[op->body[op->nbody - 1]].out), expr_text(sum));
  }
  if (!op_row[op->kind].composed) {
    char *formula = expr_text(formula_of(op, op));
    if (op->kind != OP_view) return formula;
    return text("%s    %s -> %s", formula, shape_text(graph->value[op->in[0]].shape),
                shape_text(graph->value[op->out].shape));
  }
  struct buffer b = {0};
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (!graph->value[inner->out].stored) continue;
    const struct expr *e = (is_short ? short_formula_of : formula_of)(op, inner);
    put(&b, "%s%s", b.length ? "; " : "",
        adds_in_place(inner) ? in_place_sum(op, inner)
                             : text("%s = %s", shown_operand(inner->out), expr_text(e)));
  }
  return b.text;
}

char *formula_text(const struct op *op)
{
  return formulas(op, false);
}

char *short_formula_text(const struct op *op)
{
  return formulas(op, true);
}
