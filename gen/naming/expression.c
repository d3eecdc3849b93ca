/* expression.c: an operation in the model's words. */
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
  return printable(spoken_name(value));
}

/* The operation that makes a value within the same kernel without storing it, or NULL: such a
   value is shown as its expression. */
static const struct op *inner_maker(const struct op *group, int value)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (op->out == value && !graph->value[value].stored) return op;
  }
  return NULL;
}

/* How many operations the expression may still show: what is read twice is shown twice, with
   everything that it is made of. */
static int left;

static char *factor_text(double factor)
{
  return one_over(factor) ? text("1/%d", one_over(factor)) : text("%g", factor);
}
static void put_operand(struct buffer *b, const struct op *group, int value, bool within);

/* The number that the operation multiplies by, where its name does not show it. */
static double factor_of(const struct op *op)
{
  bool has_factor = op->kind == OP_scale || op->kind == OP_expand ||
                    (op->kind == OP_sum && !strcmp(op_name(op), "sum"));
  return has_factor ? op->scalar : 1;
}

/* How strongly a sign binds its operands, as C's does; what is no sign binds most. */
static int binding_of_sign(const char *sign)
{
  static const char *const signs[] = {" || ", " && ", " == != ", " < <= > >= ", " + - ", " * / @ "};
  enum { N = sizeof signs / sizeof *signs };
  for (int i = 0; i < N && sign; i++)
    if (strstr(signs[i], sign)) return i;
  return N;
}

/* How strongly the expression binds that is shown for the operand. */
static int binding_of(const struct op *group, int value)
{
  const struct op *maker = inner_maker(group, value);
  if (!maker) return binding_of_sign(NULL);
  if (factor_of(maker) != 1) return binding_of_sign(" * ");
  return maker->kind == OP_expand ? binding_of(group, maker->in[0])
                                  : binding_of_sign(op_row[maker->kind].sign);
}

/* "a + b" for the operators that C writes between their operands, "relu(a)" for the others. */
static void put_call(struct buffer *b, const struct op *group, const struct op *op, bool within)
{
  const char *sign = op_row[op->kind].sign;
  bool infix = sign != NULL;
  put(b, "%s%s", infix ? "" : op_name(op), infix && !within ? "" : "(");
  for (int i = 0; i < op->nin; i++) {
    put(b, "%s", !i ? "" : infix ? sign : ", ");
    put_operand(b, group, op->in[i],
                infix && (i > 0 || binding_of(group, op->in[i]) < binding_of_sign(sign)));
  }
  if (op->kind == OP_power) put(b, ", %s", double_text(op->scalar));
  put(b, "%s", infix && !within ? "" : ")");
}

static void put_nested(struct buffer *b, const struct op *group, const struct op *op, bool within)
{
  double factor = factor_of(op);
  if (factor == 1) {
    put_call(b, group, op, within);
    return;
  }
  put(b, "%s%s * ", within ? "(" : "", factor_text(factor));
  if (op->kind == OP_scale)
    put_operand(b, group, op->in[0], true);
  else
    put_call(b, group, op, true);
  put(b, "%s", within ? ")" : "");
}
static void put_broadcast(struct buffer *b, const struct op *group, const struct op *op,
                          bool within);

static void put_operand(struct buffer *b, const struct op *group, int value, bool within)
{
  const struct op *maker = inner_maker(group, value);
  const struct value *v = &graph->value[value];
  if (maker && left-- <= 0)
    put(b, "%s(...)", op_name(maker));
  else if (maker && maker->kind == OP_expand)
    put_broadcast(b, group, maker, within);
  else if (maker)
    put_nested(b, group, maker, within);
  else if (v->op != NONE && !v->stored && graph->op[v->op].kind == OP_full)
    put(b, "%g", graph->op[v->op].scalar);
  else
    put(b, "%s", shown_operand(value));
}

/* A broadcast value is shown as its input; possibly times a number. */
static void put_broadcast(struct buffer *b, const struct op *group, const struct op *op,
                          bool within)
{
  if (op->scalar == 1) {
    put_operand(b, group, op->in[0], within);
    return;
  }
  size_t begun = b->length;
  put(b, "%s%s * ", within ? "(" : "", factor_text(op->scalar));
  size_t of = b->length;
  put_operand(b, group, op->in[0], true);
  if (!strcmp(b->text + of, "1")) {
    b->length = begun;
    put(b, "%s", factor_text(op->scalar));
  } else {
    put(b, "%s", within ? ")" : "");
  }
}

static char *nested_text(const struct op *op)
{
  struct buffer b = {0};
  put_nested(&b, op, op, false);
  return b.text;
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
static void put_in_place_sum(struct buffer *b, const struct op *group, const struct op *op)
{
  struct op two = factors_of(op);
  put(b, "%s += ", shown_operand(op->out));
  if (op->kind == OP_matmul) {
    put_nested(b, group, &two, false);
    return;
  }
  put_operand(b, group, op->in[1], false);
  bool is_stored = !inner_maker(group, op->in[1]);
  if (is_stored && !strcmp(shown_operand(op->in[1]), shown_operand(op->out)))
    put(b, " of this %s", microbatches() > 1 ? "micro-batch" : "batch");
}

/* "x @ w    ak,nk->an", or "d_w += x @ y    ab,ac->bc" if the product adds to its output. */
static char *product_text(const struct op *op)
{
  struct op two = factors_of(op);
  struct buffer b = {0};
  if (op->nin == 2) return text("%s    %s", nested_text(op), op->equation);
  if (adds_in_place(op)) {
    put_in_place_sum(&b, op, op);
  } else {
    put(&b, "%s + ", shown_operand(op->in[2]));
    put_nested(&b, op, &two, true);
  }
  put(&b, "    %s", op->equation);
  return b.text;
}

/* "d_x = d_q @ wq + d_k @ wk" */
static char *sum_of_products(const struct op *op)
{
  struct buffer b = {0};
  put(&b, "%s = ", shown_operand(graph->op[op->body[op->nbody - 1]].out));
  for (int k = 0; k < op->nbody; k++) {
    struct op two = factors_of(&graph->op[op->body[k]]);
    put(&b, "%s%s", k ? " + " : "", nested_text(&two));
  }
  return b.text;
}

char *expression_text(const struct op *op)
{
  if (op->kind == OP_matmul) return product_text(op);
  if (op->kind == OP_view)
    return text("%s    %s -> %s", nested_text(op), shape_text(graph->value[op->in[0]].shape),
                shape_text(graph->value[op->out].shape));
  if (!op_row[op->kind].composed) return nested_text(op);
  if (op->kind == OP_products && !graph->value[graph->op[op->body[0]].out].stored)
    return sum_of_products(op);
  enum { MOST = 40 };
  struct buffer b = {0};
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (!graph->value[inner->out].stored) continue;
    left = MOST;
    if (b.length) put(&b, "; ");
    if (adds_in_place(inner)) {
      put_in_place_sum(&b, op, inner);
      continue;
    }
    put(&b, "%s = ", shown_operand(inner->out));
    put_nested(&b, op, inner, false);
  }
  return b.text;
}
