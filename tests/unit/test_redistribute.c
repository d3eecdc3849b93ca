/* From one layout to another: the steps, what they cost, and the operations they become. The steps
   are those of PyTorch: TPGEN_GOLDEN, or tests/golden, redistribute_plans.tsv. Then every pair of
   layouts on small meshes, strided ones among them, with shapes that cut evenly, unevenly and not
   at all, is run on simulated ranks. */
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
  const char *mesh, *shape, *from;
  enum reduction how;
  int dim;           /* strided worlds: that is cut in strides, */
  int64_t stride[4]; /* of these */
};

/* An operation that writes something for good, and reads the value to do so. */
static void use(int value)
{
  append_update(
      (struct op){.kind = OP_sgd, .nin = 1, .in = {value}, .module = NONE, .phase = UPDATE});
}

struct layouts {
  int n;
  struct layout *at;
};

/* Whether the dimension's strides divide each other, and its size, and leave something to cut. */
static bool is_whole_numbered(struct layout layout, int dim, int64_t size)
{
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = layout.on[i];
    if (p.kind != SHARD || p.dim != dim || p.outer <= 1) continue;
    if (p.outer >= size || size % p.outer) return false;
    for (int k = 0; k < i; k++) {
      struct placement q = layout.on[k];
      if (q.kind != SHARD || q.dim != dim || q.outer <= 1) continue;
      if (p.outer % q.outer && q.outer % p.outer) return false;
    }
  }
  return true;
}

/* All layouts with one of these placements on each dimension of the mesh that the shape can have.
 */
static struct layouts every_layout(struct shape shape, const struct placement *list, int n)
{
  int all = power(n, graph->mesh.ndim);
  struct layouts l = {.at = alloc((size_t)all * sizeof *l.at)};
  for (int i = 0; i < all; i++) {
    struct layout layout = nth_layout(list, n, i);
    bool fits = true;
    for (int d = 0; d < shape.ndim; d++) fits &= is_whole_numbered(layout, d, shape.size[d]);
    if (fits) l.at[l.n++] = layout;
  }
  return l;
}

/* A redistribution of a value of its own, used in the end, for every pair of layouts; gives how
 * many. */
static int ask_for_pairs(struct shape shape, struct layouts from, struct layouts to)
{
  int n = 0;
  for (int i = 0; i < from.n; i++)
    for (int k = 0; k < to.n; k++, n++) {
      int v = given(BATCH, "x", shape, from.at[i]);
      struct op op = {.kind = OP_redistribute,
                      .nin = 1,
                      .in = {v},
                      .module = NONE,
                      .line = 7,
                      .asked = (1u << graph->mesh.ndim) - 1,
                      .why = "the test"};
      op.to = to.at[k];
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
  must(op->line == 7 && op->why && !strcmp(op->why, "the test"), "a step loses who asked for it");
  must(out->placed, "a step loses its layout");
  if (op->kind == OP_view) return; /* check() knows whether its layouts are alike */
  for (int d = 0; d < graph->mesh.ndim; d++)
    must(d == op->mesh_dim || same_placement(in->layout.on[d], out->layout.on[d]),
         "%s changes another dimension of the mesh", op_row[op->kind].name);
  must(same_shape(in->shape, out->shape), "a step loses its shape");
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
    must(a.kind == REPLICATE && b.kind == PARTIAL && op->reduction == b.reduction, "to_partial");
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

/* Bytes that the first rank gets, by the counts of a ring. */
static double bytes_of(const struct op *op)
{
  double n = graph->mesh.size[op->mesh_dim];
  double here = (double)(elements(local_shape(op->in[0], 0)) * type_bytes(F32));
  switch (op->kind) {
  case OP_all_reduce:
    return 2 * here * (n - 1) / n;
  case OP_all_gather:
    return here * (n - 1);
  case OP_reduce_scatter:
  case OP_all_to_all:
    return here * (n - 1) / n;
  default:
    return 0;
  }
}

/* What the operations up to the use of the k-th pair's result cost, from those of the one before.
 */
static void check_costs(int pairs)
{
  double bytes = 0;
  for (int i = 0, k = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->out != NONE) {
      bytes += bytes_of(op);
      continue;
    }
    const struct value *from = &graph->value[2 * k], *to = &graph->value[2 * k + 1];
    double told = move_cost(from->shape, F32, from->layout, to->layout);
    must(k++ < pairs && fabs(told - bytes) < 1e-9 * (1 + bytes), "%s: %s -> %s costs %g, not %g",
         shape_text(from->shape), layout_text(from->layout), layout_text(to->layout), bytes, told);
    bytes = 0;
  }
}

/* Gives how many pairs. */
static int run_pairs(const struct world *w, const struct placement *list, int nfrom, int nto)
{
  struct shape shape = parse_shape(w->shape);
  int pairs =
      ask_for_pairs(shape, every_layout(shape, list, nfrom), every_layout(shape, list, nto));
  redistribute();
  check(PASS_REDISTRIBUTE);
  for (int i = 0; i < graph->norder; i++)
    if (graph->op[graph->order[i]].out != NONE) check_step(&graph->op[graph->order[i]]);
  check_costs(pairs);

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
  return pairs;
}

static void mesh_of(const struct world *w)
{
  int size[MAX_MESH];
  new_graph(parse_mesh(w->mesh, size), size);
}

static void run_world(const void *with)
{
  const struct world *w = with;
  int ndim = parse_shape(w->shape).ndim;
  struct placement list[MAX_DIMS + 2];
  int n = every_placement(ndim, true, list);
  mesh_of(w);
  run_pairs(w, list, n, n - 1);
}

static const char *const meshes[] = {"2", "3", "4", "2x2", "2x3", "3x2", "2x2x2"};
static const char *const wholes[] = {"12x12", "7x5", "5x13",  "3x1",   "1x2",
                                     "1x1",   "2x9", "4x3x5", "1x5x6", "6"};

static void test_every_pair_by_force(void **state)
{
  (void)state;
  int tried = 0;
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
    for (size_t k = 0; k < sizeof wholes / sizeof *wholes; k++) {
      struct world w = {.mesh = meshes[i], .shape = wholes[k]};
      int size[MAX_MESH], ndim = parse_mesh(w.mesh, size), n = parse_shape(w.shape).ndim;
      if (ndim == 3 && n == 3) continue;
      passes(run_world, &w);
      tried += power(n + 2, ndim) * power(n + 1, ndim);
    }
  print_message("%d pairs of layouts\n", tried);
}

static struct placement pending(enum reduction how)
{
  return (struct placement){.kind = PARTIAL, .reduction = how};
}

/* Pending maxima or minima; the two together would have no meaning. */
static void run_maxima(const void *with)
{
  const struct world *w = with;
  mesh_of(w);
  run_pairs(w, (struct placement[]){R, S(0), S(1), pending(MAX)}, 4, 3);
}

static void run_minima(const void *with)
{
  const struct world *w = with;
  mesh_of(w);
  run_pairs(w, (struct placement[]){R, S(0), S(1), pending(MIN)}, 4, 3);
}

static void test_maxima_and_minima_by_force(void **state)
{
  (void)state;
  passes(run_maxima, &(struct world){.mesh = "3", .shape = "7x5"});
  passes(run_minima, &(struct world){.mesh = "3", .shape = "7x5"});
  passes(run_maxima, &(struct world){.mesh = "2x2", .shape = "6x4"});
  passes(run_minima, &(struct world){.mesh = "2x3", .shape = "5x4"});
}

/* From whole values or sums to pending sums; or maxima, or minima. */
static void run_to_pending(const void *with)
{
  const struct world *w = with;
  mesh_of(w);
  run_pairs(w, (struct placement[]){R, pending(w->how)}, 2, 2);
}

static void test_pending_values_by_force(void **state)
{
  (void)state;
  for (enum reduction how = SUM; how <= MIN; how++) {
    passes(run_to_pending, &(struct world){.mesh = "3", .shape = "5x4", .how = how});
    passes(run_to_pending, &(struct world){.mesh = "2x3", .shape = "3x1", .how = how});
  }
}

/* ------------------------------------------------------------------------------ strided shards */

/* Every pair of layouts over the mesh, among them all that cut one dimension in strides. */
static void run_strided(const void *with)
{
  const struct world *w = with;
  int ndim = parse_shape(w->shape).ndim;
  struct placement list[16] = {P};
  int n = every_placement(ndim, false, list + 1) + 1;
  for (int i = 0; i < 4 && w->stride[i]; i++)
    list[n++] = (struct placement){.kind = SHARD, .dim = w->dim, .outer = w->stride[i]};
  mesh_of(w);
  /* Pending sums are the last of the list where they may be. */
  list[0] = list[n - 1];
  list[n - 1] = P;
  int pairs = run_pairs(w, list, n, n - 1);
  must(pairs > 0, "no pairs");
}

static void test_strided_shards_by_force(void **state)
{
  (void)state;
  static const struct world worlds[] = {
      {.mesh = "2", .shape = "12x2", .stride = {2, 3, 4, 6}},
      {.mesh = "2", .shape = "20x3", .stride = {4, 5, 10, 2}},
      {.mesh = "3", .shape = "18", .stride = {2, 3, 6, 9}},
      {.mesh = "4", .shape = "12x3", .stride = {2, 3, 4, 6}},
      {.mesh = "4", .shape = "2x16", .dim = 1, .stride = {2, 4, 8}},
      {.mesh = "4", .shape = "1x24", .dim = 1, .stride = {2, 3, 4, 12}},
      {.mesh = "2x2", .shape = "12", .stride = {2, 3, 4, 6}},
      {.mesh = "2x2", .shape = "3x20", .dim = 1, .stride = {2, 4, 5}},
      {.mesh = "2x2", .shape = "2x12x3", .dim = 1, .stride = {2, 6}},
      {.mesh = "2x2", .shape = "8x1", .stride = {2, 4}},
      {.mesh = "2x3", .shape = "12x2", .stride = {2, 4, 6}},
      {.mesh = "2x3", .shape = "36", .stride = {2, 3, 6, 18}},
      {.mesh = "2x3", .shape = "10", .stride = {2, 5}},
      {.mesh = "3x2", .shape = "12", .stride = {2, 3, 6}},
      {.mesh = "3x2", .shape = "10", .stride = {5}}, /* 4, 4, 2: the last does not come apart */
      {.mesh = "2x2x2", .shape = "24", .stride = {4, 12}},
  };
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) passes(run_strided, &worlds[i]);
}

static struct placement strided(int dim, int64_t outer)
{
  return (struct placement){.kind = SHARD, .dim = dim, .outer = outer};
}

/* Two dimensions cut in strides at once; and sums that are pending meanwhile. */
static void run_two_strided(const void *with)
{
  const struct world *w = with;
  mesh_of(w);
  run_pairs(w, (struct placement[]){R, strided(0, 3), strided(1, 4), strided(1, 2), P}, 5, 4);
}

static void test_two_strided_dimensions_by_force(void **state)
{
  (void)state;
  passes(run_two_strided, &(struct world){.mesh = "2x2", .shape = "6x8"});
  passes(run_two_strided, &(struct world){.mesh = "2x3", .shape = "9x8"});
  passes(run_two_strided, &(struct world){.mesh = "2x2x2", .shape = "3x4"});
}

/* What is known of some steps: views move nothing, aligned cuts stay where they are, and what does
   not come apart is made whole. */
static const char *kinds_of(const char *shape, struct placement from, struct placement to)
{
  struct layouts a = {1, &(struct layout){.on = {from}}}, b = {1, &(struct layout){.on = {to}}};
  struct buffer text = {0};
  new_graph(1, (int[]){2});
  ask_for_pairs(parse_shape(shape), a, b);
  redistribute();
  put_text(&text, "", 0);
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->out == NONE) continue;
    put(&text, "%s%s", text.length ? " " : "", op_row[op->kind].name);
    if (op->kind == OP_view) put(&text, ":%s", op->equation);
  }
  return text.text;
}

static void becomes(const char *shape, struct placement from, struct placement to,
                    const char *wanted)
{
  const char *kinds = kinds_of(shape, from, to);
  must(!strcmp(kinds, wanted), "%s: %s\n  not %s", shape, kinds, wanted);
}

static void check_strided_steps(const void *with)
{
  (void)with;
  becomes("12x5", strided(0, 4), strided(0, 4), "");
  becomes("12x5", strided(0, 4), R, "view:(a4b3)c->a4b3c all_gather unpack view:a4b3c->(a4b3)c");
  becomes("12x5", R, strided(0, 4), "view:(a4b3)c->a4b3c slice view:a4b3c->(a4b3)c");
  becomes("12x5", S(0), strided(0, 4), "view:(a4b3)c->a4b3c pack all_to_all view:a4b3c->(a4b3)c");
  becomes("12x5", P, strided(0, 4), "view:(a4b3)c->a4b3c pack reduce_scatter view:a4b3c->(a4b3)c");
  becomes("12x5", strided(0, 4), strided(0, 2),
          "view:(a2b2c3)d->a2b2c3d pack all_to_all unpack view:a2b2c3d->(a2b2c3)d");
  becomes("10x5", S(0), strided(0, 5), "all_gather view:(a5b2)c->a5b2c slice view:a5b2c->(a5b2)c");
  becomes("12x5", strided(0, 4), strided(0, 3),
          "view:(a4b3)c->a4b3c all_gather unpack view:a4b3c->(a4b3)c "
          "view:(a3b4)c->a3b4c slice view:a3b4c->(a3b4)c");
}

static void test_strided_steps(void **state)
{
  (void)state;
  passes(check_strided_steps, NULL);
}

static void many_dimensions(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  struct layout from = {.on = {strided(0, 2)}}, whole = {0};
  struct shape shape = parse_shape("4x2x2x2x2x2x2x2");
  must(isinf(move_cost(shape, F32, from, whole)), "it has a price");
  ask_for_pairs(shape, (struct layouts){1, &from}, (struct layouts){1, &whole});
  redistribute();
}

static void test_dimensions_have_a_limit(void **state)
{
  (void)state;
  refused(many_dimensions, NULL, 1, "unit.lua:7", "9 dimensions", NULL);
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
  const struct world *world = with;
  const char *from = world->from;
  new_graph(1, (int[]){3});
  int w = given(PARAMETER, "w", parse_shape(world->shape), parse_layout("R"));
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
  passes(check_roles, &(struct world){.shape = "4x5", .from = "R"});
  passes(check_roles, &(struct world){.shape = "4x5", .from = "P"});
  passes(check_roles, &(struct world){.shape = "4x5", .from = "S(0)"});
  passes(check_roles, &(struct world){.shape = "4x5", .from = "S(1)"});
  passes(check_roles, &(struct world){.shape = "", .from = "R"});
  passes(check_roles, &(struct world){.shape = "", .from = "P"});
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
      cmocka_unit_test(test_pending_values_by_force),
      cmocka_unit_test(test_strided_shards_by_force),
      cmocka_unit_test(test_two_strided_dimensions_by_force),
      cmocka_unit_test(test_strided_steps),
      cmocka_unit_test(test_dimensions_have_a_limit),
      cmocka_unit_test(test_a_shard_cannot_become_a_sum),
      cmocka_unit_test(test_readers_follow),
      cmocka_unit_test(test_roles_are_kept),
      cmocka_unit_test(test_counts_have_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
