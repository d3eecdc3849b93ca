/* Gradients against central finite differences, in double precision: for every row of the table of
   operators with a gradient, with respect to every input that has one; then where gradients are
   summed, and where there are none. The loss is a weighted sum of the operation's output, each
   element with its own weight. */
#include "lua/lua.h"
#include "emit/emit.h"
#include "interpreter.h"

static const char *const gradient_of[OP_COUNT] = {
#define OP(name, rule, linear, gradient, ...) [OP_##name] = #gradient,
#include "ir/ops.h"
#undef OP
};

static bool has_gradient(enum op_kind kind)
{
  return strcmp(gradient_of[kind], "no_grad") != 0;
}

/* ---------------------------------------------------------------------- a graph and its numbers */

static struct array *whole;

static int parameter(const char *name, struct shape shape)
{
  return given(PARAMETER, name, shape, (struct layout){0});
}

/* The loss: a sum of `value`, weighted by an input of the step. */
static void train_down(int value)
{
  struct shape shape = graph->value[value].shape;
  int weights = given(BATCH, "weights", shape, (struct layout){0});
  int product = append_op(
      (struct op){.kind = OP_mul, .nin = 2, .in = {value, weights}, .module = NONE, .line = 1});
  graph->loss = append_op((struct op){.kind = OP_sum,
                                      .nin = 1,
                                      .in = {product},
                                      .scalar = 1,
                                      .dims = (1u << shape.ndim) - 1,
                                      .module = NONE,
                                      .line = 1});
}

/* Inputs in words: a shape, and before it what it holds where that is not a parameter's numbers of
   either sign, away from zero, where some operators have a corner or a pole.

     +2x3     a parameter greater than zero
     =2x3     a parameter of few different numbers, so that some are equal
     ~2x3     not a parameter
     z2x3     a parameter of zeros
     02x3     zeros, not a parameter
     ?2x3     true and false
     i7:2x3   indices less than 7
     d7:2x3   the same, different ones along the dimension that the operation names  */
enum { MOST_VALUES = 512 };
static const char *input_of[MOST_VALUES]; /* by value; NULL: numbers */
static unsigned dims_of[MOST_VALUES];

static const char *shape_in(const char *input)
{
  const char *colon = strchr(input, ':');
  return colon ? colon + 1 : input + strspn(input, "+=~z0?s");
}

static int add_input(const char *input, unsigned dims)
{
  enum type type = *input == '?' ? BOOL : *input == 'i' || *input == 'd' ? I32 : F32;
  enum role role =
      type == F32 && *input != '~' && *input != '^' && *input != '0' ? PARAMETER : BATCH;
  int v = add_value(role, "p", type, parse_shape(shape_in(input)), NONE, 1);
  graph->value[v].placed = true;
  must(v < MOST_VALUES, "too many values");
  input_of[v] = input;
  dims_of[v] = dims;
  return v;
}

static double index_at(struct shape shape, int64_t flat, unsigned dims, int below)
{
  int64_t index[MAX_DIMS], sum = 0;
  indices_of(shape, flat, index);
  for (int d = 0; d < shape.ndim; d++) sum += dims >> d & 1 ? 2 * below - index[d] : 3 * index[d];
  return (double)(sum % below);
}

static double number_at(const char *input, struct shape shape, int64_t flat, unsigned dims)
{
  double x = draw_number();
  switch (*input) {
  case '0':
  case 'z':
    return 0;
  case '?':
    return x > 0;
  case '=':
    return x > 0 ? 1 : 0.5;
  case '+':
    return fabs(x) + 0.5;
  case 's':
    return 0.8 * x;
  case 'i':
    return draw_below(atoi(input + 1));
  case 'd':
    return index_at(shape, flat, dims, atoi(input + 1));
  default:
    return x < 0 ? x - 0.5 : x + 0.5;
  }
}

static struct array numbers(int value)
{
  struct array a = zeros(graph->value[value].shape);
  must(value < MOST_VALUES, "too many values");
  const char *input = input_of[value] ? input_of[value] : "";
  for (int64_t i = 0; i < elements(a.shape); i++)
    a.at[i] = number_at(input, a.shape, i, dims_of[value]);
  return a;
}

static double loss_now(void)
{
  size_t used = pool_used;
  run_whole(whole);
  double loss = whole[graph->loss].at[0];
  pool_used = used;
  return loss;
}

/* The gradient's value of a parameter, or NONE. */
static int gradient_value(int parameter)
{
  int found = NONE;
  for (int i = 0; i < graph->nvalue; i++) {
    if (graph->value[i].role != GRADIENT || graph->value[i].of != parameter) continue;
    must(found == NONE, "two gradients of %s", graph->value[parameter].name);
    found = i;
  }
  return found;
}

/* By how much the loss changes with each element of a parameter, and what the backward program
   says. */
static void compare(int parameter)
{
  enum { MOST = 64 };
  double made[MOST];
  int gradient = gradient_value(parameter);
  must(gradient != NONE, "no gradient of parameter %d", parameter);
  must(same_shape(graph->value[gradient].shape, graph->value[parameter].shape),
       "its shape is wrong");
  must(same_layout(graph->value[gradient].layout, graph->value[parameter].layout),
       "its layout is wrong");
  int64_t n = elements(graph->value[parameter].shape);
  must(n <= MOST, "too large a parameter");
  size_t used = pool_used;
  run_whole(whole);
  for (int64_t i = 0; i < n; i++) made[i] = whole[gradient].at[i];
  pool_used = used;
  for (int64_t i = 0; i < n; i++) {
    double *x = &whole[parameter].at[i], before = *x, h = 1e-5;
    *x = before + h;
    double up = loss_now();
    *x = before - h;
    double down = loss_now(), slope = (up - down) / (2 * h);
    *x = before;
    must(is_near(made[i], slope, 1e-6), "element %" PRId64 " of parameter %d: %.9g, not %.9g", i,
         parameter, made[i], slope);
  }
}

static bool is_read(int value)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    for (int k = 0; k < op->nin; k++)
      if (op->in[k] == value) return true;
  }
  return false;
}

/* Every operation of the backward leads to a gradient. */
static void check_use(void)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    bool used = op->phase != BACKWARD;
    for (int k = 0; k < op->nout; k++)
      used |= graph->value[op->out + k].role == GRADIENT || is_read(op->out + k);
    must(used, "%s of the backward makes what nobody reads", op_name(op));
  }
}

static void compare_all(void)
{
  propagate();
  grad();
  check_use();
  whole = alloc((size_t)graph->nvalue * sizeof *whole);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].op == NONE) whole[i] = numbers(i);
  for (int i = 0, n = graph->nvalue; i < n; i++)
    if (graph->value[i].role == PARAMETER) compare(i);
}

/* ------------------------------------------------------------------------------------ every row */

static void one_rank(void)
{
  new_graph(1, (int[]){1});
}

#define OF_ATTENTION(further) "b(gr)q@d!,bgk!d!,bgk!e!," further "->b(gr)qe!,b(gr)q:f32"

struct trial {
  enum op_kind kind;
  const char *in[MAX_INPUTS];
  const char *equation;
  unsigned dims;
  bool keepdim;
  int64_t number[MAX_NUMBERS];
  double scalar; /* or 0: then some number, unless it is `zero` */
  double softcap;
  bool zero;
  const char *out; /* where it does not follow from the inputs */
};

/* Rows that take any shapes: what their inputs hold_part. */
static const struct trial unary[] = {
    {.kind = OP_power, .in = {"+"}},    {.kind = OP_neg, .in = {""}},
    {.kind = OP_scale, .in = {""}},     {.kind = OP_abs, .in = {""}},
    {.kind = OP_exp, .in = {""}},       {.kind = OP_log, .in = {"+"}},
    {.kind = OP_sqrt, .in = {"+"}},     {.kind = OP_rsqrt, .in = {"+"}},
    {.kind = OP_square, .in = {""}},    {.kind = OP_sin, .in = {""}},
    {.kind = OP_cos, .in = {""}},       {.kind = OP_relu, .in = {""}},
    {.kind = OP_sigmoid, .in = {""}},   {.kind = OP_tanh, .in = {""}},
    {.kind = OP_silu, .in = {""}},      {.kind = OP_gelu, .in = {""}},
    {.kind = OP_expm1, .in = {""}},     {.kind = OP_log1p, .in = {"+"}},
    {.kind = OP_erf, .in = {""}},       {.kind = OP_softplus, .in = {""}},
    {.kind = OP_gelu_tanh, .in = {""}}, {.kind = OP_cast, .in = {""}},
    {.kind = OP_lgamma, .in = {"+"}},   {.kind = OP_digamma, .in = {"+"}},
    {.kind = OP_erfinv, .in = {"s"}},
};
static const struct trial binary[] = {
    {.kind = OP_add, .in = {"", ""}},     {.kind = OP_sub, .in = {"", ""}},
    {.kind = OP_mul, .in = {"", ""}},     {.kind = OP_div, .in = {"", ""}},
    {.kind = OP_maximum, .in = {"", ""}}, {.kind = OP_maximum, .in = {"=", "="}},
    {.kind = OP_minimum, .in = {"", ""}}, {.kind = OP_minimum, .in = {"=", "="}},
    {.kind = OP_pow, .in = {"+", ""}},
};
static const struct trial reduction[] = {
    {.kind = OP_sum, .in = {""}},  {.kind = OP_amax, .in = {""}},  {.kind = OP_amax, .in = {"="}},
    {.kind = OP_amin, .in = {""}}, {.kind = OP_amin, .in = {"="}},
};
static const struct trial unary_shape[] = {{.in = {"2x3"}}, {.in = {"2x1x2"}}, {.in = {""}}};
static const struct trial binary_shape[] = {
    {.in = {"2x3", "2x3"}}, {.in = {"2x3", "3"}}, {.in = {"3", "2x3"}},   {.in = {"2x1", "1x3"}},
    {.in = {"", "2x3"}},    {.in = {"2x3", ""}},  {.in = {"3x2", "1x2"}}, {.in = {"3x1", "2x3x2"}},
    {.in = {"1", "2"}},     {.in = {"", ""}},
};
static const struct trial reduction_shape[] = {
    {.in = {"3x2"}, .dims = 2},   {.in = {"2x3"}, .dims = 1},
    {.in = {"1"}, .dims = 1},     {.in = {"3x2"}, .dims = 2, .keepdim = true},
    {.in = {"1x2x1"}, .dims = 7}, {.in = {"1x3x2"}, .dims = 5, .keepdim = true},
    {.in = {"2x3x1"}, .dims = 5},
};

/* Others, and their special places. */
static const struct trial others[] = {
    {.kind = OP_matmul, .in = {"2x3", "3x4"}, .equation = "mk,kn->mn"},
    {.kind = OP_matmul, .in = {"2x3", "4x3"}, .equation = "mk,nk->mn"},
    {.kind = OP_matmul, .in = {"3x2", "3x4"}, .equation = "km,kn->mn"},
    {.kind = OP_matmul, .in = {"2x3", "3x4"}, .equation = "mk,kn->nm"},
    {.kind = OP_matmul, .in = {"2x3x4", "5x4"}, .equation = "abk,nk->abn"},
    {.kind = OP_matmul, .in = {"3x2x3", "3x3x4"}, .equation = "bmk,bkn->bmn"},
    {.kind = OP_matmul, .in = {"2x3x4", "2x3x2"}, .equation = "abn,abk->nk"},
    {.kind = OP_matmul, .in = {"2x3", "3"}, .equation = "mk,k->m"},
    {.kind = OP_matmul, .in = {"1x3", "3x1"}, .equation = "mk,kn->mn"},
    /* A letter of one operand alone; outer products; a number. */
    {.kind = OP_matmul, .in = {"2x3", "3x4"}, .equation = "mk,kn->n"},
    {.kind = OP_matmul, .in = {"2x3", "3x4"}, .equation = "mk,kn->m"},
    {.kind = OP_matmul, .in = {"2x3x2", "3"}, .equation = "lmk,m->k"},
    {.kind = OP_matmul, .in = {"2x3", "4"}, .equation = "mk,n->nm"},
    {.kind = OP_matmul, .in = {"2", "3"}, .equation = "m,n->mn"},
    {.kind = OP_matmul, .in = {"3", "3"}, .equation = "k,k->"},
    {.kind = OP_matmul, .in = {"2x3", "4"}, .equation = "mk,n->"},
    {.kind = OP_pow, .in = {"+2x3", "02x3"}},
    {.kind = OP_pow, .in = {"02x3", "+2x3"}},
    {.kind = OP_pow, .in = {"z2x3", "02x3"}},
    {.kind = OP_power, .in = {"2x3"}, .scalar = 3},
    {.kind = OP_power, .in = {"2x3"}, .scalar = 1},
    {.kind = OP_power, .in = {"+2x3"}, .scalar = -0.5},
    {.kind = OP_power, .in = {"2x3"}, .zero = true},
    {.kind = OP_power, .in = {"z2x3"}, .zero = true},
    {.kind = OP_power, .in = {"z2x3"}, .scalar = 1},
    {.kind = OP_where, .in = {"?2x3", "2x3", "2x3"}},
    {.kind = OP_where, .in = {"?2x3", "3", ""}},
    {.kind = OP_where, .in = {"?3", "2x3", "2x1"}},
    {.kind = OP_where, .in = {"?2x3", "~2x3", "3"}},
    {.kind = OP_where, .in = {"?2x3", "2x1", "~2x3"}},
    {.kind = OP_running, .in = {"2x3", "~2x3"}, .scalar = 0.1},
    {.kind = OP_running, .in = {"3", "~3"}, .scalar = 0.1},
    {.kind = OP_in_training, .in = {"2x3", "~2x3"}},
    {.kind = OP_dropout, .in = {"4x5"}, .scalar = 0.4, .number = {3}},
    {.kind = OP_dropout, .in = {"4x5"}, .scalar = 0.4, .number = {4}},
    {.kind = OP_tril, .in = {"3x4"}},
    {.kind = OP_tril, .in = {"2x4x3"}, .number = {1}},
    {.kind = OP_tril, .in = {"2x3x4"}, .number = {-1}},
    {.kind = OP_triu, .in = {"3x4"}},
    {.kind = OP_triu, .in = {"2x4x3"}, .number = {1}},
    {.kind = OP_triu, .in = {"2x3x4"}, .number = {-1}},
    {.kind = OP_rotary, .in = {"2x3x4", "~3x2", "~3x2"}, .number = {2}},
    {.kind = OP_rotary_pairs, .in = {"2x3x4", "~3x2", "~3x2"}},
    {.kind = OP_rotary_pairs, .in = {"2x6", "~2x3", "~2x3"}},
    {.kind = OP_expand, .in = {""}, .dims = 3, .out = "2x3"},
    {.kind = OP_expand, .in = {"3"}, .dims = 1, .out = "2x3"},
    {.kind = OP_expand, .in = {"2"}, .dims = 2, .out = "2x3"},
    {.kind = OP_expand, .in = {"2x1"}, .dims = 2, .keepdim = true, .out = "2x3"},
    {.kind = OP_expand, .in = {"1x1"}, .dims = 3, .keepdim = true, .out = "2x3"},
    {.kind = OP_expand, .in = {"2x2"}, .dims = 2, .out = "2x3x2"},
    {.kind = OP_expand, .in = {"1x3x1"}, .dims = 5, .keepdim = true, .out = "2x3x2"},
    {.kind = OP_expand, .in = {"1x3"}, .dims = 1, .out = "2x1x3"},
    {.kind = OP_permute, .in = {"2x3"}, .equation = "ab->ba"},
    {.kind = OP_permute, .in = {"2x3x4"}, .equation = "abc->cab"},
    {.kind = OP_permute, .in = {"2x1x3"}, .equation = "abc->bca"},
    {.kind = OP_permute, .in = {"2x3x2x2"}, .equation = "abcd->acbd"},
    {.kind = OP_view, .in = {"6x2"}, .equation = "(a2b)c->abc"},
    {.kind = OP_view, .in = {"2x3x2"}, .equation = "abc->(ab)c"},
    {.kind = OP_view, .in = {"6x2"}, .equation = "(a2b)c->a(bc)"},
    {.kind = OP_view, .in = {"2x3"}, .equation = "ab->1(a)1b"},
    {.kind = OP_view, .in = {"2x1x3"}, .equation = "(a)1b->ab"},
    {.kind = OP_view, .in = {"1"}, .equation = "1->"},
    {.kind = OP_cat, .in = {"2x3", "2x1", "2x2"}, .dims = 2, .out = "2x6"},
    {.kind = OP_cat, .in = {"1x2x3", "3x2x3"}, .dims = 1, .out = "4x2x3"},
    {.kind = OP_cat, .in = {"2x3", "~2x4", "2x1", "~2x1"}, .dims = 2, .out = "2x9"},
    {.kind = OP_cat, .in = {"3"}, .dims = 1, .out = "3"},
    {.kind = OP_narrow, .in = {"2x5"}, .dims = 2, .number = {1}, .out = "2x3"},
    {.kind = OP_narrow, .in = {"5x2"}, .dims = 1, .number = {4}, .out = "1x2"},
    {.kind = OP_narrow, .in = {"2x3x2"}, .dims = 2, .number = {0}, .out = "2x2x2"},
    {.kind = OP_pad, .in = {"2x3"}, .dims = 2, .number = {2}, .out = "2x6"},
    {.kind = OP_pad, .in = {"2x3"}, .dims = 1, .number = {0}, .out = "3x3"},
    {.kind = OP_pad, .in = {"2x4"}, .dims = 2, .number = {-1}, .out = "2x2"},
    {.kind = OP_every, .in = {"2x5"}, .dims = 2, .number = {2}, .out = "2x3"},
    {.kind = OP_every, .in = {"5x2"}, .dims = 1, .number = {3}, .out = "2x2"},
    {.kind = OP_every, .in = {"2x5"}, .dims = 2, .number = {2}, .out = "2x2"},
    {.kind = OP_spread, .in = {"2x3"}, .dims = 2, .number = {2}, .out = "2x5"},
    {.kind = OP_spread, .in = {"3x2"}, .dims = 1, .number = {2}, .out = "6x2"},
    {.kind = OP_gather, .in = {"4x3", "i4:2x3"}, .dims = 1},
    {.kind = OP_gather, .in = {"4x3", "i3:4x1"}, .dims = 2},
    {.kind = OP_gather, .in = {"2x5x3", "i5:2x1x3"}, .dims = 2},
    {.kind = OP_place, .in = {"4x1", "i3:4x1"}, .dims = 2, .keepdim = true, .out = "4x3"},
    {.kind = OP_place, .in = {"4x2", "i3:4x2"}, .dims = 2, .out = "4x3x2"},
    {.kind = OP_gather, .in = {"2x3x4", "i4:2x3x5"}, .dims = 4},
    {.kind = OP_scatter_add, .in = {"2x3", "i5:2x3"}, .dims = 2, .out = "2x5"},
    {.kind = OP_scatter_add, .in = {"4x3", "i2:4x3"}, .dims = 1, .out = "2x3"},
    {.kind = OP_scatter, .in = {"2x5", "d5:2x3", "2x3"}, .dims = 2},
    {.kind = OP_scatter, .in = {"4x3", "d4:2x3", "2x3"}, .dims = 1},
    {.kind = OP_scatter, .in = {"~2x5", "d5:2x3", "2x3"}, .dims = 2},
    {.kind = OP_scatter, .in = {"2x5", "d5:2x3", "~2x3"}, .dims = 2},
    {.kind = OP_index_select, .in = {"4x3", "i4:5"}, .dims = 1},
    {.kind = OP_index_select, .in = {"2x4x3", "i4:2"}, .dims = 2},
    {.kind = OP_index_add, .in = {"2x3", "i5:3"}, .dims = 2, .out = "2x5"},
    {.kind = OP_index_add, .in = {"4x3", "i2:4"}, .dims = 1, .out = "2x3"},
    {.kind = OP_dispatch, .in = {"2x3x4", "i3:2x3x2", "2x3x2", "i9:3"}},
    {.kind = OP_combine, .in = {"2x2x2x2x3", "i2:2x2x2", "2x2x2", "i9:2"}},
    {.kind = OP_grouped_linear, .in = {"2x2x2x1x3", "2x2x3", "i9:2"}},
    {.kind = OP_embedding, .in = {"5x3", "i5:2x4"}},
    {.kind = OP_embedding, .in = {"5x3", "i5:"}},
    {.kind = OP_cumsum, .in = {"2x3"}, .dims = 2, .number = {0}},
    {.kind = OP_cummax, .in = {"2x5"}, .dims = 2, .number = {0}},
    {.kind = OP_cummax, .in = {"5x2x2"}, .dims = 1, .number = {1}},
    {.kind = OP_cumsum, .in = {"3x2x2"}, .dims = 1, .number = {0}},
    {.kind = OP_cumsum, .in = {"2x3x2"}, .dims = 2, .number = {1}},
    {.kind = OP_attention, .in = {"1x4x3x2", "1x2x3x2", "1x2x3x3"}, .number = {0}},
    {.kind = OP_attention, .in = {"2x2x3x2", "2x2x3x2", "2x2x3x2"}, .number = {1}},
    {.kind = OP_attention, .in = {"1x2x2x3", "1x1x4x3", "1x1x4x2"}, .number = {0}},
    {.kind = OP_attention,
     .in = {"1x2x4x2", "1x2x4x2", "1x2x4x3"},
     .number = {1, 2},
     .softcap = 1.5},
    {.kind = OP_attention, .in = {"1x2x3x2", "1x1x4x2", "1x1x4x2"}, .number = {0, 2}},
    {.kind = OP_attention,
     .in = {"2x2x3x2", "2x1x4x2", "2x1x4x2", "2x2x3x4"},
     .number = {0, 0, 1},
     .softcap = 2,
     .equation = OF_ATTENTION("b(gr)qk")},
    {.kind = OP_attention,
     .in = {"2x2x3x2", "2x2x3x2", "2x2x3x2", "1x2x3x3", "2"},
     .number = {1, 2, 1, 0, 1},
     .equation = OF_ATTENTION("1(gr)qk,(gr)")},
    {.kind = OP_attention,
     .in = {"2x2x3x2", "2x2x4x2", "2x2x4x2", "2x1x1x4"},
     .number = {0, 0, 1},
     .equation = OF_ATTENTION("b 1 1 k")},
    {.kind = OP_attention,
     .in = {"2x2x4x2", "2x1x4x2", "2x1x4x2", "i2:2x4", "i2:2x4", "2"},
     .number = {1, 0, 0, 1, 1},
     .equation = OF_ATTENTION("bq,bk,(gr)")},
    {.kind = OP_conv2d,
     .in = {"1x2x3x4", "3x2x2x3"},
     .number = {1, 1, 0, 0, 1, 1},
     .out = "1x3x2x2"},
    {.kind = OP_conv2d,
     .in = {"2x4x3x2", "2x2x2x2"},
     .number = {1, 1, 1, 1, 1, 1},
     .out = "2x2x4x3"},
    {.kind = OP_conv2d,
     .in = {"1x2x5x4", "2x1x2x2"},
     .number = {2, 2, 1, 0, 1, 1},
     .out = "1x2x3x2"},
    {.kind = OP_conv2d,
     .in = {"1x1x5x4", "2x1x2x2"},
     .number = {1, 1, 0, 1, 2, 1},
     .out = "1x2x3x5"},
    {.kind = OP_conv2d_back_input,
     .in = {"1x3x2x2", "3x2x2x3"},
     .number = {1, 1, 0, 0, 1, 1},
     .out = "1x2x3x4"},
    {.kind = OP_conv2d_back_input,
     .in = {"2x2x2x3", "2x1x2x2"},
     .number = {2, 2, 1, 0, 1, 1},
     .out = "2x2x3x6"},
    {.kind = OP_max_pool2d, .in = {"2x4x4"}, .number = {2, 2, 2, 2, 0, 0}, .out = "2x2x2"},
    {.kind = OP_max_pool2d, .in = {"1x2x5x4"}, .number = {3, 2, 2, 1, 1, 0}, .out = "1x2x3x3"},
    {.kind = OP_max_pool2d, .in = {"3x4"}, .number = {2, 2, 1, 1, 0, 0}, .out = "2x3"},
};

static void try_row(const void *with)
{
  const struct trial *t = with;
  one_rank();
  struct op op = {.kind = t->kind,
                  .equation = t->equation,
                  .dims = t->dims,
                  .keepdim = t->keepdim,
                  .scalar = t->scalar != 0 || t->zero ? t->scalar : 0.75,
                  .softcap = t->softcap,
                  .module = NONE,
                  .line = 1};
  memcpy(op.number, t->number, sizeof op.number);
  for (; op.nin < MAX_INPUTS && t->in[op.nin]; op.nin++)
    op.in[op.nin] = add_input(t->in[op.nin], t->dims);
  train_down(t->out ? append_op_shaped(op, parse_shape(t->out)) : append_op(op));
  compare_all();
}

/* Gives 1 where it failed. */
static int run_trial(const struct trial *t)
{
  struct ending e = run_child(try_row, t);
  if (e.status)
    print_error("%s of %s %s %s: ended with %d: %s\n", op_row[t->kind].name, t->in[0],
                t->in[1] ? t->in[1] : "", t->equation ? t->equation : "", e.status, e.said);
  return e.status != 0;
}

struct trials {
  int n, nshape;
  const struct trial *row, *shape;
};
#define TRIALS(row, shape)                                                                         \
  {                                                                                                \
    sizeof(row) / sizeof *(row), sizeof(shape) / sizeof *(shape), row, shape                       \
  }

static int run_with_shape(const struct trial *row, const struct trial *shape)
{
  struct trial t = *row;
  t.dims |= shape->dims;
  t.keepdim |= shape->keepdim;
  for (int i = 0; i < MAX_INPUTS && row->in[i]; i++)
    t.in[i] = text("%s%s", row->in[i], shape->in[i]);
  return run_trial(&t);
}

static void test_every_row(void **state)
{
  (void)state;
  static const struct trial as_it_is[] = {{.in = {"", "", "", "", "", "", "", ""}}};
  static const struct trials all[] = {TRIALS(unary, unary_shape), TRIALS(binary, binary_shape),
                                      TRIALS(reduction, reduction_shape), TRIALS(others, as_it_is)};
  /* These have tests of their own below. */
  bool tried[OP_COUNT] = {[OP_redistribute] = true, [OP_custom] = true};
  int failed = 0, trials = 0;
  one_rank();
  for (size_t k = 0; k < sizeof all / sizeof *all; k++)
    for (int i = 0; i < all[k].n; i++) {
      tried[all[k].row[i].kind] = true;
      for (int j = 0; j < all[k].nshape; j++, trials++)
        failed += run_with_shape(&all[k].row[i], &all[k].shape[j]);
    }
  must(!failed, "%d of %d trials failed", failed, trials);
  for (int kind = 0; kind < OP_COUNT; kind++)
    must(tried[kind] == has_gradient((enum op_kind)kind),
         "the gradient of %s is not tried: add it to one of the lists in this file",
         op_row[kind].name);
  print_message("%d trials\n", trials);
}

/* ------------------------------------------------------------------------------ where they meet */

static int apply(enum op_kind kind, int a, int b)
{
  return append_op((struct op){.kind = kind,
                               .nin = b == NONE ? 1 : 2,
                               .in = {a, b},
                               .scalar = 1.5,
                               .module = NONE,
                               .line = 1});
}

static void use_twice(const void *with)
{
  (void)with;
  one_rank();
  int p = parameter("p", parse_shape("2x3")), q = parameter("q", parse_shape("3"));
  int product = apply(OP_mul, p, p), sum = apply(OP_add, product, q);
  int t = apply(OP_tanh, sum, NONE),
      again = apply(OP_sub, apply(OP_mul, t, p), apply(OP_mul, sum, q));
  train_down(again);
  compare_all();
}

/* The gradient of one input only, where the other is no parameter's. */
static void use_inputs(const void *with)
{
  const enum op_kind *kind = with;
  one_rank();
  int x = given(BATCH, "x", parse_shape("2x3"), (struct layout){0}),
      p = parameter("p", parse_shape("3"));
  train_down(apply(OP_exp, apply(*kind, p, x), NONE));
  int before = graph->nop;
  compare_all();
  must(gradient_value(x) == NONE, "a gradient of an input");
  for (int i = before; i < graph->nop; i++)
    must(graph->op[i].phase == BACKWARD || graph->op[i].kind == OP_redistribute,
         "not in the backward");
}

static void use_inputs_right(const void *with)
{
  const enum op_kind *kind = with;
  one_rank();
  int x = given(BATCH, "x", parse_shape("2x3"), (struct layout){0}),
      p = parameter("p", parse_shape("3"));
  train_down(apply(OP_exp, apply(*kind, x, p), NONE));
  compare_all();
}

/* A parameter that the loss does not see has none, and what leads to it adds nothing. */
static void leave_one_out(const void *with)
{
  (void)with;
  one_rank();
  int p = parameter("p", parse_shape("2")), q = parameter("q", parse_shape("2"));
  apply(OP_square, q, NONE);
  train_down(apply(OP_square, p, NONE));
  propagate();
  grad();
  must(gradient_value(q) == NONE, "a gradient of what is not used");
  must(gradient_value(p) != NONE, "no gradient of what is used");
}

static void redistribute_between(const void *with)
{
  (void)with;
  one_rank();
  int p = parameter("p", parse_shape("2x2"));
  int moved = append_op((struct op){.kind = OP_redistribute,
                                    .nin = 1,
                                    .in = {p},
                                    .module = NONE,
                                    .line = 1,
                                    .asked = 1,
                                    .why = "the test"});
  train_down(apply(OP_square, moved, NONE));
  compare_all();
}

/* One parameter that an operation takes more than once. */
static void use_thrice(const void *with)
{
  const enum op_kind *kind = with;
  one_rank();
  int p = add_input("1x2x3x2", 0);
  struct op op = {.kind = *kind, .nin = 3, .in = {p, p, p}, .dims = 4, .scalar = 0.5};
  op.module = NONE;
  op.line = 1;
  train_down(*kind == OP_cat ? append_op_shaped(op, parse_shape("1x2x9x2")) : append_op(op));
  compare_all();
}

/* A mean that is held constant leaves the variance's gradient as it is: its own would be zero. */
static void hold_constant(const void *with)
{
  (void)with;
  one_rank();
  struct op mean = {.kind = OP_sum, .nin = 1, .dims = 2, .keepdim = true, .scalar = 1.0 / 3};
  mean.module = NONE;
  mean.line = 1;
  struct op variance = mean;
  mean.in[0] = add_input("2x3", 0);
  mean.constant = true;
  variance.in[0] = apply(OP_square, apply(OP_sub, mean.in[0], append_op(mean)), NONE);
  train_down(append_op(variance));
  compare_all();
  int expands = 0;
  for (int i = 0; i < graph->nop; i++) expands += graph->op[i].kind == OP_expand;
  must(expands == 2, "%d sums have a gradient, not the loss and the variance alone", expands);
}

static void test_where_gradients_meet(void **state)
{
  (void)state;
  passes(use_twice, NULL);
  static const enum op_kind kind[] = {OP_add, OP_sub, OP_mul, OP_div};
  for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
    passes(use_inputs, &kind[i]);
    passes(use_inputs_right, &kind[i]);
  }
  passes(use_thrice, &(enum op_kind){OP_attention});
  passes(use_thrice, &(enum op_kind){OP_cat});
  passes(hold_constant, NULL);
  passes(leave_one_out, NULL);
  passes(redistribute_between, NULL);
}

/* -------------------------------------------------------------------------- what is left behind */

/* Where the backward operations say they come from. */
static void check_origins(const void *with)
{
  (void)with;
  one_rank();
  int root = add_module("", "M", NONE, 1), inner = add_module("inner", "N", root, 2);
  int p = parameter("inner.weight", parse_shape("2"));
  graph->value[p].module = inner;
  struct op op = {.kind = OP_square, .nin = 1, .in = {p}, .module = inner, .line = 17};
  train_down(append_op(op));
  int forward = graph->norder;
  propagate();
  forward = graph->norder;
  grad();
  int of_inner = 0;
  for (int i = forward; i < graph->norder; i++) {
    const struct op *back = &graph->op[graph->order[i]];
    must(back->phase == BACKWARD, "%s of the backward is in phase %d", op_row[back->kind].name,
         back->phase);
    must(back->line > 0, "%s of the backward has no line", op_row[back->kind].name);
    of_inner += back->module == inner && back->line == 17;
  }
  must(of_inner >= 2, "%d operations come from line 17", of_inner);
  int gradient = gradient_value(p);
  must(!strcmp(graph->value[gradient].name, "d_inner.weight"), "called %s",
       graph->value[gradient].name);
}

static void train_nothing(const void *with)
{
  (void)with;
  one_rank();
  plan_options->train_line = 23;
  train_down(given(BATCH, "x", parse_shape("2"), (struct layout){0}));
  propagate();
  grad();
}

static void infer(const void *with)
{
  (void)with;
  one_rank();
  int v = apply(OP_square, parameter("p", parse_shape("2")), NONE);
  graph->value[v].is_output = true;
  propagate();
  int nop = graph->nop, norder = graph->norder;
  grad();
  must(graph->nop == nop && graph->norder == norder, "a backward without a loss");
}

/* Only through numbers that no gradient flows through. */
static void train_what_is_held(const void *with)
{
  one_rank();
  plan_options->train_line = 23;
  int p = parameter("p", parse_shape("2"));
  struct op op = {.kind = OP_exp, .nin = 1, .in = {p}, .module = NONE, .line = 1};
  op.constant = true;
  if (with) op = (struct op){.kind = OP_cast, .nin = 1, .in = {p}, .type = I32, .module = NONE};
  train_down(append_op((struct op){
      .kind = OP_cast, .nin = 1, .in = {append_op(op)}, .type = F32, .module = NONE, .line = 1}));
  propagate();
  grad();
}

static void turn_by_a_parameter(const void *with)
{
  const int *which = with;
  one_rank();
  int x = add_input("3x4", 0), angle[2] = {add_input("~3x2", 0), add_input("~3x2", 0)};
  angle[*which] = add_input("3x2", 0);
  train_down(append_op((struct op){.kind = OP_rotary_pairs,
                                   .nin = 3,
                                   .in = {x, angle[0], angle[1]},
                                   .module = NONE,
                                   .line = 31}));
  propagate();
  grad();
}

/* bf16 times f32: each gradient has its value's type, and so has what a sum adds up. */
static void mix_types(const void *with)
{
  const enum op_kind *kind = with;
  one_rank();
  int p = add_input("2x3", 0), q = add_input("2x3", 0);
  graph->value[p].type = BF16;
  train_down(apply(OP_add, apply(*kind, p, q), apply(*kind, q, p)));
  propagate();
  grad();
  must(graph->value[gradient_value(p)].type == BF16, "the gradient of a bf16 is none");
  must(graph->value[gradient_value(q)].type == F32, "the gradient of a f32 is none");
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->phase != BACKWARD || op->kind != OP_add) continue;
    must(graph->value[op->in[0]].type == graph->value[op->in[1]].type, "it adds two types");
  }
}

static void keep_type(const void *with)
{
  (void)with;
  one_rank();
  int c = add_input("?2x3", 0), p = add_input("2x3", 0), q = add_input("2x3", 0);
  graph->value[p].type = graph->value[q].type = BF16;
  train_down(append_op(
      (struct op){.kind = OP_where, .nin = 3, .in = {c, p, q}, .module = NONE, .line = 1}));
  propagate();
  grad();
  for (int i = 0; i < graph->nop; i++)
    must(graph->op[i].kind != OP_cast, "a cast where all is of one type");
}

/* A step that uses the second output of an operation that has one. */
static void use_second_output(const void *with)
{
  (void)with;
  one_rank();
  int q = add_input("1x2x3x2", 0), k = add_input("~1x2x3x2", 0);
  int out = append_op((struct op){
      .kind = OP_attention, .nin = 3, .in = {q, k, k}, .scalar = 1, .module = NONE, .line = 1});
  train_down(out + 1);
  propagate();
  grad();
}

static void test_what_is_left(void **state)
{
  (void)state;
  passes(check_origins, NULL);
  passes(infer, NULL);
  static const enum op_kind kind[] = {OP_add, OP_sub, OP_mul, OP_div, OP_maximum, OP_pow};
  for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) passes(mix_types, &kind[i]);
  passes(keep_type, NULL);
  refused(train_nothing, NULL, 1, "unit.lua:23", "nothing to train", NULL);
  refused(train_what_is_held, NULL, 1, "unit.lua:23", "nothing to train", NULL);
  refused(train_what_is_held, "as whole numbers", 1, "unit.lua:23", "nothing to train", NULL);
  refused(turn_by_a_parameter, &(int){0}, 1, "unit.lua:31", "no gradient for its cosine", NULL);
  refused(turn_by_a_parameter, &(int){1}, 1, "unit.lua:31", "no gradient for its sine", NULL);
  refused(use_second_output, NULL, -SIGABRT, "grad", "output 1 has a gradient", NULL);
}

/* --------------------------------------------------------------------- the plan's own operators */

/* twist: two inputs of which the second may have no gradient, and one or two outputs. */
static int twist(const char *rule, bool both, int nin, const int *in)
{
  enum { TWIST, BACK_A, BACK_B };
  graph->custom = alloc(3 * sizeof *graph->custom);
  graph->ncustom = 3;
  graph->custom[TWIST] = (struct custom){.name = "twist", .rule = rule, .linear = ""};
  bool more = strchr(strchr(rule, '>'), ',');
  for (int i = 0; i < MAX_INPUTS; i++) graph->custom[TWIST].backward[i] = BACK_A;
  graph->custom[TWIST].backward[1] = both ? BACK_B : NONE;
  const char *back = more ? "n,n,m,n,n->n" : "n,n,m,n->n", *back_b = "n,n,m,n->m";
  graph->custom[BACK_A] = (struct custom){.name = "twist_a", .rule = back, .linear = "a"};
  graph->custom[BACK_B] = (struct custom){.name = "twist_b", .rule = back_b, .linear = "a"};
  struct op op = {.kind = OP_custom, .nin = nin, .custom = TWIST, .scalar = 0.5};
  memcpy(op.in, in, (size_t)nin * sizeof *in);
  op.module = NONE;
  op.line = 41;
  return append_op(op);
}

/* The operation that makes the gradient. */
static const struct op *maker(int value)
{
  const struct op *op = &graph->op[graph->value[gradient_value(value)].op];
  while (op->kind == OP_redistribute) op = &graph->op[graph->value[op->in[0]].op];
  return op;
}

static void twist_back(const void *with)
{
  const bool *more = with;
  one_rank();
  int a = add_input("3", 0), b = add_input(*more ? "~2" : "2", 0);
  int out = twist(*more ? "n,m->n,n" : "n,m->n", !*more, 2, (int[]){a, b});
  must(graph->op[graph->value[out].op].nout == 1 + *more, "the test's own operator is wrong");
  train_down(out);
  propagate();
  grad();
  for (int i = 0; i < 2 - *more; i++) {
    const struct op *back = maker(i ? b : a);
    must(back->kind == OP_custom && back->custom == 1 + i && back->phase == BACKWARD,
         "input %d: not by the operator that the plan names", i);
    must(back->nin == 4 + *more && back->in[1] == a && back->in[2] == b && back->in[3] == out &&
             (!*more || back->in[4] == out + 1),
         "input %d: it is given something else", i);
    must(same_shape(graph->value[back->in[0]].shape, graph->value[out].shape) &&
             graph->op[graph->value[back->in[0]].op].phase == BACKWARD,
         "input %d: its first input is not the output's gradient", i);
    must(same_shape(graph->value[back->out].shape, graph->value[i ? b : a].shape),
         "input %d: the gradient's shape is wrong", i);
    must(back->scalar == 0.5, "its number is lost");
  }
}

static void twist_without(const void *with)
{
  (void)with;
  one_rank();
  train_down(twist("n,m->n", false, 2, (int[]){add_input("3", 0), add_input("2", 0)}));
  propagate();
  grad();
}

static void twist_second(const void *with)
{
  (void)with;
  one_rank();
  train_down(1 + twist("n,m->n,n", true, 2, (int[]){add_input("3", 0), add_input("2", 0)}));
  propagate();
  grad();
}

static void twist_many(const void *with)
{
  (void)with;
  one_rank();
  int in[11], n = sizeof in / sizeof *in;
  for (int i = 0; i < n; i++) in[i] = add_input(i ? "~3" : "3", 0);
  train_down(twist("n,n,n,n,n,n,n,n,n,n,n->n", true, n, in));
  propagate();
  grad();
}

static void test_own_operators(void **state)
{
  (void)state;
  passes(twist_back, &(bool){false});
  passes(twist_back, &(bool){true});
  refused(twist_without, NULL, 1, "unit.lua:41", "twist has no gradient for its input b", NULL);
  refused(twist_second, NULL, 1, "unit.lua:41", "output 1 of twist", NULL);
  refused(twist_many, NULL, 1, "unit.lua:41", "twist", "at most 12 inputs", NULL);
}

int main(void)
{
  counts_rows = false;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_row),
      cmocka_unit_test(test_where_gradients_meet),
      cmocka_unit_test(test_what_is_left),
      cmocka_unit_test(test_own_operators),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
