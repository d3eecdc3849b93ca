/* The update of every parameter that has a gradient, and the state that it keeps. */
#include "unit.h"

static int weight[3], gradient[3];

static void model(const char *optimizer)
{
  new_graph(2, (int[]){2, 3});
  graph->optimizer = (struct optimizer){.name = optimizer, .lr = 0.1, .line = 9};
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
      cmocka_unit_test(test_nothing_is_trained),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
