/* The shape of an operation's output, and the messages for mismatched shapes. */
#include "lua/lua.h"
#include "check/check.h"
#include "unit.h"

struct row_case {
  enum op_kind kind;
  const char *in[3], *equation;
  unsigned dims;
  bool keepdim;
  const char *out;
};

static struct op op_of(const struct row_case *s)
{
  struct op op = {.kind = s->kind,
                  .equation = s->equation,
                  .dims = s->dims,
                  .keepdim = s->keepdim,
                  .line = 12,
                  .module = NONE};
  for (; op.nin < 3 && s->in[op.nin]; op.nin++)
    op.in[op.nin] = given(BATCH, "x", parse_shape(s->in[op.nin]), (struct layout){0});
  return op;
}

static void test_shapes(void **state)
{
  (void)state;
  static const struct row_case list[] = {
      {OP_add, {"4x6", "4x6"}, NULL, 0, false, "4x6"},
      {OP_add, {"4x6", "6"}, NULL, 0, false, "4x6"},
      {OP_add, {"6", "4x6"}, NULL, 0, false, "4x6"},
      {OP_add, {"4x1", "1x6"}, NULL, 0, false, "4x6"},
      {OP_mul, {"", "4x6"}, NULL, 0, false, "4x6"},
      {OP_mul, {"2x1x6", "4x1"}, NULL, 0, false, "2x4x6"},
      {OP_where, {"4x1", "4x6", ""}, NULL, 0, false, "4x6"},
      {OP_where, {"", "1", "4x6"}, NULL, 0, false, "4x6"},
      {OP_relu, {"7"}, NULL, 0, false, "7"},
      {OP_sum, {"2x3x4"}, NULL, 2, false, "2x4"},
      {OP_sum, {"2x3x4"}, NULL, 5, true, "1x3x1"},
      {OP_sum, {"2x3x4"}, NULL, 7, false, ""},
      {OP_amax, {"2x3x4"}, NULL, 2, true, "2x1x4"},
      {OP_argmax, {"2x3x4"}, NULL, 4, false, "2x3"},
      {OP_cumsum, {"2x3x4"}, NULL, 4, false, "2x3x4"},
      {OP_tril, {"2x3x4"}, NULL, 0, false, "2x3x4"},
      {OP_gather, {"2x9x4", "2x3x4"}, NULL, 2, false, "2x3x4"},
      {OP_scatter, {"2x9x4", "2x3x4", "2x3x4"}, NULL, 2, false, "2x9x4"},
      {OP_index_select, {"2x9x4", "5"}, NULL, 2, false, "2x5x4"},
      {OP_embedding, {"16x8", "2x3"}, NULL, 0, false, "2x3x8"},
      {OP_embedding, {"16x8", ""}, NULL, 0, false, "8"},
      {OP_rotary, {"2x3x4x8", "3x1x4", "3x1x4"}, NULL, 0, false, "2x3x4x8"},
      {OP_permute, {"2x3x4"}, "abc->cab", 0, false, "4x2x3"},
      {OP_view, {"12x5"}, "(a4b3)c5->a4(b3c5)", 0, false, "4x15"},
      {OP_view, {"6x4"}, "(a2b3!)c4!->(a2d4!)e3!", 0, false, "8x3"},
      {OP_view, {"4x6"}, "a4b6->a4 1 b6", 0, false, "4x1x6"},
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
    struct shape made[MAX_OUTPUTS], expected = parse_shape(list[i].out);
    shapes(&op, made);
    must(same_shape(made[0], expected), "%s, case %d: %s, not %s", op_row[op.kind].name, (int)i,
         shape_text(made[0]), shape_text(expected));
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
  refused(make, &(struct row_case){OP_add, {"4x6", "4x5"}, NULL, 0, false, NULL}, 1,
          "unit.lua:12: error: add", "[4, 6]", "[4, 5]", "6 and 5", "dimension 1 from the end",
          NULL);
  refused(make, &(struct row_case){OP_mul, {"3", "4x6"}, NULL, 0, false, NULL}, 1,
          "unit.lua:12:", "[3]", "[4, 6]", NULL);
  refused(make, &(struct row_case){OP_add, {"2x3x4", "3x3x4"}, NULL, 0, false, NULL}, 1,
          "dimension 3 from the end", NULL);
  refused(make, &(struct row_case){OP_add, {"4", "0"}, NULL, 0, false, NULL}, 1, "[4]", "[0]",
          NULL);
  refused(make, &(struct row_case){OP_matmul, {"2x3", "4x5"}, "mk,kn->mn", 0, false, NULL}, 1,
          "unit.lua:12: error: matmul", "[2, 3]", "[4, 5]", "3 is not 4", NULL);
  refused(make, &(struct row_case){OP_matmul, {"2x3", "3"}, "mk,kn->mn", 0, false, NULL}, 1,
          "input 1", "[3]", "does not fit the rule mk,kn->mn", NULL);
  refused(make, &(struct row_case){OP_full, {NULL}, NULL, 0, false, NULL}, -SIGABRT,
          "full has no input", NULL);
}

/* ----------------------------------------------------------------------------- the row language */

/* All operands of an operation in letters: "(gr)q,gq->q", 1 where a dimension has none. */
static char *letters_text(const struct op *op)
{
  struct letters l;
  struct buffer b = {0};
  op_letters(op, &l);
  for (int i = 0; i < op->nin + l.nout; i++) {
    const struct axis *axis = i < op->nin ? l.in[i] : l.out[i - op->nin];
    int ndim = i < op->nin ? l.ndim_in[i] : l.ndim_out[i - op->nin];
    put(&b, "%s", i == op->nin ? "->" : i ? "," : "");
    for (int d = 0; d < ndim; d++) {
      put(&b, "%s", axis[d].n == 0 ? "1" : axis[d].n > 1 ? "(" : "");
      for (int k = 0; k < axis[d].n; k++)
        put(&b, "%c%lld%s%s", l.name[axis[d].letter[k]], (long long)l.size[axis[d].letter[k]],
            l.whole[axis[d].letter[k]] ? "!" : "", l.gets_start[axis[d].letter[k]] ? "@" : "");
      put(&b, "%s", axis[d].n > 1 ? ")" : "");
    }
  }
  return b.text;
}

static void test_letters(void **state)
{
  (void)state;
  static const struct {
    struct row_case op;
    const char *letters;
  } list[] = {
      {{OP_add, {"4x6", "6"}, NULL, 0, false, NULL}, ".4.6,.6->.4.6"},
      {{OP_add, {"4x1", "1x6"}, NULL, 0, false, NULL}, ".41,1.6->.4.6"},
      {{OP_add, {"1x6", "6"}, NULL, 0, false, NULL}, "1.6,.6->1.6"},
      {{OP_sum, {"2x3x4"}, NULL, 2, false, NULL}, ".2D3.4->.2.4"},
      {{OP_sum, {"2x3x4"}, NULL, 5, true, NULL}, "D2.3D4->1.31"},
      {{OP_cumsum, {"2x3"}, NULL, 1, false, NULL}, "D2!.3->D2!.3"},
      {{OP_gather, {"2x9", "2x3"}, NULL, 2, false, NULL}, ".2D9@,.2I3->.2I3"},
      {{OP_index_select, {"9x2", "5"}, NULL, 1, false, NULL}, "D9@.2,I5->I5.2"},
      {{OP_embedding, {"16x8", "2x3"}, NULL, 0, false, NULL}, "v16@d8,.2.3->.2.3d8"},
      {{OP_tril, {"2x3x4"}, NULL, 0, false, NULL}, ".2y3@x4@->.2y3@x4@"},
      {{OP_view, {"12x5"}, "(a4b3)c5->a4(b3c5)", 0, false, NULL}, "(a4b3)c5->a4(b3c5)"},
      {{OP_attention, {"2x6x5x4", "2x3x7x4", "2x3x7x8"}, NULL, 0, false, NULL},
       "b2(g3r2)q5@d4!,b2g3k7!d4!,b2g3k7!e8!->b2(g3r2)q5@e8!,b2(g3r2)q5@"},
      {{OP_attention, {"2x6x5x4", "2x6x7x4", "2x6x7x4"}, NULL, 0, false, NULL},
       "b2g6q5@d4!,b2g6k7!d4!,b2g6k7!e4!->b2g6q5@e4!,b2g6q5@"},
  };
  new_graph(1, (int[]){1});
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    struct op op = op_of(&list[i].op);
    char *is = letters_text(&op);
    must(!strcmp(is, list[i].letters), "%s is %s, not %s", rule_of(&op), is, list[i].letters);
  }
}

static void test_merged_dimensions_must_fit(void **state)
{
  (void)state;
  refused(make,
          &(struct row_case){OP_attention, {"2x5x5x4", "2x3x7x4", "2x3x7x8"}, NULL, 0, false, NULL},
          1, "attention", "[2, 5, 5, 4]", "a dimension of 5 is not a multiple of 3", NULL);
  refused(make, &(struct row_case){OP_embedding, {"16x8x2", "3"}, NULL, 0, false, NULL}, 1,
          "embedding: input 0 has shape [16, 8, 2]", "v@d,...->...d", NULL);
  refused(make, &(struct row_case){OP_gather, {"2x9", "3x3"}, NULL, 2, false, NULL}, 1,
          "gather: shapes [2, 9] and [3, 3] do not fit", NULL);
}

static void test_rules_of_plans(void **state)
{
  (void)state;
  static const char *const good[][2] = {{"...->...", ""},
                                        {"mk,kn->mn", "a|b"},
                                        {"b(gr)q@d!,bgkd->b(gr)q:max,bq", "a|bb:min"},
                                        {"...d!,...->...:i32", "ab"},
                                        {" ab -> a 1 b ", "*"},
                                        {"a->(a8b4)", ""}};
  static const struct {
    const char *rule, *linear, *why;
  } bad[] = {{"", "", "inputs -> outputs"},
             {"ab", "", "inputs -> outputs"},
             {"->a", "", "needs an input"},
             {"ab->a+b", "", "inputs -> outputs"},
             {"a-b->a", "", "inputs -> outputs"},
             {"aba->a", "", "twice in one operand"},
             {"......->a", "", "'...' stands twice"},
             {"(ab->a", "", "inputs -> outputs"},
             {"()->a", "", "inputs -> outputs"},
             {"...D->...", "", "capital letters"},
             {"a*->a", "", "repeated"},
             {"a->a:mean", "", "inputs -> outputs"},
             {"a->a", "b", "names inputs by the letters"},
             {"a->a", "a|", "ends with"},
             {"a->a", "|a", "no input"},
             {"a->a", "a:avg", ":sum, :max and :min"},
             {"a9999999999999999->a", "", "inputs -> outputs"},
             {"a,b,c,d,e,f,g,h,i,j,k,l,m->a", "", "inputs -> outputs"},
             {"a->a,a,a,a", "", "inputs -> outputs"},
             {"abcdefghijk->a", "", "inputs -> outputs"}};
  new_graph(1, (int[]){1});
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    const char *why = rule_error(good[i][0], good[i][1]);
    must(!why, "'%s', '%s': %s", good[i][0], good[i][1], why);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *why = rule_error(bad[i].rule, bad[i].linear);
    must(why && strstr(why, bad[i].why), "'%s', '%s': %s", bad[i].rule, bad[i].linear,
         why ? why : "accepted");
  }
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
  int z = append_op((struct op){
      .kind = OP_sum, .nin = 1, .in = {y}, .dims = 3, .scalar = 1 / 6.0, .module = NONE});
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
  int update =
      append_update((struct op){.kind = OP_update, .nin = 2, .in = {x, y}, .module = NONE});
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
      cmocka_unit_test(test_shapes),         cmocka_unit_test(test_misfits),
      cmocka_unit_test(test_letters),        cmocka_unit_test(test_merged_dimensions_must_fit),
      cmocka_unit_test(test_rules_of_plans), cmocka_unit_test(test_values_and_operations),
      cmocka_unit_test(test_many_are_added), cmocka_unit_test(test_types),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
