/* gradients.c: the gradient of every row of the table of operators that has one.

   Takes   an operation, and the gradient of what it made.
   Leaves  operations at the end of the order that make the gradients of what it took, each added to
           what had reached that input before.

   A gradient has the shape and the type of its value: what was broadcast is summed, and what has
   another type is cast, in one place (give). Only the gradient of a parameter's cast has the
   parameter's type at once: products and sums of narrow numbers make it so, and it is never
   rounded. So the functions below may think in the output's shape.

   A sum over the ranks that is still pending may pass only through inputs in which an operation is
   linear. Where a row could be written in several ways, it is written so that the incoming gradient
   takes such a way, and that factors are made apart from it: g * f(x), not f(g, x).

   The plan's own operators: graph->custom[op->custom].backward[i] makes the gradient of input i. It
   is given the gradient of the first output, then all that the forward operation took, in order,
   then all that it made. */
#include "flat/flat.h"

#include <ctype.h>
#include <string.h>

int *stays_at; /* of each value: a redistribution that leaves it where it lies, or NONE */

bool stays(const struct op *op)
{
  if (op->kind != OP_redistribute) return false;
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  return same_layout(in->layout, out->layout) && in->type == out->type &&
         op->backward_type == in->type;
}

static const struct op *at; /* the forward operation: module and line of what it leads to */
static const bool *wanted;  /* of each value */
static int *gradient;       /* of each value, or NONE */

/* ------------------------------------------------------------------------ what they are made of */

static struct op from_here(struct op op)
{
  op.module = at->module;
  op.line = at->line;
  op.part_of = at->part_of;
  op.phase = BACKWARD;
  return op;
}

static int apply(struct op op)
{
  return append_op(from_here(op));
}

static int apply_shaped(struct op op, struct shape shape)
{
  return append_op_shaped(from_here(op), shape);
}

static int unary(enum op_kind kind, int a)
{
  return apply((struct op){.kind = kind, .nin = 1, .in = {a}});
}

static int binary(enum op_kind kind, int a, int b)
{
  return apply((struct op){.kind = kind, .nin = 2, .in = {a, b}});
}

static int either(int condition, int then, int otherwise)
{
  return apply((struct op){.kind = OP_where, .nin = 3, .in = {condition, then, otherwise}});
}

static int scaled(int a, double by)
{
  return apply((struct op){.kind = OP_scale, .nin = 1, .in = {a}, .scalar = by});
}

static int cast(int a, enum type type)
{
  return apply((struct op){.kind = OP_cast, .nin = 1, .in = {a}, .type = type});
}

/* A number, which broadcasts; of the type of `like`. */
static int number(double x, int like)
{
  struct op op = {.kind = OP_full, .scalar = x, .type = graph->value[like].type};
  return apply_shaped(op, (struct shape){0});
}

/* An operation with the attributes of the forward one. */
static struct op alike(enum op_kind kind, int nin, const int *in)
{
  struct op op = {
      .kind = kind, .nin = nin, .scalar = at->scalar, .dims = at->dims, .keep = at->keep};
  memcpy(op.in, in, (size_t)nin * sizeof *in);
  memcpy(op.number, at->number, sizeof op.number);
  return op;
}

static struct shape shape_of(int value)
{
  return graph->value[value].shape;
}

/* The shape of g, but in the dimensions that the operation names, where `value` lends its sizes. */
static struct shape named_as_in(int value, int g)
{
  struct shape shape = shape_of(g), named = shape_of(value);
  for (int d = 0; d < shape.ndim; d++)
    if (at->dims >> d & 1) shape.size[d] = named.size[d];
  return shape;
}

/* The gradient of a value that was broadcast is the sum over the dimensions in which it was. */
static int unbroadcast(int g, int value)
{
  struct shape from = shape_of(g), to = shape_of(value);
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
  if (!strncmp(v->name, "d_", 2)) return;
  v->of = value;
  value = shown_value(value);
  int op = graph->value[value].op, in = op == NONE ? NONE : graph->op[op].in[0];
  bool used = op != NONE && graph->op[op].kind == OP_cast && graph->value[in].role == PARAMETER;
  v->name =
      text("d_%s", value_name(used ? in : value)); /* of a parameter's cast: the parameter's */
}

/* One of the terms of a value's gradient is told from the others by the module that it comes from:
   "d_norm_from_wq". The sum of some has the name of them all. */
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

/* The parameter that the value is, or is cast, moved or seen in another shape; or NONE. */
static int parameter_in(int value)
{
  for (;; value = graph->op[graph->value[value].op].in[0]) {
    const struct value *v = &graph->value[value];
    if (v->role == PARAMETER) return value;
    enum op_kind kind = v->op == NONE ? OP_COUNT : graph->op[v->op].kind;
    if (kind != OP_cast && kind != OP_redistribute && kind != OP_view && kind != OP_permute)
      return NONE;
  }
}

/* The type of the value's gradient. */
static enum type gradient_type(int value)
{
  int parameter = parameter_in(value);
  return graph->value[parameter == NONE ? value : parameter].type;
}

static bool needs(int i)
{
  return wanted[at->in[i]];
}

/* Adds g to the gradient of the i-th input, and names it after that input. */
static void give(int i, int g)
{
  int value = at->in[i];
  enum type type = gradient_type(value);
  if (type == F32 && graph->value[g].type != F32) g = cast(g, F32);
  g = unbroadcast(g, value);
  if (graph->value[g].type != type) g = cast(g, type);
  name_after(g, value);
  if (gradient[value] != NONE) {
    name_term(gradient[value], value);
    name_term(g, value);
    g = binary(OP_add, gradient[value], g);
    name_after(g, value);
  }
  gradient[value] = g;
}

static void give_product(int i, int g, int factor)
{
  give(i, binary(OP_mul, g, factor));
}

/* An equation with its sides swapped: "abc->cab" becomes "cab->abc". */
static const char *swapped(const char *equation)
{
  const char *arrow = strstr(equation, "->");
  return text("%s->%.*s", arrow + 2, (int)(arrow - equation), equation);
}

/* ------------------------------------------------------------------------------------- products */

/* The operands of "A,B->C" apart. */
static void take_apart(const char *equation, const char *part[3])
{
  size_t a = strcspn(equation, ","), b = strcspn(equation + a + 1, "-");
  part[0] = text("%.*s", (int)a, equation);
  part[1] = text("%.*s", (int)b, equation + a + 1);
  part[2] = equation + a + 1 + b + strlen("->");
}

/* The gradient of a number is a factor of matmul as a vector of one element. Gives its letters. */
static const char *as_operand(int *g, const char *letters)
{
  if (*letters) return letters;
  *g = apply((struct op){.kind = OP_view, .nin = 1, .in = {*g}, .equation = "->1"});
  char letter = 'a';
  while (strchr(at->equation, letter)) letter++;
  return text("%c", letter);
}

/* C = A B under "A,B->C": the gradient of A is "C,B->A", of B "C,A->B". A letter of A that neither
   B nor C has was summed: its gradient is the same all along it. */
static int matmul_side(int g, const char *const part[3], int i)
{
  struct op product = {.kind = OP_matmul, .nin = 2, .in = {g, at->in[1 - i]}};
  struct op stretch = {.kind = OP_expand, .nin = 1, .scalar = 1};
  const char *c = as_operand(&product.in[0], part[2]);
  char left[MAX_DIMS + 1] = {0};
  int n = 0;
  for (int d = 0; part[i][d]; d++) {
    if (strchr(part[2], part[i][d]) || strchr(part[1 - i], part[i][d]))
      left[n++] = part[i][d];
    else
      stretch.dims |= 1u << d;
  }
  product.equation = text("%s,%s->%s", c, part[1 - i], left);
  product.type = gradient_type(at->in[i]);
  product.typed = product.type != graph->value[g].type;
  stretch.in[0] = apply(product);
  return stretch.dims ? apply_shaped(stretch, shape_of(at->in[i])) : stretch.in[0];
}

static void matmul_grad(int g)
{
  const char *part[3];
  take_apart(at->equation, part);
  for (int i = 0; i < 2; i++)
    if (needs(i)) give(i, matmul_side(g, part, i));
}

/* --------------------------------------------------------------------------- element by element */

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
    if (needs(i)) give_product(i, g, at->in[1 - i]);
}

static void div_grad(int g)
{
  if (needs(0)) give(0, binary(OP_div, g, at->in[1]));
  if (needs(1)) give(1, unary(OP_neg, binary(OP_div, binary(OP_mul, g, at->out), at->in[1])));
}

/* 1 where `chosen` says that the input was taken over the other, a half where they are equal. */
static void choice_grad(int g, enum op_kind chosen)
{
  for (int i = 0; i < 2; i++) {
    if (!needs(i)) continue;
    int mine = at->in[i], other = at->in[1 - i];
    int tie = either(binary(OP_eq, mine, other), number(0.5, g), number(0, g));
    give_product(i, g, either(binary(chosen, mine, other), number(1, g), tie));
  }
}

static void maximum_grad(int g)
{
  choice_grad(g, OP_gt);
}

static void minimum_grad(int g)
{
  choice_grad(g, OP_lt);
}

/* b a^(b - 1), and a^b log a; both are 0 where a product with infinity would make them no
   number. */
static void pow_grad(int g)
{
  int a = at->in[0], b = at->in[1];
  if (needs(0)) {
    int slope = binary(OP_mul, b, binary(OP_pow, a, binary(OP_sub, b, number(1, b))));
    give_product(0, g, either(binary(OP_eq, b, number(0, b)), number(0, slope), slope));
  }
  if (needs(1)) {
    int slope = binary(OP_mul, at->out, unary(OP_log, a));
    int flat =
        binary(OP_logical_and, binary(OP_eq, a, number(0, a)), binary(OP_ge, b, number(0, b)));
    give_product(1, g, either(flat, number(0, slope), slope));
  }
}

/* s a^(s - 1); of a^0 it is 0, in a = 0 too. */
static void power_grad(int g)
{
  double s = at->scalar;
  if (s == 0) {
    give(0, scaled(g, 0));
    return;
  }
  struct op lower = {.kind = OP_power, .nin = 1, .in = {at->in[0]}, .scalar = s - 1};
  give_product(0, scaled(g, s), apply(lower));
}

static void neg_grad(int g)
{
  give(0, unary(OP_neg, g));
}

static void scale_grad(int g)
{
  give(0, scaled(g, at->scalar));
}

static void abs_grad(int g)
{
  give(0, binary(OP_abs_back, g, at->in[0]));
}

static void exp_grad(int g)
{
  give_product(0, g, at->out);
}

static void expm1_grad(int g)
{
  give(0, binary(OP_expm1_back, g, at->in[0]));
}

static void log1p_grad(int g)
{
  give(0, binary(OP_log1p_back, g, at->in[0]));
}

static void erf_grad(int g)
{
  give(0, binary(OP_erf_back, g, at->in[0]));
}

static void softplus_grad(int g)
{
  give(0, binary(OP_softplus_back, g, at->in[0]));
}

static void log_grad(int g)
{
  give(0, binary(OP_div, g, at->in[0]));
}

static void sqrt_grad(int g)
{
  give(0, scaled(binary(OP_div, g, at->out), 0.5));
}

/* The slope of 1 / sqrt(a) is -1/2 of its third power. */
static void rsqrt_grad(int g)
{
  give_product(0, scaled(g, -0.5), binary(OP_mul, at->out, unary(OP_square, at->out)));
}

static void square_grad(int g)
{
  give(0, scaled(binary(OP_mul, g, at->in[0]), 2));
}

static void sin_grad(int g)
{
  give_product(0, g, unary(OP_cos, at->in[0]));
}

static void cos_grad(int g)
{
  give(0, unary(OP_neg, binary(OP_mul, g, unary(OP_sin, at->in[0]))));
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

static void gelu_grad(int g)
{
  give(0, binary(OP_gelu_back, g, at->in[0]));
}

static void gelu_tanh_grad(int g)
{
  give(0, binary(OP_gelu_tanh_back, g, at->in[0]));
}

/* Not a product: what was not chosen may have an infinite gradient, which must not reach it. */
static void where_grad(int g)
{
  int condition = at->in[0];
  if (needs(1)) give(1, either(condition, g, number(0, g)));
  if (needs(2)) give(2, either(condition, number(0, g), g));
}

/* give casts. */
static void cast_grad(int g)
{
  give(0, g);
}

/* The same elements are dropped: the mask depends on the stream and the place alone. */
static void dropout_grad(int g)
{
  give(0, apply(alike(OP_dropout, 1, &g)));
}

static void tril_grad(int g)
{
  give(0, apply(alike(OP_tril, 1, &g)));
}

static void triu_grad(int g)
{
  give(0, apply(alike(OP_triu, 1, &g)));
}

/* Minus the value: the operation before of the same module that computes it, if there is one. */
static int negated(int value)
{
  for (int i = graph->norder; i-- > 0;) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->phase != BACKWARD || op->module != at->module) break;
    if (op->kind == OP_neg && op->in[0] == value) return op->out;
  }
  return unary(OP_neg, value);
}

/* Turned back: by an angle with the same cosine and minus the sine. */
static void turn_back(int g)
{
  if (needs(1) || needs(2))
    plan_error(at->line, "%s has no gradient for its %s: no parameter may lead to it", op_name(at),
               needs(1) ? "cosine" : "sine");
  give(0, apply(alike(at->kind, 3, (int[]){g, at->in[1], negated(at->in[2])})));
}

static void rotary_grad(int g)
{
  turn_back(g);
}

static void rotary_pairs_grad(int g)
{
  turn_back(g);
}

/* ----------------------------------------------------------------------- dimensions come and go */

static int expanded(int a, double scale)
{
  struct op op = alike(OP_expand, 1, &a);
  op.scalar = scale;
  return apply_shaped(op, shape_of(at->in[0]));
}

static void sum_grad(int g)
{
  give(0, expanded(g, at->scalar));
}

/* Shared evenly among the elements that are the largest or the least. */
static void extreme_grad(int g)
{
  int found = cast(binary(OP_eq, at->in[0], expanded(at->out, 1)), graph->value[g].type);
  struct op count = alike(OP_sum, 1, &found);
  count.scalar = 1;
  give_product(0, expanded(binary(OP_div, g, apply(count)), 1), found);
}

static void amax_grad(int g)
{
  extreme_grad(g);
}

static void amin_grad(int g)
{
  extreme_grad(g);
}

static void expand_grad(int g)
{
  give(0, apply(alike(OP_sum, 1, &g)));
}

static void permute_grad(int g)
{
  struct op op = alike(OP_permute, 1, &g);
  op.equation = swapped(at->equation);
  give(0, apply(op));
}

static void view_grad(int g)
{
  struct op op = alike(OP_view, 1, &g);
  op.equation = swapped(at->equation);
  give(0, apply_shaped(op, shape_of(at->in[0])));
}

/* The part of g from `start` on, as long as the input. */
static void give_part(int i, int g, int64_t start)
{
  struct op op = alike(OP_narrow, 1, &g);
  op.number[0] = start;
  give(i, apply_shaped(op, named_as_in(at->in[i], g)));
}

static void cat_grad(int g)
{
  int dim = 0;
  while (!(at->dims >> dim & 1)) dim++;
  int64_t start = 0;
  for (int i = 0; i < at->nin; start += shape_of(at->in[i++]).size[dim])
    if (needs(i)) give_part(i, g, start);
}

static void pad_grad(int g)
{
  give_part(0, g, number_of(at, "before"));
}

/* The other operators that lengthen or shorten a dimension come in pairs, with the same number. */
static void give_undone(int g, enum op_kind kind)
{
  give(0, apply_shaped(alike(kind, 1, &g), named_as_in(at->in[0], g)));
}

static void narrow_grad(int g)
{
  give_undone(g, OP_pad);
}

static void every_grad(int g)
{
  give_undone(g, OP_spread);
}

static void spread_grad(int g)
{
  give_undone(g, OP_every);
}

/* ----------------------------------------------------------------------- by indices of elements */

/* The way back of what reads elements by index: adds them up where they were read. */
static void give_added(int g, enum op_kind kind)
{
  struct op op = alike(kind, 2, (int[]){g, at->in[1]});
  give(0, apply_shaped(op, named_as_in(at->in[0], g)));
}

/* Of a single element of each row the way back goes element by element. */
static void gather_grad(int g)
{
  struct shape picked = shape_of(at->in[1]);
  for (int d = 0; d < picked.ndim; d++) {
    if (!(at->dims >> d & 1) || picked.size[d] != 1) continue;
    struct op op = alike(OP_place, 2, (int[]){g, at->in[1]});
    op.keep = true;
    give(0, apply_shaped(op, shape_of(at->in[0])));
    return;
  }
  give_added(g, OP_scatter_add);
}

/* The value with the dimension that the operation names, of size 1. */
static int with_dimension(int value)
{
  struct shape shape = shape_of(at->out);
  for (int d = 0; d < shape.ndim; d++)
    if (at->dims >> d & 1) shape.size[d] = 1;
  struct op op = {.kind = OP_view, .nin = 1, .in = {value}};
  op.equation = view_equation(shape_of(value), shape, at->line);
  return at->keep ? value : apply_shaped(op, shape);
}

static void place_grad(int g)
{
  int picked = apply(alike(OP_gather, 2, (int[]){g, with_dimension(at->in[1])}));
  struct op back = {.kind = OP_view, .nin = 1, .in = {picked}};
  back.equation = view_equation(shape_of(picked), shape_of(at->in[0]), at->line);
  give(0, at->keep ? picked : apply_shaped(back, shape_of(at->in[0])));
}

static void index_select_grad(int g)
{
  give_added(g, OP_index_add);
}

static void scatter_add_grad(int g)
{
  give(0, apply(alike(OP_gather, 2, (int[]){g, at->in[1]})));
}

static void index_add_grad(int g)
{
  give(0, apply(alike(OP_index_select, 2, (int[]){g, at->in[1]})));
}

/* What was overwritten has none. */
static void scatter_grad(int g)
{
  int index = at->in[1];
  if (needs(0)) {
    struct op zeros = {.kind = OP_full, .type = graph->value[g].type};
    int over = apply_shaped(zeros, shape_of(at->in[2]));
    give(0, apply(alike(OP_scatter, 3, (int[]){g, index, over})));
  }
  if (needs(2)) give(2, apply(alike(OP_gather, 2, (int[]){g, index})));
}

static void embedding_grad(int g)
{
  struct op op = alike(OP_embedding_back, 2, (int[]){g, at->in[1]});
  give(0, apply_shaped(op, shape_of(at->in[0])));
}

static void cumsum_grad(int g)
{
  struct op op = alike(OP_cumsum, 1, &g);
  op.number[0] = !number_of(at, "reverse");
  give(0, apply(op));
}

/* ------------------------------------------------------------------------------ whole operators */

static void attention_grad(int g)
{
  enum { QKV = 3 };
  const int *in = at->in;
  struct op op = alike(OP_attention_back, 6, (int[]){g, in[0], in[1], in[2], at->out, at->out + 1});
  struct shape shapes[QKV];
  for (int i = 0; i < QKV; i++) shapes[i] = shape_of(in[i]);
  int first = append_op_outputs(from_here(op), shapes, QKV);
  for (int i = 0; i < QKV; i++)
    if (needs(i)) give(i, first + i);
}

static void conv2d_grad(int g)
{
  int x = at->in[0], w = at->in[1];
  if (needs(0)) give(0, apply_shaped(alike(OP_conv2d_back_input, 2, (int[]){g, w}), shape_of(x)));
  if (needs(1)) give(1, apply_shaped(alike(OP_conv2d_back_weight, 2, (int[]){g, x}), shape_of(w)));
}

static void conv2d_back_input_grad(int g)
{
  int x = at->in[0], w = at->in[1];
  if (needs(0)) give(0, apply_shaped(alike(OP_conv2d, 2, (int[]){g, w}), shape_of(x)));
  if (needs(1)) give(1, apply_shaped(alike(OP_conv2d_back_weight, 2, (int[]){x, g}), shape_of(w)));
}

static void max_pool2d_grad(int g)
{
  struct op op = alike(OP_max_pool2d_back, 3, (int[]){g, at->in[0], at->out});
  give(0, apply_shaped(op, shape_of(at->in[0])));
}

/* What makes a gradient must have the dimensions of its input. */
static void check_backward(const struct op *op, const struct custom *of, int i)
{
  struct letters l;
  op_letters(op, &l);
  if (l.ndim_out[0] != shape_of(at->in[i]).ndim)
    plan_error(
        of->line,
        "operator %s: backward[%d], %s, makes by its rule %s no tensor that fits input %c, %s",
        of->name, i + 1, op_name(op), printable(rule_of(op)), 'a' + i,
        shape_text(shape_of(at->in[i])));
}

static void custom_grad(int g)
{
  const struct custom *custom = &graph->custom[at->custom];
  int in[1 + MAX_INPUTS + MAX_OUTPUTS] = {g}, nin = 1;
  for (int i = 0; i < at->nin; i++) in[nin++] = at->in[i];
  for (int k = 0; k < at->nout; k++) in[nin++] = at->out + k;
  for (int i = 0; i < at->nin; i++) {
    if (!needs(i)) continue;
    if (custom->backward[i] == NONE)
      plan_error(
          at->line,
          "%s has no gradient for its input %c, which depends on a parameter: name an operator "
          "in backward[%d] of line %d, or detach the input",
          custom->name, 'a' + i, i + 1, custom->line);
    if (nin > MAX_INPUTS)
      plan_error(at->line,
                 "%s: the operator of a gradient takes at most %d inputs; this one's would be %d: "
                 "the output's gradient, %d inputs and %d outputs",
                 custom->name, MAX_INPUTS, nin, at->nin, at->nout);
    struct op op = alike(OP_custom, nin, in);
    op.custom = custom->backward[i];
    check_backward(&op, custom, i);
    give(i, apply_shaped(op, shape_of(at->in[i])));
  }
}

/* ------------------------------------------------------------------------------- without a rule */

/* DTensor's: back to where the input lay, pending sums made whole, in the type that was asked for.
   Where nothing changes, that is left to grad.c, once for all that is added to the gradient. */
static void redistribute_grad(int g)
{
  if (stays(at)) {
    give(0, g);
    return;
  }
  struct layout to = graph->value[at->in[0]].layout;
  enum type type = at->backward_type;
  int parameter = parameter_in(at->in[0]);
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
                  .asked = (1u << graph->mesh.ndim) - 1,
                  .of_unit = at->of_unit,
                  .unit = at->unit};
  op.why = text("backward of %s", at->why);
  int back = apply(op);
  name_after(back, at->in[0]);
  give(0, back);
}

static void no_grad(int g)
{
  bug_at("grad", graph->value[at->out].op, "no gradient is known for it (%d)", g);
}

static void (*const gradient_of[OP_COUNT])(int g) = {
#define OP(name, rule, linear, gradient, ...) [OP_##name] = gradient,
#include "ir/ops.h"
#undef OP
};

void write_gradient(const struct op *op, int g, const bool *is_wanted, int *gradients)
{
  at = op;
  wanted = is_wanted;
  gradient = gradients;
  gradient_of[op->kind](g);
}
