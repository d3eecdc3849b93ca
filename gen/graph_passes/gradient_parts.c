/* gradient_parts.c: the parts from which the gradients of rows are made: operations of the
   backward, and give_gradient, which adds a gradient to an input. gradients.c and
   gradients_by_element.c have the rows. */
#include "graph_passes/graph_passes.h"

#include <ctype.h>
#include <string.h>

const struct op *forward_op;     /* module and line of the new operations */
static const bool *has_gradient; /* of each value */
static int *gradient;            /* of each value, or NONE */

void begin_gradient(const struct op *op, const bool *needs, int *gradients)
{
  forward_op = op;
  has_gradient = needs;
  gradient = gradients;
}

/* ------------------------------------------------------------------------------------ the parts */

struct op in_backward(struct op op)
{
  op.module = forward_op->module;
  op.line = forward_op->line;
  op.part_of = forward_op->part_of;
  op.phase = BACKWARD;
  return op;
}

int append_backward(struct op op)
{
  return append_op(in_backward(op));
}

int append_backward_shaped(struct op op, struct shape shape)
{
  return append_op_shaped(in_backward(op), shape);
}

int backward_unary(enum op_kind kind, int a)
{
  return append_backward((struct op){.kind = kind, .nin = 1, .in = {a}});
}

int backward_binary(enum op_kind kind, int a, int b)
{
  return append_backward((struct op){.kind = kind, .nin = 2, .in = {a, b}});
}

int backward_where(int condition, int then, int otherwise)
{
  return append_backward(
      (struct op){.kind = OP_where, .nin = 3, .in = {condition, then, otherwise}});
}

int backward_scale(int a, double by)
{
  return append_backward((struct op){.kind = OP_scale, .nin = 1, .in = {a}, .scalar = by});
}

int backward_cast(int a, enum type type)
{
  return append_backward((struct op){.kind = OP_cast, .nin = 1, .in = {a}, .type = type});
}

/* A number, which broadcasts; of the type of `like`. */
int backward_number(double x, int like)
{
  struct op op = {.kind = OP_full, .scalar = x, .type = graph->value[like].type};
  return append_backward_shaped(op, (struct shape){0});
}

/* An operation with the attributes of the forward one. */
struct op like_forward(enum op_kind kind, int nin, const int *in)
{
  struct op op = {.kind = kind,
                  .nin = nin,
                  .scalar = forward_op->scalar,
                  .softcap = forward_op->softcap,
                  .dims = forward_op->dims,
                  .keepdim = forward_op->keepdim};
  memcpy(op.in, in, (size_t)nin * sizeof *in);
  memcpy(op.number, forward_op->number, sizeof op.number);
  return op;
}

/* The gradient of a broadcast value is the sum over the broadcast dimensions. */
static int unbroadcast(int g, int value)
{
  struct shape from = graph->value[g].shape, to = graph->value[value].shape;
  int missing = from.ndim - to.ndim;
  unsigned gone = (1u << missing) - 1, broadcast = 0;
  for (int d = 0; d < to.ndim; d++)
    if (to.size[d] == 1 && from.size[missing + d] != 1) broadcast |= 1u << d;
  if (gone)
    g = append_backward(
        (struct op){.kind = OP_sum, .nin = 1, .in = {g}, .dims = gone, .scalar = 1});
  if (broadcast)
    g = append_backward((struct op){
        .kind = OP_sum, .nin = 1, .in = {g}, .dims = broadcast, .keepdim = true, .scalar = 1});
  return g;
}

void name_gradient(int g, int value)
{
  struct value *v = &graph->value[g];
  if (!strncmp(v->name, "d_", 2)) return;
  v->of = value;
  value = shown_value(value);
  int op = graph->value[value].op, in = op == NONE ? NONE : graph->op[op].in[0];
  bool used = op != NONE && graph->op[op].kind == OP_cast && graph->value[in].role == PARAMETER;
  v->name =
      text("d_%s", value_name(used ? in : value)); /* of a parameter's cast: the parameter's */
}

/* A term of a value's gradient is named after the module that it comes from, so that terms have
   different names: "d_norm_from_wq". A sum of terms has the plain name. */
static void name_term(int g, int value)
{
  struct value *v = &graph->value[g];
  const struct op *op = &graph->op[v->op];
  const char *whole = text("d_%s", value_name(shown_value(value)));
  bool sum = op->kind == OP_add && strstr(graph->value[op->in[1]].name, "_from_");
  if (strcmp(v->name, whole) || sum || op->module == NONE) return;
  const char *path = graph->module[op->module].path, *dot = strrchr(path, '.');
  const char *last = dot ? dot + 1 : path;
  if (isalpha((unsigned char)*last)) v->name = text("%s_from_%s", whole, last);
}

/* The parameter that the value is, perhaps after casts, moves or views; or NONE. */
int parameter_in(int value)
{
  for (;; value = graph->op[graph->value[value].op].in[0]) {
    const struct value *v = &graph->value[value];
    if (v->role == PARAMETER) return value;
    if (v->op == NONE || op_row[graph->op[v->op].kind].elements != ALL_OF_FIRST) return NONE;
  }
}

/* The type of the value's gradient. */
enum type gradient_type(int value)
{
  int parameter = parameter_in(value);
  return graph->value[parameter == NONE ? value : parameter].type;
}

bool needs_gradient(int i)
{
  return has_gradient[forward_op->in[i]];
}

/* Adds g to the gradient of the i-th input, and names it after that input. */
void give_gradient(int i, int g)
{
  int value = forward_op->in[i];
  enum type type = gradient_type(value);
  if (type == F32 && graph->value[g].type != F32) g = backward_cast(g, F32);
  g = unbroadcast(g, value);
  if (graph->value[g].type != type) g = backward_cast(g, type);
  name_gradient(g, value);
  if (gradient[value] != NONE) {
    name_term(gradient[value], value);
    name_term(g, value);
    g = backward_binary(OP_add, gradient[value], g);
    name_gradient(g, value);
  }
  gradient[value] = g;
}

void give_product(int i, int g, int factor)
{
  give_gradient(i, backward_binary(OP_mul, g, factor));
}
