/* grad.c: the pass `grad`: the backward program.

   Takes   the forward graph, every value placed.
   Leaves  after it, for each parameter that the loss depends on, the operations that make its
           gradient, laid out as the parameter is: a value with the role GRADIENT.

   Reverse mode: from the loss back, each operation's gradient function adds the operations that
   take the gradient of what it made to the gradients of what it took. A redistribution's own
   gradient is DTensor's: back to where its input lay, with pending sums made whole. */
#include "tpgen.h"

#include <string.h>

static int *gradient; /* of each value: a value, or NONE while nothing has reached it */
static bool *wanted;  /* the value depends on a parameter */
static int *readers;  /* of each value: operations that may still add to its gradient */
static const struct op
    *at; /* the forward operation under work: module and line of what it leads to */

static int apply(struct op op)
{
  op.module = at->module;
  op.line = at->line;
  op.phase = BACKWARD;
  return append_op(op);
}

static int unary(enum op_kind kind, int a)
{
  return apply((struct op){.kind = kind, .nin = 1, .in = {a}});
}

static int binary(enum op_kind kind, int a, int b)
{
  return apply((struct op){.kind = kind, .nin = 2, .in = {a, b}});
}

static int scaled(int a, double by)
{
  return apply((struct op){.kind = OP_scale, .nin = 1, .in = {a}, .scalar = by});
}

/* The gradient of a value that was broadcast is the sum over the dimensions in which it was. */
static int unbroadcast(int g, int value)
{
  struct shape from = graph->value[g].shape, to = graph->value[value].shape;
  int missing = from.ndim - to.ndim;
  unsigned gone = (1u << missing) - 1, stretched = 0;
  for (int d = 0; d < to.ndim; d++)
    if (to.size[d] == 1 && from.size[missing + d] != 1) stretched |= 1u << d;
  if (gone) g = apply((struct op){.kind = OP_sum, .nin = 1, .in = {g}, .dims = gone, .scalar = 1});
  if (stretched)
    g = apply((struct op){
        .kind = OP_sum, .nin = 1, .in = {g}, .dims = stretched, .keep = true, .scalar = 1});
  return g;
}

static void name_after(int g, int value)
{
  struct value *v = &graph->value[g];
  if (strncmp(v->name, "d_", 2)) v->name = text("d_%s", value_name(value));
}

/* Adds g to the gradient of the i-th input, and names it after that input. */
static void give(int i, int g)
{
  int value = at->in[i];
  g = unbroadcast(g, value);
  name_after(g, value);
  if (gradient[value] != NONE) g = binary(OP_add, gradient[value], g);
  name_after(g, value);
  gradient[value] = g;
}

static bool needs(int i)
{
  return wanted[at->in[i]];
}

/* ------------------------------------------------------- one function for each row of the table */

/* C = A B under "A,B->C": the gradient of A is "C,B->A", of B "C,A->B". */
static void matmul_grad(int g)
{
  char part[3][2 * MAX_DIMS + 1] = {{0}};
  const char *c = at->equation;
  for (int i = 0; i < 3; i++, c += strspn(c, ",->")) {
    size_t n = strcspn(c, ",->");
    memcpy(part[i], c, n);
    c += n;
  }
  for (int i = 0; i < 2; i++)
    if (needs(i))
      give(i, apply((struct op){.kind = OP_matmul,
                                .nin = 2,
                                .in = {g, at->in[1 - i]},
                                .equation = text("%s,%s->%s", part[2], part[1 - i], part[i])}));
}

static void add_grad(int g)
{
  for (int i = 0; i < 2; i++)
    if (needs(i)) give(i, g);
}

static void sub_grad(int g)
{
  if (needs(0)) give(0, g);
  if (needs(1)) give(1, unary(OP_neg, g));
}

static void mul_grad(int g)
{
  for (int i = 0; i < 2; i++)
    if (needs(i)) give(i, binary(OP_mul, g, at->in[1 - i]));
}

static void div_grad(int g)
{
  if (needs(0)) give(0, binary(OP_div, g, at->in[1]));
  if (needs(1)) give(1, unary(OP_neg, binary(OP_div, binary(OP_mul, g, at->out), at->in[1])));
}

static void neg_grad(int g)
{
  give(0, unary(OP_neg, g));
}

static void scale_grad(int g)
{
  give(0, scaled(g, at->scalar));
}

static void relu_grad(int g)
{
  give(0, binary(OP_relu_back, g, at->out));
}

static void sigmoid_grad(int g)
{
  give(0, binary(OP_sigmoid_back, g, at->out));
}

static void tanh_grad(int g)
{
  give(0, binary(OP_tanh_back, g, at->out));
}

static void silu_grad(int g)
{
  give(0, binary(OP_silu_back, g, at->in[0]));
}

static void exp_grad(int g)
{
  give(0, binary(OP_mul, g, at->out));
}

static void square_grad(int g)
{
  give(0, scaled(binary(OP_mul, g, at->in[0]), 2));
}

static void expand_grad(int g)
{
  give(0, apply((struct op){.kind = OP_sum,
                            .nin = 1,
                            .in = {g},
                            .dims = at->dims,
                            .keep = at->keep,
                            .scalar = at->scalar}));
}

static void sum_grad(int g)
{
  struct op op = {.kind = OP_expand,
                  .nin = 1,
                  .in = {g},
                  .dims = at->dims,
                  .keep = at->keep,
                  .scalar = at->scalar,
                  .module = at->module,
                  .line = at->line,
                  .phase = BACKWARD};
  give(0, append_op_shaped(op, graph->value[at->in[0]].shape));
}

/* The mean's own gradient is zero: ops.h. */
static void variance_grad(int g)
{
  if (needs(0))
    give(0, apply((struct op){.kind = OP_variance_back,
                              .nin = 3,
                              .in = {g, at->in[0], at->in[1]},
                              .scalar = at->scalar}));
}

static void redistribute_grad(int g)
{
  struct layout to = graph->value[at->in[0]].layout;
  for (int d = 0; d < MAX_MESH; d++)
    if (to.on[d].kind == PARTIAL) to.on[d] = (struct placement){0};
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {g},
                  .to = to,
                  .asked = (1u << graph->mesh.ndim) - 1};
  op.why = text("backward of %s", at->why);
  give(0, apply(op));
}

static void no_grad(int g)
{
  bug("grad", graph->value[at->out].op, "no gradient is known for it (%d)", g);
}

static void (*const write_gradient[OP_COUNT])(int g) = {
#define OP(name, dimensions, linear, gradient, expression) [OP_##name] = gradient,
#include "ops.h"
#undef OP
};

/* ------------------------------------------------------------------------------------- the pass */

static void mark_wanted(void)
{
  for (int i = 0; i < graph->nvalue; i++) wanted[i] = graph->value[i].role == PARAMETER;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    for (int k = 0; k < op->nin; k++) {
      if (op->out != NONE && wanted[op->in[k]]) wanted[op->out] = true;
      readers[op->in[k]]++;
    }
  }
}

static void gradient_of_parameter(int parameter)
{
  struct value p = graph->value[parameter];
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {gradient[parameter]},
                  .to = p.layout,
                  .asked = (1u << graph->mesh.ndim) - 1,
                  .phase = BACKWARD,
                  .module = p.module,
                  .line = p.line,
                  .why = text("the gradient of %s", p.name)};
  int out = append_op(op);
  graph->value[out].role = GRADIENT;
  graph->value[out].of = parameter;
  graph->value[out].name = text("d_%s", p.name);
}

/* The operation is done with: parameters that nothing else reads have their whole gradient. */
static void leave(const struct op *op)
{
  for (int i = 0; i < op->nin; i++) {
    int value = op->in[i];
    bool whole = --readers[value] == 0 && gradient[value] != NONE;
    if (whole && graph->value[value].role == PARAMETER) gradient_of_parameter(value);
  }
}

void grad(void)
{
  if (graph->loss == NONE) return;
  int known = graph->nvalue, norder = graph->norder;
  gradient = alloc((size_t)known * sizeof *gradient);
  wanted = alloc((size_t)known * sizeof *wanted);
  readers = alloc((size_t)known * sizeof *readers);
  for (int i = 0; i < known; i++) gradient[i] = NONE;
  mark_wanted();
  if (!wanted[graph->loss])
    plan_error(graph->train_line, "the loss depends on no parameter: there is nothing to train");

  /* Gradient functions read the forward operation through `at` while they add to the array. */
  struct op loss = graph->op[graph->value[graph->loss].op];
  at = &loss;
  gradient[graph->loss] = append_op_shaped((struct op){.kind = OP_full,
                                                       .scalar = 1,
                                                       .module = loss.module,
                                                       .line = loss.line,
                                                       .phase = BACKWARD},
                                           graph->value[graph->loss].shape);
  for (int i = norder - 1; i >= 0; i--) {
    struct op op = graph->op[graph->order[i]];
    at = &op;
    if (op.out != NONE && wanted[op.out] && gradient[op.out] != NONE)
      write_gradient[op.kind](gradient[op.out]);
    leave(&op);
  }
  propagate_from(norder);
}
