/* A layout for every value: which values move, why, and the preference between ways of equal
   cost. */
#include "check/check.h"
#include "instances.h"

static int op_of(enum op_kind kind, int a, int b)
{
  return append_op((struct op){.kind = kind,
                               .nin = b == NONE ? 1 : 2,
                               .in = {a, b},
                               .scalar = 1,
                               .module = NONE,
                               .line = 4});
}

static int matmul(int a, int b, const char *equation)
{
  return append_op((struct op){
      .kind = OP_matmul, .nin = 2, .in = {a, b}, .equation = equation, .module = NONE, .line = 4});
}

static int input(const char *shape, const char *layout)
{
  return given(BATCH, "x", parse_shape(shape), parse_layout(layout));
}

/* As the pass plan writes down a style's request. */
static int asked(int value, const char *to, unsigned dims)
{
  return append_op((struct op){.kind = OP_redistribute,
                               .nin = 1,
                               .in = {value},
                               .module = NONE,
                               .line = 30,
                               .to = parse_layout(to),
                               .asked = dims,
                               .why = "Rowwise's output layout"});
}

static void lies(int value, const char *layout)
{
  must(graph->value[value].placed, "v%d is not placed", value);
  must(same_layout(graph->value[value].layout, parse_layout(layout)), "v%d is %s, not %s", value,
       layout_text(graph->value[value].layout), layout);
}

static int moves(void)
{
  int n = 0;
  for (int i = 0; i < graph->norder; i++) n += graph->op[graph->order[i]].kind == OP_redistribute;
  return n;
}

/* The value that operation `value`'s maker takes as its i-th input. */
static int taken(int value, int i)
{
  return graph->op[graph->value[value].op].in[i];
}

/* ------------------------------------------------------------------------------ tensor parallel */

/* Columns then rows: one sum at the end. */
static void columns_then_rows(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  int h = matmul(input("8x6", "R"), input("10x6", "S(0)"), "mk,nk->mn");
  int r = op_of(OP_relu, op_of(OP_add, h, input("10", "S(0)")), NONE);
  int y = matmul(r, input("4x10", "S(1)"), "mk,nk->mn");
  propagate();
  lies(h, "S(1)");
  lies(r, "S(1)");
  lies(y, "P");
  must(moves() == 0, "%d moves", moves());
}

/* A sum is finished before a bias is added to it; the bias is not cut into summands. */
static void bias_after_the_sum(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  int y = matmul(input("8x10", "S(1)"), input("4x10", "S(1)"), "mk,nk->mn");
  int b = input("4", "R"), z = op_of(OP_add, y, b), to = asked(z, "R", 1);
  propagate();
  lies(y, "P");
  lies(z, "R");
  lies(to, "R");
  must(taken(z, 1) == b, "the bias is moved");
  int move = taken(z, 0);
  lies(move, "R");
  const struct op *op = &graph->op[graph->value[move].op];
  must(op->kind == OP_redistribute && op->in[0] == y, "the sum is not finished first");
  must(op->line == 30 && !strcmp(op->why, "Rowwise's output layout"),
       "who is behind it: %s, line %d", op->why, op->line);
}

/* What the plan asks for counts in the choice: the sum is scattered, not gathered and cut again. */
static void as_the_plan_asks(const void *with)
{
  (void)with;
  new_graph(1, (int[]){4});
  int y = matmul(input("8x10", "S(1)"), input("4x10", "S(1)"), "mk,nk->mn");
  int z = op_of(OP_add, y, input("4", "R"));
  asked(z, "S(0)", 1);
  propagate();
  lies(z, "S(0)");
  lies(taken(z, 0), "S(0)");
}

/* A part is put among zeros where the plan asks for a sum: the operation before works on parts. */
static void a_sum_of_parts(const void *with)
{
  (void)with;
  new_graph(1, (int[]){4});
  int x = input("8x10", "S(0)"), y = op_of(OP_exp, x, NONE), to = asked(y, "P", 1);
  propagate();
  lies(y, "S(0)");
  lies(to, "P");
  must(taken(y, 0) == x && moves() == 1, "%d moves", moves());
}

static void test_tensor_parallel(void **state)
{
  (void)state;
  passes(columns_then_rows, NULL);
  passes(bias_after_the_sum, NULL);
  passes(as_the_plan_asks, NULL);
  passes(a_sum_of_parts, NULL);
}

/* ------------------------------------------------------------------------------ redistributions */

static void move_once(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  int x = input("4x6", "P");
  int a = op_of(OP_exp, x, NONE), b = op_of(OP_tanh, x, NONE), c = op_of(OP_mul, a, b);
  propagate();
  must(moves() == 1, "%d moves", moves());
  must(taken(a, 0) == taken(b, 0), "the second does not take what the first has moved");
  lies(taken(a, 0), "S(0)");
  lies(c, "S(0)");
  const struct op *op = &graph->op[graph->value[taken(a, 0)].op];
  must(!strcmp(op->why, "exp's input layout") && op->line == 4, "the reason: %s", op->why);
}

/* A redistribution that the plan has asked for is used by others too. */
static void use_what_was_asked(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  int x = input("4x6", "P"), part = asked(x, "S(0)", 1), y = op_of(OP_exp, x, NONE);
  propagate();
  must(moves() == 1 && taken(y, 0) == part, "what was asked for is not used again");
}

/* Along the dimensions that it does not speak of a request leaves things as they lie. */
static void ask_in_part(const void *with)
{
  (void)with;
  new_graph(2, (int[]){2, 3});
  int x = input("4x6", "S(0) P"), y = asked(x, "R R", 2), z = asked(y, "S(1) S(1)", 1);
  propagate();
  lies(y, "S(0) R");
  lies(z, "S(1) R");
}

static void finish_the_loss(const void *with)
{
  (void)with;
  new_graph(2, (int[]){2, 3});
  int s = append_op((struct op){.kind = OP_sum,
                                .nin = 1,
                                .in = {input("4x6", "S(0) S(1)")},
                                .dims = 3,
                                .scalar = 1,
                                .module = NONE});
  graph->loss = s;
  propagate();
  lies(s, "P P");
  must(graph->loss != s && graph->value[graph->loss].role == LOSS,
       "the loss is left a pending sum");
  lies(graph->loss, "R R");
}

static void finish_an_output(const void *with)
{
  (void)with;
  new_graph(2, (int[]){2, 3});
  int y = matmul(input("8x6", "S(0) S(1)"), input("6x4", "R S(0)"), "mk,kn->mn");
  graph->value[y].is_output = true;
  graph->value[y].name = "result";
  propagate();
  lies(y, "S(0) P");
  for (int i = 0; i < graph->nvalue; i++) {
    if (!graph->value[i].is_output) continue;
    lies(i, "S(0) R");
    must(!strcmp(graph->value[i].name, "result"), "it is called %s", graph->value[i].name);
  }
  must(!graph->value[y].is_output, "the pending sum is an output");
}

static void test_redistributions(void **state)
{
  (void)state;
  passes(move_once, NULL);
  passes(use_what_was_asked, NULL);
  passes(ask_in_part, NULL);
  passes(finish_the_loss, NULL);
  passes(finish_an_output, NULL);
}

/* ----------------------------------------------------------------------------------- the choice */

/* Of ways that cost the same the one that moves fewer inputs, then the first of the rule. */
static void ties(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  int a = op_of(OP_add, input("4x6", "R"), input("4x6", "R"));
  int b = op_of(OP_mul, input("4x6", "R"), input("4x6", "S(1)"));
  int c = op_of(OP_neg, input("4x6", "P"), NONE);
  int d = op_of(OP_add, input("4x6", "P"), input("4x6", "P"));
  propagate();
  lies(a, "R");
  lies(b, "S(1)");
  lies(c, "P");
  lies(d, "P");
  must(moves() == 1, "%d moves", moves());
}

/* The bytes that one way moves; negative if its sums cannot be had. */
static double price(const struct op *op, const struct choice *list, const int *pick,
                    const int *given_as)
{
  double bytes = 0;
  for (int i = 0; i < op->nin; i++) {
    const struct value *v = &graph->value[given_as[i]];
    struct layout to = {0};
    for (int d = 0; d < graph->mesh.ndim; d++) {
      to.on[d] = list[pick[d]].in[i];
      bool same = same_placement(to.on[d], v->layout.on[d]);
      if (to.on[d].kind == PARTIAL && !same && v->layout.on[d].kind != REPLICATE) return -1;
    }
    bytes += move_cost(cost_model_of_graph(), v->shape, v->type, v->layout, to);
  }
  return bytes;
}

/* Whatever the inputs' layouts: what is chosen is legal, and nothing legal is cheaper. */
static void choose(const void *with)
{
  unit_seed = *(const uint64_t *)with;
  static const char *const mesh[] = {"2", "3", "2x2", "2x3"};
  static const int64_t sizes[][4] = {{12, 12, 12, 12}, {5, 7, 9, 3}, {2, 1, 3, 2}};
  int size[MAX_MESH], given_as[MAX_INPUTS];
  new_graph(parse_mesh(mesh[draw_below(4)], size), size);
  const struct instance *instance;
  do /* what rows by expert may lie in depends on where they were counted: moe.sh */
    instance = &instances[draw_below(sizeof instances / sizeof *instances)];
  while (strchr(op_row[instance->kind].rule, '+'));
  struct op op = *instantiate(instance, sizes[draw_below(3)]);
  for (int i = 0; i < op.nin; i++) {
    struct placement list[MAX_DIMS + 2];
    int n = every_placement(graph->value[op.in[i]].shape.ndim, true, list);
    struct layout *lies = &graph->value[op.in[i]].layout;
    *lies = nth_layout(list, n, draw_below(power(n, graph->mesh.ndim)));
    lies->on[0].cut_order = lies->on[0].kind == SHARD && draw_below(2);
    given_as[i] = op.in[i];
    /* A cache lies as it is written; here it is any value, which may be moved. */
    if (graph->value[op.in[i]].role == CACHE) graph->value[op.in[i]].role = BATCH;
  }
  propagate();
  const struct op *placed = &graph->op[graph->value[op.out].op];
  struct letters l;
  struct choice list[MAX_CHOICES];
  op_letters(&op, &l);
  for (int i = 0; i < op.nin; i++) op.in[i] = given_as[i];
  int n = choices(&op, &l, list), ndim = graph->mesh.ndim, chosen[MAX_MESH] = {0};
  for (int d = 0; d < ndim; d++) {
    chosen[d] = NONE;
    for (int c = n - 1; c >= 0; c--) {
      bool same = true;
      for (int k = 0; k < op.nout; k++)
        same &= same_placement(list[c].out[k], graph->value[op.out + k].layout.on[d]);
      for (int i = 0; i < op.nin; i++)
        same &= same_placement(list[c].in[i], graph->value[placed->in[i]].layout.on[d]);
      if (same) chosen[d] = c;
    }
    must(chosen[d] != NONE, "%s runs on its inputs as no rule says", op_row[op.kind].name);
  }
  must(fits_together(&l, op.nin, list, chosen), "%s does not fit together", op_row[op.kind].name);
  double paid = price(&op, list, chosen, given_as);
  must(paid >= 0, "%s asks for summands that cannot be had", op_row[op.kind].name);
  for (int which = 0; which < power(n, ndim); which++) {
    int pick[MAX_MESH] = {0};
    for (int d = 0, rest = which; d < ndim; d++, rest /= n) pick[d] = rest % n;
    if (!fits_together(&l, op.nin, list, pick)) continue;
    double other = price(&op, list, pick, given_as);
    must(other < 0 || paid <= other, "%s pays %g where %g would do", op_row[op.kind].name, paid,
         other);
  }
}

static void test_the_cheapest_way_wins(void **state)
{
  (void)state;
  passes(ties, NULL);
  int refusals = 0;
  for (uint64_t seed = 1; seed <= 800; seed++) {
    struct ending e = run_child(choose, &seed);
    bool refused = e.status == 1 && strstr(e.said, "cannot be sharded over");
    must(e.status == 0 || refused, "ended with %d: %s", e.status, e.said);
    refusals += refused;
  }
  print_message("%d of 800 refused: nothing but replication is legal\n", refusals);
  assert_in_range(refusals, 1, 100);
}

/* ------------------------------------------------------------------------ the order of the cuts */

/* Operations run on what is cut over the second dimension of the mesh first; so do views, where the
   parts allow it. */
static void stay_in_cut_order(const void *with)
{
  (void)with;
  new_graph(2, (int[]){2, 3});
  int x = input("12x4x6", "S(0)[1] S(0)[0]"), w = input("8x6", "R R");
  int h = matmul(x, w, "abk,nk->abn");
  int r = op_of(OP_relu, op_of(OP_add, h, input("8", "R R")), NONE);
  int flat = append_op_shaped((struct op){.kind = OP_view,
                                          .nin = 1,
                                          .in = {r},
                                          .equation = "(a12)(b4)c->(a12b4)c",
                                          .module = NONE,
                                          .line = 4},
                              parse_shape("48x8"));
  int product = matmul(flat, flat, "km,kn->mn");
  graph->value[r].is_output = true;
  propagate();
  lies(h, "S(0)[1] S(0)[0]");
  lies(r, "S(0)[1] S(0)[0]");
  lies(flat, "S(0)[1] S(0)[0]");
  lies(product, "P P");
  must(moves() == 1, "%d moves", moves()); /* of the output, which finish() leaves where it is */
  int out = graph->op[graph->order[graph->norder - 1]].out;
  must(graph->value[out].is_output, "the output is not finished");
  lies(out, "S(0)[1] S(0)[0]");
}

/* Of two that are cut in different orders the smaller one moves. */
static void meet_in_cut_order(const void *with)
{
  (void)with;
  new_graph(2, (int[]){2, 2});
  int x = input("8x6", "S(0)[1] S(0)[0]"), b = input("8x1", "S(0) S(0)");
  int y = op_of(OP_mul, x, b),
      z = op_of(OP_mul, input("8x1", "S(0)[1] S(0)"), input("8x6", "S(0) S(0)"));
  propagate();
  lies(y, "S(0)[1] S(0)[0]");
  must(taken(y, 0) == x && taken(y, 1) != b, "the larger one is moved");
  lies(taken(y, 1), "S(0)[1] S(0)[0]");
  lies(z, "S(0) S(0)");
  lies(taken(z, 0), "S(0) S(0)");
  must(moves() == 2, "%d moves", moves());
}

/* However a plan states cut orders, layouts that mean the same are the same. */
static void name_cut_orders(const void *with)
{
  (void)with;
  new_graph(3, (int[]){2, 2, 2});
  int x = input("16x8", "S(0)[3] S(1)[2] S(0)[1]"), a = asked(x, "S(0)[7] S(1)[1] S(0)[5]", 7);
  int y = op_of(OP_add, a, input("16x8", "S(0)[1] S(1) S(0)[0]"));
  int b = asked(y, "S(0) R R", 4), c = asked(b, "R S(0)[2] R", 2), d = asked(c, "R R S(0)", 4);
  propagate();
  must(moves() == 4, "%d moves", moves());
  lies(y, "S(0)[1] S(1) S(0)[0]");
  must(graph->value[x].layout.on[0].cut_order == 1 && graph->value[a].layout.on[0].cut_order == 1 &&
           graph->value[y].layout.on[1].cut_order == 0,
       "cut orders are as the plan gave them");
  lies(b, "S(0) S(1) R");
  must(graph->value[b].layout.on[0].cut_order == 0, "one cut has an order");
  lies(c, "S(0) S(0) R");
  lies(d, "S(0) S(0) S(0)");
}

static void test_order_of_cuts(void **state)
{
  (void)state;
  passes(stay_in_cut_order, NULL);
  passes(meet_in_cut_order, NULL);
  passes(name_cut_orders, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tensor_parallel),
      cmocka_unit_test(test_redistributions),
      cmocka_unit_test(test_order_of_cuts),
      cmocka_unit_test(test_the_cheapest_way_wins),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
