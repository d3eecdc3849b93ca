/* The shape of what an operation makes, and what is said where shapes do not fit. */
#include "unit.h"

struct shapes {
  enum op_kind kind;
  const char *in[3], *equation;
  unsigned dims;
  bool keep;
  const char *out;
};

static struct op op_of(const struct shapes *s)
{
  struct op op = {.kind = s->kind,
                  .equation = s->equation,
                  .dims = s->dims,
                  .keep = s->keep,
                  .line = 12,
                  .module = NONE};
  for (; op.nin < 3 && s->in[op.nin]; op.nin++)
    op.in[op.nin] = given(BATCH, "x", parse_shape(s->in[op.nin]), (struct layout){0});
  return op;
}

static void test_shapes(void **state)
{
  (void)state;
  static const struct shapes list[] = {
      {OP_add, {"4x6", "4x6"}, NULL, 0, false, "4x6"},
      {OP_add, {"4x6", "6"}, NULL, 0, false, "4x6"},
      {OP_add, {"6", "4x6"}, NULL, 0, false, "4x6"},
      {OP_add, {"4x1", "1x6"}, NULL, 0, false, "4x6"},
      {OP_mul, {"", "4x6"}, NULL, 0, false, "4x6"},
      {OP_mul, {"2x1x6", "4x1"}, NULL, 0, false, "2x4x6"},
      {OP_add, {"0x3", "1x3"}, NULL, 0, false, "0x3"},
      {OP_variance_back, {"4x1", "4x6", "4x1"}, NULL, 0, false, "4x6"},
      {OP_variance_back, {"", "1", "4x6"}, NULL, 0, false, "4x6"},
      {OP_relu, {"7"}, NULL, 0, false, "7"},
      {OP_sum, {"2x3x4"}, NULL, 2, false, "2x4"},
      {OP_sum, {"2x3x4"}, NULL, 5, true, "1x3x1"},
      {OP_sum, {"2x3x4"}, NULL, 7, false, ""},
      {OP_variance, {"2x3", "2x1"}, NULL, 2, true, "2x1"},
      {OP_matmul, {"2x3", "3x4"}, "mk,kn->mn", 0, false, "2x4"},
      {OP_matmul, {"2x3", "4x3"}, "mk,nk->nm", 0, false, "4x2"},
      {OP_matmul, {"5x2x3", "5x3x4"}, "bmk,bkn->bmn", 0, false, "5x2x4"},
      {OP_matmul, {"5x2x3", "4x3"}, "abk,nk->abn", 0, false, "5x2x4"},
      {OP_slice, {"2x3"}, NULL, 0, false, "2x3"},
      {OP_redistribute, {"2x3"}, NULL, 0, false, "2x3"},
  };
  new_graph(1, (int[]){1});
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    struct op op = op_of(&list[i]);
    struct shape s = shape(&op), wanted = parse_shape(list[i].out);
    must(same_shape(s, wanted), "%s, case %d: %s, not %s", op_row[op.kind].name, (int)i,
         shape_text(s), shape_text(wanted));
  }
}

static void make(const void *with)
{
  new_graph(1, (int[]){1});
  struct op op = op_of(with);
  append_op(op);
}

static void test_misfits(void **state)
{
  (void)state;
  refused(make, &(struct shapes){OP_add, {"4x6", "4x5"}, NULL, 0, false, NULL}, 1,
          "unit.lua:12: error: add", "[4, 6]", "[4, 5]", "6 and 5", "dimension 1 from the end",
          NULL);
  refused(make, &(struct shapes){OP_mul, {"3", "4x6"}, NULL, 0, false, NULL}, 1,
          "unit.lua:12:", "[3]", "[4, 6]", NULL);
  refused(make, &(struct shapes){OP_add, {"2x3x4", "3x3x4"}, NULL, 0, false, NULL}, 1,
          "dimension 3 from the end", NULL);
  refused(make, &(struct shapes){OP_add, {"4", "0"}, NULL, 0, false, NULL}, 1, "[4]", "[0]", NULL);
  refused(make, &(struct shapes){OP_matmul, {"2x3", "4x5"}, "mk,kn->mn", 0, false, NULL}, 1,
          "unit.lua:12: error: matmul", "[2, 3]", "[4, 5]", "3 is not 4", NULL);
  refused(make, &(struct shapes){OP_matmul, {"2x3", "3"}, "mk,kn->mn", 0, false, NULL}, 1,
          "input 1", "[3]", "2 dimensions", NULL);
  refused(make, &(struct shapes){OP_full, {NULL}, NULL, 0, false, NULL}, -SIGABRT,
          "full has no input", NULL);
}

/* --------------------------------------------------------------------- what is added to a graph */

static void test_values_and_operations(void **state)
{
  (void)state;
  new_graph(1, (int[]){1});
  int root = add_module("", "Model", NONE, 1),
      inner = add_module("0", "Layer", add_module("layers", "List", root, 2), 3);
  assert_string_equal(graph->module[inner].path, "layers.0");
  assert_string_equal(graph->module[inner].class_name, "Layer");
  int x = given(BATCH, "x", parse_shape("2x3"), (struct layout){0});
  graph->value[x].type = BF16;
  int y = append_op((struct op){.kind = OP_exp, .nin = 1, .in = {x}, .module = inner, .line = 8});
  int z = append_op(
      (struct op){.kind = OP_sum, .nin = 1, .in = {y}, .dims = 3, .scalar = 0.5, .module = NONE});
  assert_int_equal(graph->value[y].type, BF16);
  assert_int_equal(graph->value[y].line, 8);
  assert_string_equal(value_name(y), "layers.0");
  assert_string_equal(value_name(z), "mean");
  int all = append_op(
      (struct op){.kind = OP_sum, .nin = 1, .in = {y}, .dims = 3, .scalar = 1, .module = NONE});
  assert_string_equal(value_name(all), "sum");
  assert_int_equal(graph->norder, 3);
  int made = make_op((struct op){.kind = OP_neg, .nin = 1, .in = {z}, .module = NONE});
  assert_int_equal(graph->norder, 3);
  assert_string_equal(value_name(graph->op[made].out), "neg");
  assert_int_equal(graph->value[graph->op[made].out].op, made);
  int full = append_op_shaped((struct op){.kind = OP_full, .module = NONE}, parse_shape("5"));
  assert_true(same_shape(graph->value[full].shape, parse_shape("5")));
  int update = append_update((struct op){.kind = OP_sgd, .nin = 2, .in = {x, y}, .module = NONE});
  assert_int_equal(graph->op[update].out, NONE);
  assert_int_equal(graph->order[graph->norder - 1], update);
}

static void test_many_are_added(void **state)
{
  (void)state;
  new_graph(1, (int[]){1});
  int x = given(BATCH, "x", parse_shape("2"), (struct layout){0});
  for (int i = 0; i < 3000; i++)
    x = append_op((struct op){.kind = OP_neg, .nin = 1, .in = {x}, .module = NONE});
  assert_int_equal(graph->norder, 3000);
  for (int i = 0; i < 3000; i++) {
    assert_int_equal(graph->order[i], i);
    assert_int_equal(graph->op[i].in[0], i);
    assert_int_equal(graph->op[i].out, i + 1);
    assert_int_equal(graph->value[i + 1].op, i);
  }
}

static void test_types(void **state)
{
  (void)state;
  assert_int_equal(type_bytes(F32), 4);
  assert_int_equal(type_bytes(BF16), 2);
  assert_int_equal(type_bytes(I32), 4);
  assert_int_equal(type_bytes(I64), 8);
  assert_string_equal(type_name(BF16), "bf16");
  assert_int_equal(elements(parse_shape("")), 1);
  assert_int_equal(elements(parse_shape("3x0x2")), 0);
  assert_int_equal(elements(parse_shape("65536x65536")), INT64_C(4294967296));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_misfits),
      cmocka_unit_test(test_values_and_operations),
      cmocka_unit_test(test_many_are_added),
      cmocka_unit_test(test_types),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
