/* gradients_by_element.c: the gradients of the rows that compute each element from those at the
   same place, and of the few rows that drop or rotate elements. gradients.c has the rules for all
   gradients. */
#include "graph_passes/graph_passes.h"

/* --------------------------------------------------------------------------- element by element */

void add_grad(int g)
{
  for (int i = 0; i < 2; i++)
    if (needs_gradient(i)) give_gradient(i, g);
}

void sub_grad(int g)
{
  if (needs_gradient(0)) give_gradient(0, g);
  if (needs_gradient(1)) give_gradient(1, backward_unary(OP_neg, g));
}

static int root_of_buffer(int buffer)
{
  while (graph->value[buffer].op != NONE) buffer = graph->op[graph->value[buffer].op].in[0];
  return buffer;
}

/* The factor that later operations of the step on the same buffer apply to this one's addition. */
static double kept_by_later(const struct op *running)
{
  double kept = 1;
  for (int at = graph->norder - 1; at >= 0; at--) {
    const struct op *op = &graph->op[graph->order[at]];
    if (op->kind != OP_running || op->phase != FORWARD) continue;
    if (op->out == running->out) break;
    if (root_of_buffer(op->in[1]) == root_of_buffer(running->in[1])) kept *= 1 - op->scalar;
  }
  return kept;
}

/* The buffer gets no derivative. Its gradient is the amount that the update subtracts from it, or
   the counts by which it balances, even if the loss does not depend on the value that it follows:
   then g is NONE. */
void running_grad(int g)
{
  int value = forward_op->in[0], buffer = forward_op->in[1];
  if (g != NONE && needs_gradient(0)) give_gradient(0, g);
  if (!needs_gradient(1)) return;
  if (number_of(forward_op, "balances"))
    give_gradient(1, backward_scale(value, 1));
  else
    give_gradient(1, backward_scale(backward_binary(OP_sub, buffer, value),
                                    forward_op->scalar * kept_by_later(forward_op)));
}

/* A validation has no backward. */
void in_training_grad(int g)
{
  if (needs_gradient(0)) give_gradient(0, g);
}

void mul_grad(int g)
{
  for (int i = 0; i < 2; i++)
    if (needs_gradient(i)) give_product(i, g, forward_op->in[1 - i]);
}

void div_grad(int g)
{
  if (needs_gradient(0)) give_gradient(0, backward_binary(OP_div, g, forward_op->in[1]));
  if (needs_gradient(1))
    give_gradient(1, backward_unary(OP_neg, backward_binary(
                                                OP_div, backward_binary(OP_mul, g, forward_op->out),
                                                forward_op->in[1])));
}

/* 1 where `chosen` selected the input over the other, 1/2 where they are equal. */
static void choice_grad(int g, enum op_kind chosen)
{
  for (int i = 0; i < 2; i++) {
    if (!needs_gradient(i)) continue;
    int mine = forward_op->in[i], other = forward_op->in[1 - i];
    int tie = backward_where(backward_binary(OP_eq, mine, other), backward_number(0.5, g),
                             backward_number(0, g));
    give_product(i, g,
                 backward_where(backward_binary(chosen, mine, other), backward_number(1, g), tie));
  }
}

void maximum_grad(int g)
{
  choice_grad(g, OP_gt);
}

void minimum_grad(int g)
{
  choice_grad(g, OP_lt);
}

/* b a^(b - 1), and a^b log a; both are 0 where a product with infinity would give NaN. */
void pow_grad(int g)
{
  int a = forward_op->in[0], b = forward_op->in[1];
  if (needs_gradient(0)) {
    int slope = backward_binary(
        OP_mul, b, backward_binary(OP_pow, a, backward_binary(OP_sub, b, backward_number(1, b))));
    give_product(0, g,
                 backward_where(backward_binary(OP_eq, b, backward_number(0, b)),
                                backward_number(0, slope), slope));
  }
  if (needs_gradient(1)) {
    int slope = backward_binary(OP_mul, forward_op->out, backward_unary(OP_log, a));
    int flat = backward_binary(OP_logical_and, backward_binary(OP_eq, a, backward_number(0, a)),
                               backward_binary(OP_ge, b, backward_number(0, b)));
    give_product(1, g, backward_where(flat, backward_number(0, slope), slope));
  }
}

/* s a^(s - 1); the gradient of a^0 is 0, also for a = 0. */
void power_grad(int g)
{
  double s = forward_op->scalar;
  if (s == 0) {
    give_gradient(0, backward_scale(g, 0));
    return;
  }
  struct op lower = {.kind = OP_power, .nin = 1, .in = {forward_op->in[0]}, .scalar = s - 1};
  give_product(0, backward_scale(g, s), append_backward(lower));
}

void neg_grad(int g)
{
  give_gradient(0, backward_unary(OP_neg, g));
}

void scale_grad(int g)
{
  give_gradient(0, backward_scale(g, forward_op->scalar));
}

void abs_grad(int g)
{
  give_gradient(0, backward_binary(OP_abs_back, g, forward_op->in[0]));
}

void exp_grad(int g)
{
  give_product(0, g, forward_op->out);
}

void expm1_grad(int g)
{
  give_gradient(0, backward_binary(OP_expm1_back, g, forward_op->in[0]));
}

void log1p_grad(int g)
{
  give_gradient(0, backward_binary(OP_log1p_back, g, forward_op->in[0]));
}

void erf_grad(int g)
{
  give_gradient(0, backward_binary(OP_erf_back, g, forward_op->in[0]));
}

/* The derivative is sqrt(pi) / 2 e^(y^2), of the result y. */
void erfinv_grad(int g)
{
  const int slope = backward_unary(OP_exp, backward_unary(OP_square, forward_op->out));
  give_product(0, backward_scale(g, 0.88622692545275801), slope);
}

void lgamma_grad(int g)
{
  give_product(0, g, backward_unary(OP_digamma, forward_op->in[0]));
}

void digamma_grad(int g)
{
  give_gradient(0, backward_binary(OP_digamma_back, g, forward_op->in[0]));
}

void softplus_grad(int g)
{
  give_gradient(0, backward_binary(OP_softplus_back, g, forward_op->in[0]));
}

void log_grad(int g)
{
  give_gradient(0, backward_binary(OP_div, g, forward_op->in[0]));
}

void sqrt_grad(int g)
{
  give_gradient(0, backward_scale(backward_binary(OP_div, g, forward_op->out), 0.5));
}

/* The derivative of 1 / sqrt(a) is -1/2 of its third power. */
void rsqrt_grad(int g)
{
  give_product(
      0, backward_scale(g, -0.5),
      backward_binary(OP_mul, forward_op->out, backward_unary(OP_square, forward_op->out)));
}

void square_grad(int g)
{
  give_gradient(0, backward_scale(backward_binary(OP_mul, g, forward_op->in[0]), 2));
}

void sin_grad(int g)
{
  give_product(0, g, backward_unary(OP_cos, forward_op->in[0]));
}

void cos_grad(int g)
{
  give_gradient(
      0, backward_unary(OP_neg,
                        backward_binary(OP_mul, g, backward_unary(OP_sin, forward_op->in[0]))));
}

void relu_grad(int g)
{
  give_gradient(0, backward_binary(OP_relu_back, g, forward_op->out));
}

void sigmoid_grad(int g)
{
  give_gradient(0, backward_binary(OP_sigmoid_back, g, forward_op->out));
}

void tanh_grad(int g)
{
  give_gradient(0, backward_binary(OP_tanh_back, g, forward_op->out));
}

void silu_grad(int g)
{
  give_gradient(0, backward_binary(OP_silu_back, g, forward_op->in[0]));
}

void gelu_grad(int g)
{
  give_gradient(0, backward_binary(OP_gelu_back, g, forward_op->in[0]));
}

void gelu_tanh_grad(int g)
{
  give_gradient(0, backward_binary(OP_gelu_tanh_back, g, forward_op->in[0]));
}

/* Not a product: the side not chosen may have an infinite gradient, which must not reach it. */
void where_grad(int g)
{
  int condition = forward_op->in[0];
  if (needs_gradient(1)) give_gradient(1, backward_where(condition, g, backward_number(0, g)));
  if (needs_gradient(2)) give_gradient(2, backward_where(condition, backward_number(0, g), g));
}

/* give_gradient casts. */
void cast_grad(int g)
{
  give_gradient(0, g);
}

/* The same elements are dropped: the mask depends only on the stream and the place. */
void dropout_grad(int g)
{
  give_gradient(0, append_backward(like_forward(OP_dropout, 1, &g)));
}

void tril_grad(int g)
{
  give_gradient(0, append_backward(like_forward(OP_tril, 1, &g)));
}

void triu_grad(int g)
{
  give_gradient(0, append_backward(like_forward(OP_triu, 1, &g)));
}

/* Minus the value: by an earlier operation of the same module that computes it, if the module has
   one. */
static int negated(int value)
{
  for (int i = graph->norder; i-- > 0;) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->phase != BACKWARD || op->module != forward_op->module) break;
    if (op->kind == OP_neg && op->in[0] == value) return op->out;
  }
  return backward_unary(OP_neg, value);
}

/* Rotates back: by an angle with the same cosine and minus the sine. */
static void give_rotation_gradient(int g)
{
  if (needs_gradient(1) || needs_gradient(2))
    plan_error(forward_op->line, "%s has no gradient for its %s: no parameter may lead to it",
               op_name(forward_op), needs_gradient(1) ? "cosine" : "sine");
  give_gradient(
      0, append_backward(like_forward(forward_op->kind, 3,
                                      (int[]){g, forward_op->in[1], negated(forward_op->in[2])})));
}

void rotary_grad(int g)
{
  give_rotation_gradient(g);
}

void rotary_pairs_grad(int g)
{
  give_rotation_gradient(g);
}
