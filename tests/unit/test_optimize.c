/* The update of every parameter that has a gradient, the state that it keeps, the norm of all
   gradients, and their sums over the batches of a step. */
#include "flat/flat.h"
#include "unit.h"

static int weight[3], gradient[3];

static void model(const char *optimizer)
{
  new_graph(2, (int[]){2, 3});
  plan_options->optimizer = (struct optimizer){.name = optimizer, .lr = 0.1, .line = 9};
  int root = add_module("", "Model", NONE, 1);
  for (int i = 0; i < 3; i++) {
    weight[i] = given(PARAMETER, text("w%d", i), parse_shape("4x6"), parse_layout("R S(1)"));
    graph->value[weight[i]].module = root;
    graph->value[weight[i]].type = i == 2 ? BF16 : F32;
  }
  /* The second has none; they are found in the order of the parameters. */
  for (int i = 2; i >= 0; i -= 2) {
    gradient[i] = given(GRADIENT, "d", parse_shape("4x6"), parse_layout("R S(1)"));
    graph->value[gradient[i]].of = weight[i];
  }
  graph->loss = given(LOSS, "loss", parse_shape(""), (struct layout){0});
}

static const struct op *nth(int i)
{
  return &graph->op[graph->order[i]];
}

static void test_adamw(void **state)
{
  (void)state;
  static const char *const kind[] = {"exp_avg", "exp_avg_sq"};
  model("AdamW");
  optimize();
  assert_int_equal(graph->norder, 2);
  for (int i = 0; i < 2; i++) {
    const struct op *op = nth(i);
    assert_int_equal(op->kind, OP_adamw);
    assert_int_equal(op->phase, UPDATE);
    assert_int_equal(op->line, 9);
    assert_int_equal(op->out, NONE);
    assert_int_equal(op->nin, 4);
    assert_int_equal(op->in[0], weight[2 * i]);
    assert_int_equal(op->in[1], gradient[2 * i]);
    for (int k = 0; k < 2; k++) {
      const struct value *s = &graph->value[op->in[2 + k]], *w = &graph->value[weight[2 * i]];
      assert_int_equal(s->role, STATE);
      assert_int_equal(s->of, weight[2 * i]);
      assert_int_equal(s->type, w->type);
      assert_true(s->placed && same_layout(s->layout, w->layout) && same_shape(s->shape, w->shape));
      assert_string_equal(s->name, text("optim.%s.w%d", kind[k], 2 * i));
    }
  }
}

static void test_sgd(void **state)
{
  (void)state;
  model("SGD");
  int before = graph->nvalue;
  optimize();
  assert_int_equal(graph->norder, 2);
  assert_int_equal(graph->nvalue, before);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(nth(i)->kind, OP_sgd);
    assert_int_equal(nth(i)->nin, 2);
    assert_int_equal(nth(i)->in[0], weight[2 * i]);
    assert_int_equal(nth(i)->in[1], gradient[2 * i]);
  }
}

static void test_momentum(void **state)
{
  (void)state;
  model("SGD");
  plan_options->optimizer.momentum = 0.9;
  optimize();
  assert_int_equal(graph->norder, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(nth(i)->nin, 3);
    const struct value *s = &graph->value[nth(i)->in[2]];
    assert_int_equal(s->role, STATE);
    assert_string_equal(s->name, text("optim.momentum.w%d", 2 * i));
  }
}

/* Each rank sums the squares of its parts, once; one all-reduce, over the dimensions that cut any
   gradient; the root of it; and each update takes that. */
static void test_clipping(void **state)
{
  (void)state;
  model("SGD");
  plan_options->clip = 1;
  plan_options->wants_norm = true;
  optimize();
  assert_int_equal(graph->norder, 5);
  const struct op *squares = nth(0), *sum = nth(1), *norm = nth(2);
  assert_int_equal(squares->kind, OP_squares);
  assert_int_equal(squares->nbody, 2);
  for (int i = 0; i < 2; i++) assert_int_equal(graph->op[squares->body[i]].in[0], gradient[2 * i]);
  assert_true(same_layout(graph->value[squares->out].layout, parse_layout("R P")));
  assert_int_equal(graph->value[squares->out].type, F64);
  int list[64];
  assert_int_equal(op_reads(squares, list), 2);
  assert_int_equal(op_writes(squares, list), 1);
  assert_int_equal(list[0], squares->out);
  assert_int_equal(sum->kind, OP_all_reduce);
  assert_int_equal(sum->in[0], squares->out);
  assert_int_equal(graph->group[sum->group].dims, 2);
  assert_int_equal(norm->kind, OP_norm);
  assert_int_equal(norm->in[0], sum->out);
  assert_int_equal(graph->norm, norm->out);
  assert_int_equal(graph->value[graph->norm].role, NORM);
  assert_int_equal(graph->value[graph->norm].type, F32);
  for (int i = 3; i < 5; i++) {
    assert_int_equal(nth(i)->phase, UPDATE);
    assert_int_equal(nth(i)->in[nth(i)->nin - 1], graph->norm);
  }
}

/* Where every rank has every gradient there is nothing to be summed over them; and the norm may be
   told without a use of it. */
static void test_norm_of_whole_gradients(void **state)
{
  (void)state;
  model("SGD");
  for (int i = 0; i < graph->nvalue; i++) graph->value[i].layout = (struct layout){0};
  plan_options->wants_norm = true;
  optimize();
  assert_int_equal(graph->norder, 4);
  assert_int_equal(nth(0)->kind, OP_squares);
  assert_int_equal(nth(1)->kind, OP_norm);
  assert_int_equal(nth(2)->nin, 2);
}

/* The backward of a step of several batches: w0's gradient comes pending over a, w1's cut where the
   parameter is whole, w2's as it is to be. */
static int came[3];

static void accumulating_model(void)
{
  static const char *const from[] = {"P S(1)", "R S(0)", "R S(1)"};
  new_graph(2, (int[]){2, 3});
  plan_options->optimizer = (struct optimizer){.name = "SGD", .lr = 0.1, .line = 9};
  plan_options->accumulate = 4;
  int root = add_module("", "Model", NONE, 1);
  for (int i = 0; i < 3; i++) {
    weight[i] = given(PARAMETER, text("w%d", i), parse_shape("4x6"), parse_layout("R S(1)"));
    graph->value[weight[i]].module = root;
  }
  for (int i = 0; i < 3; i++) {
    came[i] = given(ACTIVATION, "g", parse_shape("4x6"), parse_layout(from[i]));
    struct op op = {.kind = OP_redistribute, .nin = 1, .in = {came[i]}, .phase = BACKWARD};
    op.module = root;
    op.to = parse_layout("R S(1)");
    op.asked = 3;
    gradient[i] = append_op(op);
    graph->value[gradient[i]].role = GRADIENT;
    graph->value[gradient[i]].of = weight[i];
    graph->value[gradient[i]].layout = op.to;
    graph->value[gradient[i]].placed = true;
  }
  graph->loss = given(LOSS, "loss", parse_shape(""), (struct layout){0});
}

/* The operation adds to what was there before the step, and leaves the sum in the same place. */
static void is_sum(const struct op *op, int value, int of)
{
  assert_int_equal(op->kind, OP_add);
  assert_int_equal(op->phase, BACKWARD);
  assert_int_equal(op->in[1], value);
  const struct value *before = &graph->value[op->in[0]], *sum = &graph->value[op->out];
  assert_int_equal(before->op, NONE);
  assert_int_equal(before->role, GRADIENT);
  assert_int_equal(sum->role, GRADIENT);
  assert_int_equal(before->of, of);
  assert_int_equal(sum->of, of);
  assert_true(same_layout(before->layout, graph->value[value].layout));
  assert_true(same_layout(sum->layout, graph->value[value].layout));
}

static void test_accumulation(void **state)
{
  (void)state;
  accumulating_model();
  optimize();
  assert_int_equal(graph->norder, 8);
  /* Pending: it stays so until the update. */
  is_sum(nth(0), came[0], weight[0]);
  const struct op *reduced = nth(4);
  assert_int_equal(reduced->kind, OP_redistribute);
  assert_int_equal(reduced->phase, UPDATE);
  assert_int_equal(reduced->in[0], nth(0)->out);
  assert_int_equal(reduced->out, gradient[0]);
  /* Cut otherwise: it is brought to its place before it is added. */
  assert_int_equal(nth(1)->kind, OP_redistribute);
  assert_int_equal(nth(1)->phase, BACKWARD);
  is_sum(nth(2), gradient[1], weight[1]);
  assert_int_equal(graph->value[gradient[1]].role, ACTIVATION);
  /* As it is to be: nothing is redistributed. */
  is_sum(nth(3), came[2], weight[2]);
  int used[] = {gradient[0], nth(2)->out, nth(3)->out};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(nth(5 + i)->kind, OP_sgd);
    assert_int_equal(nth(5 + i)->in[0], weight[i]);
    assert_int_equal(nth(5 + i)->in[1], used[i]);
  }
}

/* A buffer has no state, no part in the norm, and is not clipped. */
static void test_buffer(void **state)
{
  (void)state;
  model("AdamW");
  plan_options->clip = 1;
  plan_options->wants_norm = true;
  int mean = given(ACTIVATION, "mean", parse_shape("4x6"), parse_layout("R S(1)"));
  append_op((struct op){
      .kind = OP_running, .nin = 2, .in = {mean, weight[0]}, .scalar = 0.1, .module = NONE});
  optimize();
  const struct op *squares = NULL, *update = NULL;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = nth(i);
    if (op->kind == OP_squares) squares = op;
    must(op->kind != OP_adamw || op->in[0] == weight[2], "a buffer is trained");
    if (op->kind == OP_buffer) update = op;
  }
  must(squares && squares->nbody == 1 && graph->op[squares->body[0]].in[0] == gradient[2],
       "the norm is not that of the trained parameter");
  must(update && update->nin == 2 && update->in[0] == weight[0] && update->in[1] == gradient[0],
       "the buffer is not updated");
  assert_int_equal(update->phase, UPDATE);
}

static void test_nothing_is_trained(void **state)
{
  (void)state;
  model("AdamW");
  graph->loss = NONE;
  optimize();
  assert_int_equal(graph->norder, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_adamw),
      cmocka_unit_test(test_sgd),
      cmocka_unit_test(test_momentum),
      cmocka_unit_test(test_clipping),
      cmocka_unit_test(test_norm_of_whole_gradients),
      cmocka_unit_test(test_accumulation),
      cmocka_unit_test(test_buffer),
      cmocka_unit_test(test_nothing_is_trained),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
