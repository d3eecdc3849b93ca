/* Gradients against central finite differences, in double precision: for every row of the table of
   operators that has a gradient, on every instance of it; then where gradients meet, and where
   there are none. The loss is a sum of what the operation makes, each element times a number of its
   own. */
#include "instances.h"

static const char *const gradient_of[OP_COUNT] = {
#define OP(name, dimensions, linear, gradient, expression) [OP_##name] = #gradient,
#include "ops.h"
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

/* Numbers away from zero, where some operators have a corner or a pole. */
static struct array numbers(struct shape shape)
{
  struct array a = random_array(shape);
  for (int64_t i = 0; i < elements(shape); i++) a.at[i] += a.at[i] < 0 ? -0.5 : 0.5;
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
 * says. */
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

static void compare_all(void)
{
  propagate();
  grad();
  whole = alloc((size_t)graph->nvalue * sizeof *whole);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].op == NONE) whole[i] = numbers(graph->value[i].shape);
  for (int i = 0, n = graph->nvalue; i < n; i++)
    if (graph->value[i].role == PARAMETER) compare(i);
}

/* ------------------------------------------------------------------------------------ every row */

static void one_rank(void)
{
  new_graph(1, (int[]){1});
}

struct trial {
  const struct instance *instance;
  const int64_t *size;
};

static void try_instance(const void *with)
{
  const struct trial *trial = with;
  const struct instance *instance = trial->instance;
  one_rank();
  struct op op = {.kind = instance->kind,
                  .equation = instance->equation,
                  .dims = instance->dims,
                  .keep = instance->keep,
                  .scalar = 0.75,
                  .module = NONE,
                  .line = 1};
  for (; op.nin < MAX_INPUTS && instance->in[op.nin]; op.nin++)
    op.in[op.nin] = parameter("p", shape_in_letters(instance->in[op.nin], trial->size));
  if (op.kind == OP_variance) {
    /* Its second input is the mean of the first (ops.h). */
    struct shape s = graph->value[op.in[0]].shape;
    double n = 1;
    for (int d = 0; d < s.ndim; d++) n *= op.dims >> d & 1 ? (double)s.size[d] : 1;
    graph->nvalue--;
    op.in[1] = append_op((struct op){.kind = OP_sum,
                                     .nin = 1,
                                     .in = {op.in[0]},
                                     .dims = op.dims,
                                     .keep = op.keep,
                                     .scalar = 1 / n,
                                     .module = NONE,
                                     .line = 1});
  }
  int out = instance->out ? append_op_shaped(op, shape_in_letters(instance->out, trial->size))
                          : append_op(op);
  train_down(out);
  compare_all();
}

static void test_every_row(void **state)
{
  (void)state;
  static const int64_t sizes[][4] = {{2, 3, 2, 3}, {1, 2, 1, 3}, {3, 1, 2, 1}};
  bool tried[OP_COUNT] = {[OP_redistribute] = true};
  int trials = 0;
  for (size_t i = 0; i < sizeof instances / sizeof *instances; i++)
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
      if (!has_gradient(instances[i].kind)) continue;
      tried[instances[i].kind] = true;
      trials++;
      passes(try_instance, &(struct trial){&instances[i], sizes[k]});
    }
  for (int kind = 0; kind < OP_COUNT; kind++)
    must(tried[kind] == has_gradient((enum op_kind)kind), "the gradient of %s is not tried",
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

static void test_where_gradients_meet(void **state)
{
  (void)state;
  passes(use_twice, NULL);
  static const enum op_kind kind[] = {OP_add, OP_sub, OP_mul, OP_div};
  for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
    passes(use_inputs, &kind[i]);
    passes(use_inputs_right, &kind[i]);
  }
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
  graph->train_line = 23;
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

static void test_what_is_left(void **state)
{
  (void)state;
  passes(check_origins, NULL);
  passes(infer, NULL);
  refused(train_nothing, NULL, 1, "unit.lua:23", "nothing to train", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_row),
      cmocka_unit_test(test_where_gradients_meet),
      cmocka_unit_test(test_what_is_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
