/* Soundness by force: every way in which the rule engine says that an operation may run is run, on
   small meshes, with sizes that cut evenly, unevenly and not at all: the inputs are cut, each rank
   does its part, and what the ranks make must be what the whole operation makes. And completeness:
   the ways are those of PyTorch's einop_rule and pointwise_rule (TPGEN_GOLDEN, or tests/golden).

   A row of the table of operators without a reference (interpreter.h) or an instance here fails. */
#include "instances.h"

/* --------------------------------------------------------------------------- every row is tried */

static void test_every_row_has_instance_and_reference(void **state)
{
  (void)state;
  int rows = 0;
  for (int kind = 0; kind < OP_COUNT; kind++) {
    bool has_rule = strcmp(op_row[kind].dimensions, "-");
    rows += has_rule;
    bool found = false;
    for (size_t i = 0; i < sizeof instances / sizeof *instances; i++)
      found |= (int)instances[i].kind == kind;
    must(found == has_rule, "%s %s", op_row[kind].name,
         has_rule ? "has no instance here" : "has no rule");
    must(has_reference((enum op_kind)kind) == has_rule, "%s has no reference", op_row[kind].name);
  }
  print_message("%d rows\n", rows);
}

/* ------------------------------------------------------------------------------------ soundness */

/* One number for each dimension of the mesh: which of the choices is taken there. */
static const char *unsound(const struct op *op, const struct choice *list, const int *pick)
{
  struct layout in[MAX_INPUTS] = {0}, out = {0};
  struct array whole[MAX_INPUTS], *part[MAX_INPUTS];
  int world = world_size();
  for (int d = 0; d < graph->mesh.ndim; d++) {
    for (int i = 0; i < op->nin; i++) in[i].on[d] = list[pick[d]].in[i];
    out.on[d] = list[pick[d]].out;
  }
  for (int i = 0; i < op->nin; i++) {
    whole[i] = random_array(graph->value[op->in[i]].shape);
    part[i] = scatter(whole[i], in[i]);
  }
  struct shape shape = graph->value[op->out].shape;
  struct array wanted = evaluate(op, whole, shape), made[64];
  for (int r = 0; r < world; r++) {
    struct array here[MAX_INPUTS];
    int coordinate[MAX_MESH];
    coordinate_of(r, coordinate);
    for (int i = 0; i < op->nin; i++) here[i] = part[i][r];
    made[r] = evaluate(op, here, local_part(&graph->mesh, shape, out, coordinate).shape);
  }
  const char *why = not_the_whole(made, wanted, out, 1e-9);
  if (!why) return NULL;
  struct buffer b = {0};
  put(&b, "%s %s", op_row[op->kind].name, op->equation ? op->equation : "");
  for (int i = 0; i < op->nin; i++)
    put(&b, " %s %s", shape_text(whole[i].shape), layout_text(in[i]));
  put(&b, " -> %s: %s", layout_text(out), why);
  return b.text;
}

static int try_every_choice(const struct op *op)
{
  struct choice list[MAX_CHOICES];
  int n = choices(op, list), ndim = graph->mesh.ndim, tried = power(n, ndim);
  must(n >= 1 && n <= MAX_CHOICES, "%d choices for %s", n, op_row[op->kind].name);
  for (int which = 0; which < tried; which++) {
    int pick[MAX_MESH];
    for (int d = 0, rest = which; d < ndim; d++, rest /= n) pick[d] = rest % n;
    forget();
    const char *why = unsound(op, list, pick);
    must(!why, "%s", why);
  }
  return tried;
}

static void test_every_choice_is_sound(void **state)
{
  (void)state;
  static const char *const mesh[] = {"2", "3", "4", "2x2", "2x3"};
  static const int64_t sizes[][4] = {
      {12, 12, 12, 12}, {5, 7, 9, 3}, {2, 1, 3, 2}, {1, 2, 1, 3}, {6, 3, 4, 5}};
  int tried = 0;
  for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++) {
    int size[MAX_MESH];
    new_graph(parse_mesh(mesh[m], size), size);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (size_t i = 0; i < sizeof instances / sizeof *instances; i++) {
        const struct instance *instance = &instances[i];
        bool large = instance->kind == OP_matmul &&
                     (strlen(instance->in[0]) > 2 || strlen(instance->in[1]) > 2);
        if (large && s == 0) continue;
        tried += try_every_choice(instantiate(instance, sizes[s]));
      }
  }
  print_message("%d combinations\n", tried);
  assert_true(tried > 10000);
}

/* --------------------------------------------------------------------------------- completeness */

static char *choices_text(const struct op *op)
{
  struct choice list[MAX_CHOICES];
  struct buffer b = {0};
  for (int k = 0, n = choices(op, list); k < n; k++) {
    put(&b, "%s", k ? "; " : "");
    for (int i = 0; i < op->nin; i++) put(&b, "%s%s", i ? "," : "", placement_text(list[k].in[i]));
    put(&b, ">%s", placement_text(list[k].out));
  }
  return b.text;
}

static void lists(struct instance instance, const char *wanted)
{
  static const int64_t sizes[] = {4, 6, 8, 10};
  assert_string_equal(choices_text(instantiate(&instance, sizes)), wanted);
}

/* Each row's ways, in their order: ties are broken by it. */
static void test_ways_of_rows(void **state)
{
  (void)state;
  new_graph(1, (int[]){2});
  lists((struct instance){OP_matmul, {"ab", "bc"}, "mk,kn->mn", 0, false, NULL},
        "R,R>R; S(0),R>S(0); S(1),S(0)>P(sum); R,S(1)>S(1); P(sum),R>P(sum); R,P(sum)>P(sum)");
  lists((struct instance){OP_matmul, {"dab", "cb"}, "bmk,nk->bmn", 0, false, NULL},
        "R,R>R; S(0),R>S(0); S(1),R>S(1); S(2),S(1)>P(sum); R,S(0)>S(2); P(sum),R>P(sum); "
        "R,P(sum)>P(sum)");
  lists((struct instance){OP_add, {"ab", "b"}, NULL, 0, false, NULL},
        "R,R>R; S(0),R>S(0); S(1),S(0)>S(1); P(sum),P(sum)>P(sum)");
  lists((struct instance){OP_mul, {"a1", "ab"}, NULL, 0, false, NULL},
        "R,R>R; S(0),S(0)>S(0); R,S(1)>S(1); P(sum),R>P(sum); R,P(sum)>P(sum)");
  lists((struct instance){OP_div, {"ab", ""}, NULL, 0, false, NULL},
        "R,R>R; S(0),R>S(0); S(1),R>S(1); P(sum),R>P(sum)");
  lists((struct instance){OP_relu, {"1b"}, NULL, 0, false, NULL}, "R>R; S(1)>S(1)");
  lists((struct instance){OP_sum, {"ab"}, NULL, 1, false, NULL},
        "R>R; S(0)>P(sum); S(1)>S(0); P(sum)>P(sum)");
  lists((struct instance){OP_sum, {"ab"}, NULL, 1, true, NULL},
        "R>R; S(0)>P(sum); S(1)>S(1); P(sum)>P(sum)");
  lists((struct instance){OP_variance, {"ab", "a1"}, NULL, 2, true, NULL},
        "R,R>R; S(0),S(0)>S(0); S(1),R>P(sum)");
  lists((struct instance){OP_expand, {"b"}, NULL, 1, false, "ab"}, "R>R; S(0)>S(1); P(sum)>P(sum)");
  lists((struct instance){OP_full, {NULL}, NULL, 0, false, "ab1"}, ">R; >S(0); >S(1)");
}

enum { RULE, LINEAR, MESH, SHAPES, GIVEN, VERDICT, RESULT, FIELDS };

/* The operation of a golden row over its shapes, or NULL where no row of ours says the same. */
static const struct op *golden_op(char **field, bool einop)
{
  struct op op = {.module = NONE, .line = 1};
  char *equation = field[RULE], *shapes = field[SHAPES];
  if (!einop && strcmp(field[RULE], "out-of-place")) return NULL;
  if (strstr(shapes, "scalar") || (einop && strchr(equation, '1'))) return NULL;
  for (char *c = shapes; c; op.nin++) {
    char *next = strstr(c, " | ");
    if (next) *next = 0;
    op.in[op.nin] = given(BATCH, "x", parse_shape(c), (struct layout){0});
    c = next ? next + 3 : NULL;
  }
  bool linear = *field[LINEAR] == '1';
  if (einop) {
    op.kind = OP_matmul;
    op.equation = equation;
  } else if (op.nin == 1) {
    op.kind = linear ? OP_neg : OP_relu;
  } else {
    op.kind = linear ? OP_add : OP_relu_back;
  }
  int out = append_op(op);
  return &graph->op[graph->value[out].op];
}

/* Sums may go through our rows otherwise than through PyTorch's (one input of a product, not both),
   and a dimension of size 1 is never sharded by the rules here: such rows say nothing about ours.
 */
static bool comparable(const struct op *op, char **field, bool einop)
{
  if (strchr(field[GIVEN], 'P') && (einop || op->kind == OP_relu_back)) return false;
  for (int i = 0; i < op->nin; i++)
    for (int d = 0; d < graph->value[op->in[i]].shape.ndim; d++)
      if (graph->value[op->in[i]].shape.size[d] == 1) return false;
  return true;
}

/* What our choices make of the inputs as given: the output's layout; false if they take them not.
 */
static bool takes(const struct op *op, const struct layout *in, struct layout *out)
{
  struct choice list[MAX_CHOICES];
  int n = choices(op, list);
  for (int d = 0; d < graph->mesh.ndim; d++) {
    int found = NONE;
    for (int c = 0; c < n && found == NONE; c++) {
      bool same = true;
      for (int i = 0; i < op->nin; i++) same &= same_placement(list[c].in[i], in[i].on[d]);
      if (same) found = c;
    }
    if (found == NONE) return false;
    out->on[d] = list[found].out;
  }
  return true;
}

static void check_golden_rule(const char *name, bool einop)
{
  char line[1024], shown[1024], *field[FIELDS];
  int rows = 0, wrong = 0;
  FILE *f = open_golden(name);
  while (golden_line(f, line, sizeof line, field, FIELDS) == FIELDS) {
    int size[MAX_MESH];
    new_graph(parse_mesh(field[MESH], size), size);
    snprintf(shown, sizeof shown, "%s %s", field[RULE], field[SHAPES]);
    const struct op *op = golden_op(field, einop);
    if (!op || !comparable(op, field, einop)) continue;
    rows++;
    struct layout in[MAX_INPUTS], out = {0};
    char *c = copy_text(field[GIVEN]);
    for (int i = 0; i < op->nin; i++, c = strstr(c, " | ") ? strstr(c, " | ") + 3 : c) {
      char *mine = copy_text(c);
      mine[strcspn(mine, "|")] = 0;
      in[i] = parse_layout(mine);
    }
    bool taken = takes(op, in, &out), accepted = !strcmp(field[VERDICT], "out");
    if (taken == accepted && (!taken || same_layout(out, parse_layout(field[RESULT])))) continue;
    wrong++;
    print_error("%s: %s, mesh %s: %s -> %s, not %s %s\n", name, shown, field[MESH], field[GIVEN],
                taken ? layout_text(out) : "not taken", field[VERDICT], field[RESULT]);
  }
  fclose(f);
  print_message("%d rows\n", rows);
  assert_true(rows > 20);
  assert_int_equal(wrong, 0);
}

static void test_golden_einop_rule(void **state)
{
  (void)state;
  check_golden_rule("einop_rule.tsv", true);
}

static void test_golden_pointwise_rule(void **state)
{
  (void)state;
  check_golden_rule("pointwise_rule.tsv", false);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_row_has_instance_and_reference),
      cmocka_unit_test(test_every_choice_is_sound),
      cmocka_unit_test(test_ways_of_rows),
      cmocka_unit_test(test_golden_einop_rule),
      cmocka_unit_test(test_golden_pointwise_rule),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
