/* Which sums of gradients travel together, where in the program, and how much. */
#include "functions.h"

static int parameter(const char *shape, const char *layout)
{
  return given(PARAMETER, "w", parse_shape(shape), parse_layout(layout));
}

/* The all-reduce, over these dimensions of the mesh, of the gradient of a parameter. */
static int sum_gradient(int of, unsigned dims)
{
  int partial = given(ACTIVATION, "d", graph->value[of].shape, graph->value[of].layout);
  int out = run_in_phase((struct op){.kind = OP_all_reduce,
                                     .nin = 1,
                                     .in = {partial},
                                     .phase = BACKWARD,
                                     .group = add_group(dims)});
  graph->value[out].role = GRADIENT;
  graph->value[out].of = of;
  return graph->value[out].op;
}

static int something(void)
{
  int x = given(BATCH, "x", parse_shape("3"), (struct layout){0});
  return graph
      ->value[run_in_phase((struct op){.kind = OP_exp, .nin = 1, .in = {x}, .phase = BACKWARD})]
      .op;
}

/* The i-th operation is a bucket of these, in this order, NONE last. */
static void is_bucket(int i, const int *members)
{
  const struct op *op = nth_op(BACKWARD, i);
  int n = 0;
  while (members[n] != NONE) n++;
  assert_int_equal(op->kind, OP_all_reduce);
  assert_int_equal(op->nbody, n);
  for (int k = 0; k < n; k++) assert_int_equal(op->body[k], members[k]);
}

static void is_op(int i, int op)
{
  assert_int_equal(function_of_phase(BACKWARD)->op[i], op);
}

/* They are summed together where the last of them was, in the order in which they lie in memory. */
static void test_neighbours_travel_together(void **state)
{
  (void)state;
  new_graph(1, (int[]){2});
  int a = parameter("4x3", "R"), b = parameter("5", "R"), c = parameter("2x2", "R");
  int of_c = sum_gradient(c, 1), between = something(), of_a = sum_gradient(a, 1);
  int of_b = sum_gradient(b, 1), last = something();
  bucket();
  assert_int_equal(function_of_phase(BACKWARD)->nop, 3);
  is_op(0, between);
  is_bucket(1, (int[]){of_a, of_b, of_c, NONE});
  is_op(2, last);

  int64_t give[2], get[2];
  const struct op *op = nth_op(BACKWARD, 1);
  collective_counts(op, 0, give, get);
  assert_int_equal(give[0], 12 + 5 + 4);
  assert_int_equal(get[1], 12 + 5 + 4);
  assert_int_equal(collective_bytes(op, 0), 4 * (12 + 5 + 4));
  int list[64];
  assert_int_equal(op_reads(op, list), 3);
  assert_int_equal(list[0], graph->op[of_a].in[0]);
  assert_int_equal(op_writes(op, list), 0);
  for (int i = 0; i < graph->nvalue; i++) graph->value[i].stored = true;
  assert_int_equal(op_writes(op, list), 3);
}

/* A rank's parts of them are what is counted. */
static void test_parts_are_counted(void **state)
{
  (void)state;
  new_graph(2, (int[]){2, 3});
  sum_gradient(parameter("7x3", "R S(0)"), 1);
  sum_gradient(parameter("4", "R R"), 1);
  bucket();
  int64_t give[2], get[2];
  collective_counts(nth_op(BACKWARD, 0), 2, give, get);
  assert_int_equal(give[0], 1 * 3 + 4);
  collective_counts(nth_op(BACKWARD, 0), 3, give, get);
  assert_int_equal(give[0], 3 * 3 + 4);
}

static void test_one_stays_as_it_is(void **state)
{
  (void)state;
  new_graph(1, (int[]){2});
  int op = sum_gradient(parameter("4", "R"), 1);
  bucket();
  assert_int_equal(function_of_phase(BACKWARD)->nop, 1);
  is_op(0, op);
}

static void test_other_groups_stay_apart(void **state)
{
  (void)state;
  new_graph(2, (int[]){2, 2});
  int a = sum_gradient(parameter("4", "R R"), 1), b = sum_gradient(parameter("4", "R R"), 1);
  int c = sum_gradient(parameter("4", "R R"), 2), d = sum_gradient(parameter("4", "R R"), 3);
  bucket();
  assert_int_equal(function_of_phase(BACKWARD)->nop, 3);
  is_bucket(0, (int[]){a, b, NONE});
  is_op(1, c);
  is_op(2, d);
}

static void test_other_types_and_reductions_stay_apart(void **state)
{
  (void)state;
  new_graph(1, (int[]){2});
  int a = sum_gradient(parameter("4", "R"), 1), b = sum_gradient(parameter("4", "R"), 1);
  int c = sum_gradient(parameter("4", "R"), 1);
  graph->value[graph->op[b].out].type = BF16;
  graph->op[c].reduction = MAX;
  bucket();
  assert_int_equal(function_of_phase(BACKWARD)->nop, 3);
  is_op(0, a);
  is_op(1, b);
  is_op(2, c);
}

/* A parameter whose gradient is not summed lies between them. */
static void test_gaps_stay_apart(void **state)
{
  (void)state;
  new_graph(1, (int[]){2});
  int a = sum_gradient(parameter("4", "R"), 1), b = sum_gradient(parameter("4", "R"), 1);
  parameter("4", "R");
  int c = sum_gradient(parameter("4", "R"), 1), d = sum_gradient(parameter("4", "R"), 1);
  bucket();
  assert_int_equal(function_of_phase(BACKWARD)->nop, 2);
  is_bucket(0, (int[]){a, b, NONE});
  is_bucket(1, (int[]){c, d, NONE});
}

static void test_other_values_are_left_alone(void **state)
{
  (void)state;
  new_graph(1, (int[]){2});
  int x = given(ACTIVATION, "x", parse_shape("4"), parse_layout("P"));
  for (int i = 0; i < 2; i++)
    run_in_phase((struct op){
        .kind = OP_all_reduce, .nin = 1, .in = {x}, .phase = BACKWARD, .group = add_group(1)});
  int gathered = run_in_phase((struct op){
      .kind = OP_all_gather, .nin = 1, .in = {x}, .phase = BACKWARD, .group = add_group(1)});
  graph->value[gathered].role = GRADIENT;
  graph->value[gathered].of = parameter("4", "R");
  bucket();
  assert_int_equal(function_of_phase(BACKWARD)->nop, 3);
  for (int i = 0; i < 3; i++) assert_int_equal(nth_op(BACKWARD, i)->nbody, 0);
}

/* 25 MiB at most: the first can be under way while the rest is computed. */
static void test_buckets_have_a_size(void **state)
{
  (void)state;
  new_graph(1, (int[]){2});
  int op[6];
  for (int i = 0; i < 4; i++) op[i] = sum_gradient(parameter("1024x2560", "R"), 1);
  op[4] = sum_gradient(parameter("4096x4096", "R"), 1);
  op[5] = sum_gradient(parameter("8", "R"), 1);
  bucket();
  assert_int_equal(function_of_phase(BACKWARD)->nop, 4);
  is_bucket(0, (int[]){op[0], op[1], NONE});
  is_bucket(1, (int[]){op[2], op[3], NONE});
  is_op(2, op[4]);
  is_op(3, op[5]);

  new_graph(1, (int[]){2});
  for (int i = 0; i < 3; i++) op[i] = sum_gradient(parameter("1024x3200", "R"), 1);
  bucket();
  assert_int_equal(function_of_phase(BACKWARD)->nop, 2);
  is_bucket(0, (int[]){op[0], op[1], NONE});
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_neighbours_travel_together),
      cmocka_unit_test(test_parts_are_counted),
      cmocka_unit_test(test_one_stays_as_it_is),
      cmocka_unit_test(test_other_groups_stay_apart),
      cmocka_unit_test(test_other_types_and_reductions_stay_apart),
      cmocka_unit_test(test_gaps_stay_apart),
      cmocka_unit_test(test_other_values_are_left_alone),
      cmocka_unit_test(test_buckets_have_a_size),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
