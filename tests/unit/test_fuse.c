/* Which adjacent operations become one kernel, in which order, and which results are stored. Runs
   and sums are pairs of dumps: tests/passes. */
#include "emit/emit.h"
#include "functions.h"

static void one_rank(void)
{
  new_graph(1, (int[]){1});
}

static int input(const char *shape)
{
  return given(BATCH, "x", parse_shape(shape), (struct layout){0});
}

static int pointwise(enum op_kind kind, int a, int b)
{
  return run_in_phase(
      (struct op){.kind = kind, .nin = b == NONE ? 1 : 2, .in = {a, b}, .scalar = 1});
}

static int sum(int a, unsigned dims, bool keep)
{
  return run_in_phase(
      (struct op){.kind = OP_sum, .nin = 1, .in = {a}, .dims = dims, .keepdim = keep, .scalar = 1});
}

/* Something that is no kernel, and reads the value. */
static int move(int value)
{
  return run_in_phase((struct op){.kind = OP_pack, .nin = 1, .in = {value}});
}

/* The kinds of the forward's operations, a kernel's in brackets. */
static const char *program(enum phase phase)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  const struct function *f = function_of_phase(phase);
  for (int i = 0; i < f->nop; i++) {
    const struct op *op = &graph->op[f->op[i]];
    put(&b, "%s", i ? " " : "");
    if (!op->nbody) put(&b, "%s", op_row[op->kind].name);
    if (op->nbody) put(&b, "%s[", op->kind == OP_fused ? "" : op_row[op->kind].name);
    for (int k = 0; k < op->nbody; k++)
      put(&b, "%s%s", k ? " " : "", op_row[graph->op[op->body[k]].kind].name);
    if (op->nbody) put(&b, "]");
  }
  return b.text;
}

static void becomes(const char *expected)
{
  fuse();
  assert_string_equal(program(FORWARD), expected);
}

/* ----------------------------------------------------------------------------------------- rows */

static const struct stages *stages_of(const struct op *op)
{
  static struct stages stages;
  assert_true(find_stages(op->body, op->nbody, &stages));
  return &stages;
}

static void test_a_norm_is_one_kernel(void **state)
{
  (void)state;
  one_rank();
  int x = input("4x6"), y = input("4x6"), w = input("6");
  int a = pointwise(OP_add, x, y), s = sum(pointwise(OP_square, a, NONE), 2, true);
  int r = pointwise(OP_rsqrt, s, NONE), n = pointwise(OP_mul, a, r);
  move(pointwise(OP_mul, n, w));
  becomes("[add square sum rsqrt mul mul] pack");
  assert_false(graph->value[s].stored);
  assert_false(graph->value[r].stored);
  assert_false(graph->value[a].stored);
  const struct stages *stages = stages_of(nth_op(FORWARD, 0));
  assert_int_equal(stages->rows, 1);
  assert_int_equal(stages->count, 2);
  assert_true(stages->task[3].of_row);
  assert_int_equal(stages->task[3].stage, 1);
  /* Not stored, the sum is made again for the second stage; the square is not. */
  bool made[MOST_IN_KERNEL];
  assert_true(made_in_stage(nth_op(FORWARD, 0)->body, stages, 1, made));
  assert_true(made[0]);
  assert_false(made[1]);
  assert_true(made[4] && made[5]);
  assert_int_equal(last_stage(nth_op(FORWARD, 0)->body, stages, 0), 1);
}

static void test_a_softmax_is_one_kernel(void **state)
{
  (void)state;
  one_rank();
  int x = input("2x4x6");
  int most =
      run_in_phase((struct op){.kind = OP_amax, .nin = 1, .in = {x}, .dims = 4, .keepdim = true});
  int e = pointwise(OP_exp, pointwise(OP_sub, x, most), NONE);
  move(pointwise(OP_div, e, sum(e, 4, true)));
  becomes("[amax sub exp sum div] pack");
  assert_int_equal(stages_of(nth_op(FORWARD, 0))->count, 3);
  assert_int_equal(stages_of(nth_op(FORWARD, 0))->rows, 2);
}

static void test_sums_over_columns_ride_along(void **state)
{
  (void)state;
  one_rank();
  int x = input("4x6"), r = sum(x, 2, true), y = pointwise(OP_mul, x, r), c = sum(y, 1, false);
  int all = sum(r, 3, false);
  move(c);
  move(all);
  becomes("[sum mul sum sum] pack pack");
  assert_int_equal(stages_of(nth_op(FORWARD, 0))->task[2].reach, OVER_COLUMN);
  assert_int_equal(stages_of(nth_op(FORWARD, 0))->task[3].reach, OVER_ROWS);

  set_target("cuda");
  one_rank();
  x = input("4x6");
  r = sum(x, 2, true);
  c = sum(pointwise(OP_mul, x, r), 1, false);
  all = sum(r, 3, false);
  move(c);
  move(all);
  fuse();
  set_target("cpu");
  assert_string_equal(program(FORWARD), "[sum mul sum] [sum] pack pack");
}

static void test_rows_end_where_others_begin(void **state)
{
  (void)state;
  one_rank();
  int x = input("4x6"), s = sum(x, 1, false); /* of columns: complete only with the kernel */
  move(pointwise(OP_add, x, s));
  becomes("[sum] [add] pack");

  new_graph(1, (int[]){2});
  x = given(BATCH, "x", parse_shape("4x6"), parse_layout("S(1)"));
  s = sum(x, 2, true);
  int whole = run_in_phase((struct op){.kind = OP_all_reduce, .nin = 1, .in = {s}});
  graph->value[whole].layout = parse_layout("R");
  graph->value[whole].placed = true;
  move(pointwise(OP_sub, x, whole));
  becomes("[sum] all_reduce [sub] pack");
}

static void test_others_do_not_part_a_kernel(void **state)
{
  (void)state;
  one_rank();
  int a = input("4x6"), s = pointwise(OP_silu, a, NONE), b = move(input("4x6"));
  move(pointwise(OP_mul, s, b));
  becomes("pack [silu mul] pack");

  /* What reads the first and is read by the second stays between them. */
  one_rank();
  a = input("4x6");
  s = pointwise(OP_silu, a, NONE);
  b = move(s);
  move(pointwise(OP_mul, s, b));
  becomes("[silu] pack [mul] pack");

  one_rank();
  a = input("4x6");
  s = pointwise(OP_silu, a, NONE);
  b = move(s);
  int c = move(b);
  int d = pointwise(OP_neg, s, NONE);
  move(pointwise(OP_mul, d, c));
  becomes("[silu neg] pack pack [mul] pack");
}

/* ------------------------------------------------------------------------------------ constants */

static int constant(const char *shape)
{
  int v = append_op_shaped((struct op){.kind = OP_full, .scalar = 3, .module = NONE},
                           parse_shape(shape));
  graph->norder--;
  struct function *f = function_of_phase(FORWARD);
  f->op[f->nop++] = graph->value[v].op;
  return v;
}

static void test_constants(void **state)
{
  (void)state;
  one_rank();
  int x = input("4x6"), a = pointwise(OP_exp, x, NONE), one = constant(""), many = constant("4x6");
  int b = pointwise(OP_add, a, one), c = pointwise(OP_add, b, many);
  move(c);
  becomes("[exp full add add] pack");
  assert_false(graph->value[one].stored);
  assert_false(graph->value[many].stored);
  assert_true(graph->value[c].stored);
}

/* -------------------------------------------------------------------------------------- updates */

static int parameter(const char *shape)
{
  return given(PARAMETER, "w", parse_shape(shape), (struct layout){0});
}

static void update(int optimizer, int parameter)
{
  static struct optimizer two[2];
  plan_options->optimizer = two;
  plan_options->noptimizer = 2;
  int g = given(GRADIENT, "g", graph->value[parameter].shape, (struct layout){0});
  struct op op = {.kind = OP_update,
                  .number = {optimizer},
                  .nin = 2,
                  .in = {parameter, g},
                  .out = NONE,
                  .phase = UPDATE,
                  .module = NONE};
  struct function *f = function_of_phase(UPDATE);
  f->op[f->nop++] = append_update(op);
}

static void test_updates_of_neighbours_are_one(void **state)
{
  (void)state;
  one_rank();
  int a = parameter("4"), b = parameter("6"), c = parameter("2"), d = parameter("3"),
      e = parameter("5");
  graph->value[e].type = BF16;
  update(0, a);
  update(0, b);
  update(0, d);
  update(0, e);
  (void)c;
  fuse();
  assert_string_equal(program(UPDATE), "update[update update] update[update] update[update]");
  int list[64];
  assert_int_equal(op_writes(nth_op(UPDATE, 0), list), 2);
  assert_int_equal(list[0], a);
  assert_int_equal(list[1], b);
  assert_int_equal(op_reads(nth_op(UPDATE, 0), list), 4);
  assert_true(graph->value[c].stored);
}

static void test_updates_of_other_optimizers_stay_apart(void **state)
{
  (void)state;
  one_rank();
  int a = parameter("4"), b = parameter("6"), c = parameter("2");
  update(1, b);
  update(1, a);
  update(0, c);
  fuse();
  assert_string_equal(program(UPDATE), "update[update] update[update] update[update]");
}

/* A run has an end: kernel.c has room for so many values in a kernel. */
static void test_long_runs_are_cut(void **state)
{
  (void)state;
  one_rank();
  int x = input("4x6");
  for (int i = 0; i < 500; i++) x = pointwise(OP_tanh, x, NONE);
  move(x);
  fuse();
  kernel_forms();
  memory();
  name_values(0);
  int operations = 0;
  const struct function *f = function_of_phase(FORWARD);
  for (int i = 0; i < f->nop; i++) {
    const struct op *op = nth_op(FORWARD, i);
    operations += op->nbody;
    if (op->kind == OP_fused) assert_non_null(strstr(kernel_call(op, 0), "tanh"));
  }
  assert_int_equal(operations, 500);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_norm_is_one_kernel),
      cmocka_unit_test(test_a_softmax_is_one_kernel),
      cmocka_unit_test(test_sums_over_columns_ride_along),
      cmocka_unit_test(test_rows_end_where_others_begin),
      cmocka_unit_test(test_others_do_not_part_a_kernel),
      cmocka_unit_test(test_constants),
      cmocka_unit_test(test_updates_of_neighbours_are_one),
      cmocka_unit_test(test_updates_of_other_optimizers_stay_apart),
      cmocka_unit_test(test_long_runs_are_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
