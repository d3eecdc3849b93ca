/* gradients.c: the gradient of every row of the table of operators that has one. Gradients by
   element are in gradients_by_element.c; gradient_parts.c has the parts from which they are made.

   Takes   an operation, and the gradient of its output.
   Leaves  operations at the end of the order that make the gradients of its inputs, each added to
           the earlier gradient of that input.

   A gradient has the shape and the type of its value: give_gradient, and only that, sums over
   broadcast dimensions and casts to another type. Only the gradient of a parameter's cast has the
   parameter's type at once: products and sums of narrow numbers produce it without rounding. So the
   functions below may use the output's shape.

   A pending sum over the ranks may pass only through inputs in which an operation is linear. If a
   row could be written in several ways, it is written so that the incoming gradient is such an
   input and the factors are computed apart from it: g * f(x), not f(g, x).

   The plan's own operators: graph->custom[op->custom].backward[i] makes the gradient of input i.
   Its inputs are the gradient of the first output, then all inputs of the forward operation, then
   all its outputs, in order. */
#include "graph_passes/graph_passes.h"

#include <string.h>

int *stays_at; /* of each value: a redistribution that keeps its layout, or NONE */

bool is_kept_for_backward(const struct op *op)
{
  if (op->kind != OP_redistribute) return false;
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  return same_layout(in->layout, out->layout) && in->type == out->type &&
         op->backward_type == in->type;
}

static struct shape shape_of(int value)
{
  return graph->value[value].shape;
}

/* The shape of g, with the sizes of `value` in the dimensions that the operation names. */
static struct shape named_as_in(int value, int g)
{
  struct shape shape = shape_of(g), named = shape_of(value);
  for (int d = 0; d < shape.ndim; d++)
    if (forward_op->dims >> d & 1) shape.size[d] = named.size[d];
  return shape;
}

/* An equation with its sides swapped: "abc->cab" becomes "cab->abc". */
static const char *swapped(const char *equation)
{
  const char *arrow = strstr(equation, "->");
  return text("%s->%.*s", arrow + 2, (int)(arrow - equation), equation);
}

/* ------------------------------------------------------------------------------------- products */

/* In matmul the gradient of a number is a vector of one element. Returns its letters. */
static const char *as_operand(int *g, const char *letters)
{
  if (*letters) return letters;
  *g = append_backward((struct op){.kind = OP_view, .nin = 1, .in = {*g}, .equation = "->1"});
  char letter = 'a';
  while (strchr(forward_op->equation, letter)) letter++;
  return text("%c", letter);
}

/* Sums of a gradient are of its type before they are stored, whatever the terms are. */
static void set_type_of_gradient(struct op *product, int of)
{
  product->type = gradient_type(of);
  product->typed = product->type != graph->value[product->in[0]].type;
}

void matmul_grad(int g)
{
  const char *part[3];
  /* Splits "A,B->C" into its operands. */
  const char *equation = forward_op->equation;
  size_t a = strcspn(equation, ","), b = strcspn(equation + a + 1, "-");
  part[0] = text("%.*s", (int)a, equation);
  part[1] = text("%.*s", (int)b, equation + a + 1);
  part[2] = equation + a + 1 + b + strlen("->");
  for (int i = 0; i < 2; i++)
    if (needs_gradient(i)) {
      /* C = A B under "A,B->C": the gradient of A is "C,B->A", of B "C,A->B". A letter of A that
         neither B nor C has was summed: the gradient is constant along it. */
      struct op product = {.kind = OP_matmul, .nin = 2, .in = {g, forward_op->in[1 - i]}};
      struct op expanded = {.kind = OP_expand, .nin = 1, .scalar = 1};
      const char *c = as_operand(&product.in[0], part[2]);
      char left[MAX_DIMS + 1] = {0};
      int n = 0;
      for (int d = 0; part[i][d]; d++) {
        if (strchr(part[2], part[i][d]) || strchr(part[1 - i], part[i][d]))
          left[n++] = part[i][d];
        else
          expanded.dims |= 1u << d;
      }
      product.equation = text("%s,%s->%s", c, part[1 - i], left);
      set_number(&product, "float8", number_of(forward_op, "float8"));
      set_type_of_gradient(&product, forward_op->in[i]);
      expanded.in[0] = append_backward(product);
      int matmul_side = expanded.dims
                            ? append_backward_shaped(expanded, shape_of(forward_op->in[i]))
                            : expanded.in[0];
      give_gradient(i, matmul_side);
    }
}

/* --------------------------------------------------------------- adding and removing dimensions */

static int expanded(int a, double scale)
{
  struct op op = like_forward(OP_expand, 1, &a);
  op.scalar = scale;
  return append_backward_shaped(op, shape_of(forward_op->in[0]));
}

void sum_grad(int g)
{
  give_gradient(0, expanded(g, forward_op->scalar));
}

/* The gradient is shared evenly among the elements that are the largest or the least. */
static void extreme_grad(int g)
{
  int found = backward_cast(backward_binary(OP_eq, forward_op->in[0], expanded(forward_op->out, 1)),
                            graph->value[g].type);
  struct op count = like_forward(OP_sum, 1, &found);
  count.scalar = 1;
  give_product(0, expanded(backward_binary(OP_div, g, append_backward(count)), 1), found);
}

void amax_grad(int g)
{
  extreme_grad(g);
}

void amin_grad(int g)
{
  extreme_grad(g);
}

void expand_grad(int g)
{
  give_gradient(0, append_backward(like_forward(OP_sum, 1, &g)));
}

void permute_grad(int g)
{
  struct op op = like_forward(OP_permute, 1, &g);
  op.equation = swapped(forward_op->equation);
  give_gradient(0, append_backward(op));
}

void view_grad(int g)
{
  struct op op = like_forward(OP_view, 1, &g);
  if (same_shape(shape_of(g), shape_of(forward_op->in[0]))) {
    give_gradient(0, g);
    return;
  }
  op.equation = swapped(forward_op->equation);
  give_gradient(0, append_backward_shaped(op, shape_of(forward_op->in[0])));
}

/* The part of g from `start` on, as long as the input. */
static void give_part(int i, int g, int64_t start)
{
  struct op op = like_forward(OP_narrow, 1, &g);
  op.number[0] = start;
  give_gradient(i, append_backward_shaped(op, named_as_in(forward_op->in[i], g)));
}

void cat_grad(int g)
{
  int dim = 0;
  while (!(forward_op->dims >> dim & 1)) dim++;
  int64_t start = 0;
  for (int i = 0; i < forward_op->nin; start += shape_of(forward_op->in[i++]).size[dim])
    if (needs_gradient(i)) give_part(i, g, start);
}

void pad_grad(int g)
{
  give_part(0, g, number_of(forward_op, "before"));
}

/* Other operators that lengthen or shorten a dimension come in pairs, with the same number. */
static void give_undone(int g, enum op_kind kind)
{
  give_gradient(
      0, append_backward_shaped(like_forward(kind, 1, &g), named_as_in(forward_op->in[0], g)));
}

void narrow_grad(int g)
{
  give_undone(g, OP_pad);
}

void every_grad(int g)
{
  give_undone(g, OP_spread);
}

void spread_grad(int g)
{
  give_undone(g, OP_every);
}

/* ----------------------------------------------------------------------- by indices of elements */

/* The gradient of a read by index: adds elements up where they were read. */
static void give_added(int g, enum op_kind kind)
{
  struct op op = like_forward(kind, 2, (int[]){g, forward_op->in[1]});
  give_gradient(0, append_backward_shaped(op, named_as_in(forward_op->in[0], g)));
}

/* A read of a single element of each row has a gradient by element. */
void gather_grad(int g)
{
  struct shape picked = shape_of(forward_op->in[1]);
  for (int d = 0; d < picked.ndim; d++) {
    if (!(forward_op->dims >> d & 1) || picked.size[d] != 1) continue;
    struct op op = like_forward(OP_place, 2, (int[]){g, forward_op->in[1]});
    op.keepdim = true;
    give_gradient(0, append_backward_shaped(op, shape_of(forward_op->in[0])));
    return;
  }
  give_added(g, OP_scatter_add);
}

void place_grad(int g)
{
  /* The value with the operation's dimension added, of size 1. */
  int value = forward_op->in[1];
  struct shape shape = shape_of(forward_op->out);
  for (int d = 0; d < shape.ndim; d++)
    if (forward_op->dims >> d & 1) shape.size[d] = 1;
  struct op op = {.kind = OP_view, .nin = 1, .in = {value}};
  op.equation = view_equation(shape_of(value), shape, forward_op->line);
  int picked = append_backward(like_forward(
      OP_gather, 2, (int[]){g, forward_op->keepdim ? value : append_backward_shaped(op, shape)}));
  struct op back = {.kind = OP_view, .nin = 1, .in = {picked}};
  back.equation = view_equation(shape_of(picked), shape_of(forward_op->in[0]), forward_op->line);
  give_gradient(0, forward_op->keepdim ? picked
                                       : append_backward_shaped(back, shape_of(forward_op->in[0])));
}

void index_select_grad(int g)
{
  give_added(g, OP_index_add);
}

void scatter_add_grad(int g)
{
  give_gradient(0, append_backward(like_forward(OP_gather, 2, (int[]){g, forward_op->in[1]})));
}

void index_add_grad(int g)
{
  give_gradient(0,
                append_backward(like_forward(OP_index_select, 2, (int[]){g, forward_op->in[1]})));
}

/* Overwritten elements have no gradient. */
void scatter_grad(int g)
{
  int index = forward_op->in[1];
  if (needs_gradient(0)) {
    struct op zeros = {.kind = OP_full, .type = graph->value[g].type};
    int over = append_backward_shaped(zeros, shape_of(forward_op->in[2]));
    give_gradient(0, append_backward(like_forward(OP_scatter, 3, (int[]){g, index, over})));
  }
  if (needs_gradient(2))
    give_gradient(2, append_backward(like_forward(OP_gather, 2, (int[]){g, index})));
}

void embedding_grad(int g)
{
  struct op op = like_forward(OP_embedding_back, 2, (int[]){g, forward_op->in[1]});
  give_gradient(0, append_backward_shaped(op, shape_of(forward_op->in[0])));
}

void cumsum_grad(int g)
{
  struct op op = like_forward(OP_cumsum, 1, &g);
  op.number[0] = !number_of(forward_op, "reverse");
  give_gradient(0, append_backward(op));
}

/* The gradient goes to the element that was the greatest. */
void cummax_grad(int g)
{
  struct op op = like_forward(OP_scatter_add, 2, (int[]){g, forward_op->out + 1});
  op.number[0] = 0;
  give_gradient(0, append_backward_shaped(op, named_as_in(forward_op->in[0], g)));
}

/* ------------------------------------------------------------------------------ whole operators */

/* The rule of a row with further inputs, "bq,bk"; `made`: the outputs, if they are not the row's.
 */
static const char *with_further(enum op_kind kind, const char *further, const char *made)
{
  const char *rule = op_row[kind].rule, *arrow = strstr(rule, "->");
  return text("%.*s,%s%s", (int)(arrow - rule), rule, further, made ? text("->%s", made) : arrow);
}

static int as_float(int value)
{
  return graph->value[value].type == F32 ? value : backward_cast(value, F32);
}

/* A sink is a score without a value: its weight takes the share -weight * mean, where the mean is
   that of the gradients of its row's weights. */
static int gradient_of_sinks(int g)
{
  int sinks = forward_op->in[forward_op->nin - 1], out = forward_op->out;
  struct shape heads = shape_of(sinks), column = {2, {heads.size[0], 1}};
  struct op view = {.kind = OP_view, .nin = 1, .in = {sinks}};
  view.equation = view_equation(heads, column, forward_op->line);
  int below = backward_binary(OP_sub, append_backward_shaped(view, column), out + 1);
  int shares = backward_binary(OP_mul, as_float(g), as_float(out));
  int means = append_backward(
      (struct op){.kind = OP_sum, .nin = 1, .in = {shares}, .dims = 1 << 3, .scalar = 1});
  int each = backward_binary(OP_mul, backward_unary(OP_exp, below), means);
  return append_backward(
      (struct op){.kind = OP_sum, .nin = 1, .in = {each}, .dims = 1 << 0 | 1 << 2, .scalar = -1});
}

void attention_grad(int g)
{
  enum { QKV = 3, ROW_INPUTS = 6 };
  const int *in = forward_op->in;
  bool sinks = number_of(forward_op, "sinks"), biased = number_of(forward_op, "biased");
  struct op op =
      like_forward(OP_attention_back, ROW_INPUTS,
                   (int[]){g, in[0], in[1], in[2], forward_op->out, forward_op->out + 1});
  copy_numbers(&op, forward_op);
  const char *further = forward_op->equation;
  for (int i = 0; further && i < QKV; i++) further = strchr(further, ',') + 1;
  int length = further ? (int)(strstr(further, "->") - further) : 0;
  if (sinks)
    while (length && further[--length] != ',') continue;
  if (further && length > 0) {
    further = text("%.*s", length, further);
    op.equation = with_further(op.kind, further, NULL);
    for (int i = QKV; i < forward_op->nin - sinks; i++) op.in[op.nin++] = in[i];
  }
  if (biased && needs_gradient(QKV)) {
    struct op of_bias = op;
    of_bias.kind = OP_attention_back_bias;
    of_bias.equation = with_further(op.kind, further, text("%s:f32", further));
    memset(of_bias.number + 2, 0, sizeof of_bias.number - 2 * sizeof *of_bias.number);
    give_gradient(QKV, append_backward_shaped(of_bias, shape_of(in[QKV])));
  }
  if (sinks && needs_gradient(forward_op->nin - 1))
    give_gradient(forward_op->nin - 1, gradient_of_sinks(g));
  struct shape shapes[QKV];
  for (int i = 0; i < QKV; i++) shapes[i] = shape_of(in[i]);
  int first = append_op_outputs(in_backward(op), shapes, QKV);
  for (int i = 0; i < QKV; i++)
    if (needs_gradient(i)) give_gradient(i, first + i);
}

void conv2d_grad(int g)
{
  int x = forward_op->in[0], w = forward_op->in[1];
  if (needs_gradient(0))
    give_gradient(0, append_backward_shaped(like_forward(OP_conv2d_back_input, 2, (int[]){g, w}),
                                            shape_of(x)));
  if (needs_gradient(1))
    give_gradient(1, append_backward_shaped(like_forward(OP_conv2d_back_weight, 2, (int[]){g, x}),
                                            shape_of(w)));
}

void conv2d_back_input_grad(int g)
{
  int x = forward_op->in[0], w = forward_op->in[1];
  if (needs_gradient(0))
    give_gradient(0,
                  append_backward_shaped(like_forward(OP_conv2d, 2, (int[]){g, w}), shape_of(x)));
  if (needs_gradient(1))
    give_gradient(1, append_backward_shaped(like_forward(OP_conv2d_back_weight, 2, (int[]){x, g}),
                                            shape_of(w)));
}

/* For dispatch and combine: each is the gradient of the other. Rows travel in their type. */
static void give_sent(int g, enum op_kind kind)
{
  const int *in = forward_op->in;
  enum type rows = graph->value[in[0]].type;
  if (kind == OP_dispatch && graph->value[g].type != rows) g = backward_cast(g, rows);
  struct op op = like_forward(kind, 4, (int[]){g, in[1], in[2], in[3]});
  if (needs_gradient(0)) give_gradient(0, append_backward(op));
}

static void give_weights_of_places(int tokens, int rows)
{
  const int *in = forward_op->in;
  struct op op = like_forward(OP_combine_back, 4, (int[]){tokens, in[1], rows, in[3]});
  if (needs_gradient(2)) give_gradient(2, append_backward(op));
}

void dispatch_grad(int g)
{
  give_sent(g, OP_combine);
  give_weights_of_places(forward_op->in[0], g);
}

void combine_grad(int g)
{
  give_sent(g, OP_dispatch);
  give_weights_of_places(g, forward_op->in[0]);
}

void grouped_linear_grad(int g)
{
  int x = forward_op->in[0], w = forward_op->in[1], counts = forward_op->in[2];
  if (needs_gradient(0))
    give_gradient(
        0, append_backward(like_forward(OP_grouped_linear_back_input, 3, (int[]){g, w, counts})));
  if (!needs_gradient(1)) return;
  struct op product = like_forward(OP_grouped_linear_back_weight, 3, (int[]){g, x, counts});
  set_type_of_gradient(&product, w);
  give_gradient(1, append_backward(product));
}

void max_pool2d_grad(int g)
{
  struct op op =
      like_forward(OP_max_pool2d_back, 3, (int[]){g, forward_op->in[0], forward_op->out});
  give_gradient(0, append_backward_shaped(op, shape_of(forward_op->in[0])));
}

void custom_grad(int g)
{
  const struct custom *custom = &graph->custom[forward_op->custom];
  int in[1 + MAX_INPUTS + MAX_OUTPUTS] = {g}, nin = 1;
  for (int i = 0; i < forward_op->nin; i++) in[nin++] = forward_op->in[i];
  for (int k = 0; k < forward_op->nout; k++) in[nin++] = forward_op->out + k;
  for (int i = 0; i < forward_op->nin; i++) {
    if (!needs_gradient(i)) continue;
    if (custom->backward[i] == NONE)
      plan_error(
          forward_op->line,
          "%s has no gradient for its input %c, which depends on a parameter: name an operator "
          "in backward[%d] of line %d, or detach the input",
          custom->name, 'a' + i, i + 1, custom->line);
    if (nin > MAX_INPUTS)
      plan_error(forward_op->line,
                 "%s: the operator of a gradient takes at most %d inputs; this one's would be %d: "
                 "the output's gradient, %d inputs and %d outputs",
                 custom->name, MAX_INPUTS, nin, forward_op->nin, forward_op->nout);
    struct op op = like_forward(OP_custom, nin, in);
    op.custom = custom->backward[i];
    /* The gradient of an input must have the input's dimensions. */
    struct letters l;
    op_letters(&op, &l);
    if (l.ndim_out[0] != shape_of(forward_op->in[i]).ndim)
      plan_error(
          custom->line,
          "operator %s: backward[%d], %s, makes by its rule %s no tensor that fits input %c, %s",
          custom->name, i + 1, op_name(&op), printable(rule_of(&op)), 'a' + i,
          shape_text(shape_of(forward_op->in[i])));
    give_gradient(i, append_backward_shaped(op, shape_of(forward_op->in[i])));
  }
}

/* ------------------------------------------------------------------------------- without a rule */

/* As in DTensor: back to the input's layout, pending sums reduced, in the requested type. If
   nothing changes, grad.c does it once, for the whole gradient. */
void redistribute_grad(int g)
{
  if (is_kept_for_backward(forward_op)) {
    give_gradient(0, g);
    return;
  }
  struct layout to = graph->value[forward_op->in[0]].layout;
  enum type type = forward_op->backward_type;
  int parameter = parameter_in(forward_op->in[0]);
  if (parameter != NONE && graph->value[parameter].used_as != graph->value[parameter].type)
    type = graph->value[parameter].reduced_as;
  for (int d = 0; d < MAX_MESH; d++)
    if (to.on[d].kind == PARTIAL) to.on[d] = (struct placement){0};
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {g},
                  .type = type,
                  .backward_type = type,
                  .to = to,
                  .asked = dimensions_of_ranks(),
                  .of_unit = forward_op->of_unit,
                  .unit = forward_op->unit};
  op.why = text("backward of %s", forward_op->why);
  /* A value that is whole in time was cut for each micro-batch: the gradient of a part is a term of
     a sum. */
  struct layout from = graph->value[forward_op->out].layout;
  int dim = time_dimension();
  if (dim != NONE && from.on[dim].kind == SHARD && to.on[dim].kind != SHARD) {
    op.asked |= 1u << dim;
    op.to.on[dim] = (struct placement){.kind = PARTIAL, .reduction = SUM};
  }
  int back = append_backward(op);
  name_gradient(back, forward_op->in[0]);
  give_gradient(0, back);
}

void no_grad(int g)
{
  bug_at("grad", graph->value[forward_op->out].op, "no gradient is known for it (%d)", g);
}

static void (*const gradient_of[OP_COUNT])(int g) = {
#define OP(name, rule, linear, gradient, ...) [OP_##name] = gradient,
#include "ir/ops.h"
#undef OP
};

void write_gradient(const struct op *op, int g, const bool *has_gradient, int *gradients)
{
  begin_gradient(op, has_gradient, gradients);
  gradient_of[op->kind](g);
}
