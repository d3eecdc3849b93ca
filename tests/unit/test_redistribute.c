/* From one layout to another: the steps, what they cost, and the operations they become. The steps
   are those of PyTorch: TPGEN_GOLDEN, or tests/golden, redistribute_plans.tsv. Then every pair of
   layouts on small meshes, with shapes that cut evenly, unevenly and not at all, is run on
   simulated ranks. */
#include "interpreter.h"

/* ---------------------------------------------------------------------------------- the planner */

enum { MESH, WHOLE, FROM, TO, STEPS, SHAPES, FIELDS };

static char *steps_text(const struct move *moves, int n)
{
  struct buffer b = {0};
  for (int i = 0; i < n; i++) {
    put(&b, "%s%d:%s->", i ? " ; " : "", moves[i].mesh_dim, placement_text(moves[i].from));
    put(&b, "%s", placement_text(moves[i].to));
  }
  if (!n) put(&b, "none");
  return b.text;
}

/* The table writes P for a pending sum. */
static char *without_sum(char *s)
{
  for (char *at; (at = strstr(s, "(sum)"));) memmove(at, at + 5, strlen(at + 5) + 1);
  return s;
}

/* The shape that the first rank has of the source, as far as the dimensions before a step's cut it.
 */
static char *shapes_text(const struct move *moves, int n, struct shape whole, struct layout from)
{
  static const int origin[MAX_MESH];
  struct buffer b = {0};
  for (int i = 0; i < n; i++) {
    struct layout before = {0};
    for (int d = 0; d < moves[i].mesh_dim; d++) before.on[d] = from.on[d];
    struct shape s = local_part(&graph->mesh, whole, before, origin).shape;
    put(&b, "%s", i ? " ; " : "");
    for (int d = 0; d < s.ndim; d++) put(&b, "%s%" PRId64, d ? "x" : "", s.size[d]);
  }
  if (!n) put(&b, "none");
  return b.text;
}

static void test_golden_steps(void **state)
{
  (void)state;
  char line[1024], *field[FIELDS];
  int rows = 0, wrong = 0;
  FILE *f = open_golden("redistribute_plans.tsv");
  for (; golden_line(f, line, sizeof line, field, FIELDS) == FIELDS; rows++) {
    int size[MAX_MESH];
    new_graph(parse_mesh(field[MESH], size), size);
    struct layout from = parse_layout(field[FROM]), to = parse_layout(field[TO]);
    struct move moves[MAX_MOVES];
    int n = plan_moves(from, to, moves);
    char *steps = without_sum(steps_text(moves, n));
    char *shapes = shapes_text(moves, n, parse_shape(field[WHOLE]), from);
    if (!strcmp(steps, field[STEPS]) && !strcmp(shapes, field[SHAPES])) continue;
    wrong++;
    print_error("mesh %s, %s: %s -> %s:\n  %s, %s, not\n  %s, %s\n", field[MESH], field[WHOLE],
                field[FROM], field[TO], steps, shapes, field[STEPS], field[SHAPES]);
  }
  fclose(f);
  print_message("%d plans\n", rows);
  assert_true(rows > 100);
  assert_int_equal(wrong, 0);
}

/* Every step starts where the one before it has left that dimension, and the last leaves the
 * target. */
static void test_steps_lead_from_source_to_target(void **state)
{
  (void)state;
  struct placement list[4] = {R, S(0), S(1), P};
  new_graph(3, (int[]){2, 3, 2});
  for (int i = 0; i < 64; i++)
    for (int k = 0; k < 64; k++) {
      struct layout now = nth_layout(list, 4, i), to = nth_layout(list, 4, k);
      struct move moves[MAX_MOVES];
      int n = plan_moves(now, to, moves);
      assert_true(n <= 2 * graph->mesh.ndim);
      if (i == k) assert_int_equal(n, 0);
      for (int s = 0; s < n; s++) {
        assert_true(same_placement(now.on[moves[s].mesh_dim], moves[s].from));
        assert_false(same_placement(moves[s].from, moves[s].to));
        now.on[moves[s].mesh_dim] = moves[s].to;
      }
      assert_true(same_layout(now, to));
    }
}

/* ------------------------------------------------------------------------------------- the cost */

static void costs(const char *shape, enum type type, const char *from, const char *to, double bytes)
{
  double cost = move_cost(parse_shape(shape), type, parse_layout(from), parse_layout(to));
  must(fabs(cost - bytes) < 1e-9 * (1 + bytes), "%s: %s -> %s costs %g, not %g", shape, from, to,
       cost, bytes);
}

static void test_costs(void **state)
{
  (void)state;
  new_graph(1, (int[]){4});
  costs("8x4", F32, "R", "R", 0);
  costs("8x4", F32, "R", "S(0)", 0);
  costs("8x4", F32, "R", "P", 0);
  costs("8x4", F32, "S(0)", "R", 32 * 3);
  costs("8x4", BF16, "S(0)", "R", 16 * 3);
  costs("8x4", I64, "S(1)", "S(0)", 64 * 3 / 4.0);
  costs("8x4", F32, "P", "R", 2 * 128 * 3 / 4.0);
  costs("8x4", F32, "P", "S(1)", 128 * 3 / 4.0);
  costs("5x4", F32, "S(0)", "R", 2 * 4 * 4 * 3);
  new_graph(2, (int[]){2, 4});
  costs("8x8", F32, "S(0) S(1)", "R R", 8 * 4 * 3 + 8 * 4 * 4 * 1);
  costs("8x8", F32, "P S(1)", "S(0) S(1)", 8 * 2 * 4 / 2.0);
  costs("8x8", F32, "S(0) S(0)", "R S(0)", 1 * 8 * 4 * 3 + 4 * 8 * 4 * 1);
}

/* The tables of bytes: PyTorch's greedy planner's for a (2,4) mesh and a 16384x8192 tensor of
 * float32. */
static void test_golden_bytes(void **state)
{
  (void)state;
  char line[1024], *field[5];
  int rows = 0;
  FILE *f = open_golden("redistribute_bytes.tsv");
  for (; golden_line(f, line, sizeof line, field, 5) == 5; rows++) {
    int size[MAX_MESH];
    new_graph(parse_mesh(field[0], size), size);
    costs("16384x8192", F32, field[1], field[2], strtod(field[3], NULL));
    struct move moves[MAX_MOVES];
    int n = plan_moves(parse_layout(field[1]), parse_layout(field[2]), moves), collectives = 0;
    for (int i = 0; i < n; i++) collectives += moves[i].from.kind != REPLICATE;
    must(collectives == atoi(field[4]), "%s -> %s: %d collectives, not %s", field[1], field[2],
         collectives, field[4]);
  }
  fclose(f);
  print_message("%d costs\n", rows);
  assert_true(rows > 40);
}

/* ------------------------------------------------------------------------- every pair, by force */

struct world {
  const char *mesh, *shape;
};

/* An operation that writes something for good, and reads the value to do so. */
static void use(int value)
{
  append_update(
      (struct op){.kind = OP_sgd, .nin = 1, .in = {value}, .module = NONE, .phase = UPDATE});
}

/* A redistribution of a value of its own, used in the end, for every pair of layouts; gives how
 * many. */
static int ask_for_pairs(struct shape shape, const struct placement *list, int nfrom, int nto)
{
  int n = 0, all_from = power(nfrom, graph->mesh.ndim), all_to = power(nto, graph->mesh.ndim);
  for (int i = 0; i < all_from; i++)
    for (int k = 0; k < all_to; k++, n++) {
      int v = given(BATCH, "x", shape, nth_layout(list, nfrom, i));
      struct op op = {.kind = OP_redistribute,
                      .nin = 1,
                      .in = {v},
                      .module = NONE,
                      .line = 7,
                      .asked = (1u << graph->mesh.ndim) - 1,
                      .why = "the test"};
      op.to = nth_layout(list, nto, k);
      int out = append_op(op);
      graph->value[out].layout = op.to;
      graph->value[out].placed = true;
      use(out);
    }
  return n;
}

/* Whether each lowered operation follows from its input along one dimension of the mesh, as its
   kind says. */
static void check_step(const struct op *op)
{
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  struct placement a = in->layout.on[op->mesh_dim], b = out->layout.on[op->mesh_dim];
  for (int d = 0; d < graph->mesh.ndim; d++)
    must(d == op->mesh_dim || same_placement(in->layout.on[d], out->layout.on[d]),
         "%s changes another dimension of the mesh", op_row[op->kind].name);
  must(out->placed && same_shape(in->shape, out->shape), "a step loses its shape or layout");
  must(op->line == 7 && op->why && !strcmp(op->why, "the test"), "a step loses who asked for it");
  must(!is_collective(op->kind) || graph->group[op->group].dims == 1u << op->mesh_dim,
       "a collective over the wrong group");
  switch (op->kind) {
  case OP_all_reduce:
    must(a.kind == PARTIAL && b.kind == REPLICATE && op->reduction == a.reduction, "all_reduce");
    break;
  case OP_all_gather:
    must(a.kind == SHARD && b.kind == REPLICATE && op->dim == a.dim, "all_gather");
    break;
  case OP_reduce_scatter:
    must(a.kind == PARTIAL && b.kind == SHARD && op->dim == b.dim && op->reduction == a.reduction,
         "reduce_scatter");
    break;
  case OP_all_to_all:
    must(a.kind == SHARD && b.kind == SHARD && op->dim == a.dim && op->dim_to == b.dim,
         "all_to_all");
    break;
  case OP_slice:
    must(a.kind == REPLICATE && b.kind == SHARD && op->dim == b.dim, "slice");
    break;
  case OP_to_partial:
    must(a.kind == REPLICATE && b.kind == PARTIAL, "to_partial");
    break;
  case OP_pack:
  case OP_unpack:
    must(same_placement(a, b), "a packing moves something");
    break;
  default:
    must(false, "a redistribution leaves %s", op_row[op->kind].name);
  }
}

/* The value that the k-th redistribution has become: what is used of it. */
static int result_of(int k)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->out == NONE && k-- == 0) return op->in[0];
  }
  give_up("a use is lost");
  return NONE;
}

static void run_pairs(const struct world *w, const struct placement *list, int nfrom, int nto)
{
  int size[MAX_MESH];
  new_graph(parse_mesh(w->mesh, size), size);
  struct shape shape = parse_shape(w->shape);
  int pairs = ask_for_pairs(shape, list, nfrom, nto);
  redistribute();
  for (int i = 0; i < graph->norder; i++)
    if (graph->op[graph->order[i]].out != NONE) check_step(&graph->op[graph->order[i]]);

  struct array whole = random_array(shape);
  struct machine m = new_machine();
  for (int k = 0; k < pairs; k++) load(&m, 2 * k, whole);
  run_flat(&m);
  for (int k = 0; k < pairs; k++) {
    int from = 2 * k, to = result_of(k);
    struct layout wanted = graph->value[2 * k + 1].layout;
    must(same_layout(graph->value[to].layout, wanted), "mesh %s, %s: %s -> %s ends as %s", w->mesh,
         w->shape, layout_text(graph->value[from].layout), layout_text(wanted),
         layout_text(graph->value[to].layout));
    const char *why = not_held(&m, to, whole, 1e-12);
    must(!why, "mesh %s, %s: %s -> %s: %s", w->mesh, w->shape,
         layout_text(graph->value[from].layout), layout_text(wanted), why);
  }
}

static void run_world(const void *with)
{
  const struct world *w = with;
  int ndim = parse_shape(w->shape).ndim;
  struct placement list[MAX_DIMS + 2];
  int n = every_placement(ndim, true, list);
  run_pairs(w, list, n, n - 1);
}

static const char *const meshes[] = {"2", "3", "4", "2x2", "2x3", "3x2", "2x2x2"};
static const char *const shapes[] = {"12x12", "7x5", "5x13",  "3x1",   "1x2",
                                     "1x1",   "2x9", "4x3x5", "1x5x6", "6"};

static void test_every_pair_by_force(void **state)
{
  (void)state;
  int tried = 0;
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
      struct world w = {meshes[i], shapes[k]};
      int size[MAX_MESH], ndim = parse_mesh(w.mesh, size), n = parse_shape(w.shape).ndim;
      if (ndim == 3 && n == 3) continue;
      passes(run_world, &w);
      tried += power(n + 2, ndim) * power(n + 1, ndim);
    }
  print_message("%d pairs of layouts\n", tried);
}

/* Pending maxima or minima; the two together would have no meaning. */
static void run_maxima(const void *with)
{
  const struct world *w = with;
  run_pairs(w, (struct placement[]){R, S(0), S(1), {PARTIAL, 0, MAX}}, 4, 3);
}

static void run_minima(const void *with)
{
  const struct world *w = with;
  run_pairs(w, (struct placement[]){R, S(0), S(1), {PARTIAL, 0, MIN}}, 4, 3);
}

static void test_maxima_and_minima_by_force(void **state)
{
  (void)state;
  passes(run_maxima, &(struct world){"3", "7x5"});
  passes(run_minima, &(struct world){"3", "7x5"});
  passes(run_maxima, &(struct world){"2x2", "6x4"});
  passes(run_minima, &(struct world){"2x3", "5x4"});
}

/* From whole values or sums to pending sums. */
static void run_to_sums(const void *with)
{
  const struct world *w = with;
  int size[MAX_MESH];
  new_graph(parse_mesh(w->mesh, size), size);
  struct placement list[] = {R, P};
  struct shape shape = parse_shape(w->shape);
  int pairs = ask_for_pairs(shape, list, 2, 2);
  redistribute();
  struct array whole = random_array(shape);
  struct machine m = new_machine();
  for (int k = 0; k < pairs; k++) load(&m, 2 * k, whole);
  run_flat(&m);
  for (int k = 0; k < pairs; k++) {
    int to = result_of(k);
    must(same_layout(graph->value[to].layout, graph->value[2 * k + 1].layout), "ends elsewhere");
    const char *why = not_held(&m, to, whole, 1e-12);
    must(!why, "%s -> %s: %s", layout_text(graph->value[2 * k].layout),
         layout_text(graph->value[to].layout), why);
  }
}

static void test_pending_sums_by_force(void **state)
{
  (void)state;
  passes(run_to_sums, &(struct world){"3", "5x4"});
  passes(run_to_sums, &(struct world){"2x3", "3x1"});
}

/* ------------------------------------------------------------------------------------- the pass */

static int moved(int from, const char *to)
{
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {from},
                  .module = NONE,
                  .line = 31,
                  .to = parse_layout(to),
                  .asked = (1u << graph->mesh.ndim) - 1,
                  .why = "a style"};
  int out = append_op(op);
  graph->value[out].layout = op.to;
  graph->value[out].placed = true;
  return out;
}

static void refuse_shard_to_sum(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  use(moved(given(BATCH, "x", parse_shape("4x4"), parse_layout("S(0)")), "P"));
  redistribute();
}

static void test_a_shard_cannot_become_a_sum(void **state)
{
  (void)state;
  refused(refuse_shard_to_sum, NULL, 1, "unit.lua:31", "a style", "S(0) -> P(sum) over a", NULL);
}

/* An operation that reads the redistributed value reads what it has become. */
static void check_readers(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  int x = given(BATCH, "x", parse_shape("4x4"), parse_layout("S(0)"));
  int whole = moved(x, "R"), again = moved(whole, "S(1)"), back = moved(whole, "R");
  struct op op = {.kind = OP_add, .nin = 2, .in = {again, back}, .module = NONE};
  int sum = append_op(op);
  use(sum);
  redistribute();
  must(graph->norder == 4, "%d operations", graph->norder);
  const struct op *gather = &graph->op[graph->order[0]], *slice = &graph->op[graph->order[1]];
  const struct op *add = &graph->op[graph->order[2]];
  must(gather->kind == OP_all_gather && gather->in[0] == x, "no all_gather of x");
  must(slice->kind == OP_slice && slice->in[0] == gather->out, "no slice of the gathered value");
  must(add->out == sum && add->in[0] == slice->out && add->in[1] == gather->out,
       "add reads others");
}

static void test_readers_follow(void **state)
{
  (void)state;
  passes(check_readers, NULL);
}

/* A gradient, a loss and an output keep what they are, whatever becomes of the redistribution. */
static void check_roles(const void *with)
{
  const char *from = with;
  new_graph(1, (int[]){3});
  int w = given(PARAMETER, "w", parse_shape("4x5"), parse_layout("R"));
  int g =
      append_op((struct op){.kind = OP_scale, .nin = 1, .in = {w}, .scalar = 1, .module = NONE});
  graph->value[g].layout = parse_layout(from);
  graph->value[g].placed = true;
  int gradient = moved(g, "R"), output = moved(g, "R"), loss = moved(g, "R");
  graph->value[gradient].role = GRADIENT;
  graph->value[gradient].of = w;
  graph->value[gradient].name = "d_w";
  graph->value[output].is_output = true;
  graph->value[output].name = "result";
  graph->value[loss].role = LOSS;
  graph->loss = loss;
  use(gradient);
  redistribute();
  int gradients = 0, outputs = 0, losses = 0;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->out == NONE) continue;
    const struct value *v = &graph->value[op->out];
    must(op->kind != OP_redistribute, "a redistribution is left");
    gradients += v->role == GRADIENT && v->of == w && !strcmp(v->name, "d_w");
    outputs += v->is_output && !strcmp(v->name, "result");
    losses += v->role == LOSS && graph->loss == op->out;
    must(!v->is_output || v->role == ACTIVATION, "an output that is something else too");
  }
  must(gradients == 1 && outputs == 1 && losses == 1, "%d gradients, %d outputs, %d losses",
       gradients, outputs, losses);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    bool made = false;
    for (int k = 0; k < graph->norder; k++) made |= graph->op[graph->order[k]].out == i;
    must(made || (v->role != GRADIENT && v->role != LOSS && !v->is_output),
         "value %d is kept and nothing makes it", i);
  }
}

static void test_roles_are_kept(void **state)
{
  (void)state;
  passes(check_roles, "R");
  passes(check_roles, "P");
  passes(check_roles, "S(0)");
  passes(check_roles, "S(1)");
}

/* Sizes in a message of the plan's author's: more elements than a call can count. */
static void count_too_many(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  use(moved(given(BATCH, "x", parse_shape("65536x65536"), parse_layout("P")), "R"));
  redistribute();
  name_values(0);
  graph->value[graph->op[graph->order[0]].out].storage = 0;
  collective_text(&graph->op[graph->order[0]], 0);
}

static void test_counts_have_a_limit(void **state)
{
  (void)state;
  refused(count_too_many, NULL, 1, "unit.lua:31", "elements", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_steps),
      cmocka_unit_test(test_steps_lead_from_source_to_target),
      cmocka_unit_test(test_costs),
      cmocka_unit_test(test_golden_bytes),
      cmocka_unit_test(test_every_pair_by_force),
      cmocka_unit_test(test_maxima_and_minima_by_force),
      cmocka_unit_test(test_pending_sums_by_force),
      cmocka_unit_test(test_a_shard_cannot_become_a_sum),
      cmocka_unit_test(test_readers_follow),
      cmocka_unit_test(test_roles_are_kept),
      cmocka_unit_test(test_counts_have_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
