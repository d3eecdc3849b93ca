/* The operations of a redistribution. Every pair of layouts on small meshes, in every cut order,
   pending and strided ones among them, with shapes that divide evenly, unevenly and not at all, is
   run on simulated ranks by both planners; each rank's result is compared with its part of the
   whole. */
#include "lua/lua.h"
#include "check/check.h"
#include "emit/emit.h"
#include "interpreter.h"

/* ------------------------------------------------------------------------- every pair, by force */

struct rank_world {
  const char *mesh, *shape, *from;
  bool greedy;
  enum reduction how;
  int every, first;  /* of the pairs one in so many is tried, from this one on */
  int dim;           /* strided worlds: that is cut in strides, */
  int64_t stride[4]; /* of these */
};

/* An operation that writes something for good, and reads the value to do so. */
static void use(int value)
{
  append_update(
      (struct op){.kind = OP_update, .nin = 1, .in = {value}, .module = NONE, .phase = UPDATE});
}

struct layouts {
  int n, room;
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

/* Whether a value can lie so: what is pending is of one kind, and strides divide. */
static bool can_lie(struct shape shape, struct layout layout)
{
  int pending = NONE;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = layout.on[i];
    if (p.kind != PARTIAL) continue;
    if (pending != NONE && layout.on[pending].reduction != p.reduction) return false;
    pending = i;
  }
  for (int d = 0; d < shape.ndim; d++)
    if (!is_whole_numbered(layout, d, shape.size[d])) return false;
  return true;
}

/* Whether cut orders are numbered in the usual way: then every order comes
   up once among all numbers. */
static bool is_usual(struct layout layout)
{
  struct layout usual = usual_cut_order(layout);
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].cut_order != usual.on[i].cut_order) return false;
  return true;
}

/* All layouts with one of these placements on each dimension of the mesh that the shape can have,
   in every order of the cuts. */
static struct layouts every_layout(struct shape shape, const struct placement *list, int n)
{
  int ndim = graph->mesh.ndim;
  struct layouts l = {0};
  for (int i = 0; i < power(n, ndim); i++) {
    struct layout layout = nth_layout(list, n, i);
    if (!can_lie(shape, layout)) continue;
    for (int order = 0; order < power(ndim, ndim); order++) {
      for (int d = 0, rest = order; d < ndim; d++, rest /= ndim)
        layout.on[d].cut_order = rest % ndim;
      if (!is_usual(layout)) continue;
      GROW(l.at, l.n, l.room);
      l.at[l.n++] = layout;
    }
  }
  return l;
}

static int ask_for(struct shape shape, struct layout from, struct layout to)
{
  int v = given(BATCH, "x", shape, from);
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {v},
                  .module = NONE,
                  .line = 7,
                  .to = to,
                  .asked = (1u << graph->mesh.ndim) - 1,
                  .why = "the test"};
  int out = append_op(op);
  graph->value[out].layout = to;
  graph->value[out].placed = true;
  return out;
}

/* A redistribution of a value of its own, used in the end, for every pair of layouts, or for one in
   so many; gives how many. */
static int ask_for_pairs(const struct rank_world *w, struct layouts all)
{
  int n = 0;
  for (int pair = w->first; pair < all.n * all.n; pair += w->every ? w->every : 1, n++)
    use(ask_for(parse_shape(w->shape), all.at[pair / all.n], all.at[pair % all.n]));
  return n;
}

/* The steps keep who asked for them. */
static void check_step(const struct op *op)
{
  must(op->line == 7 && op->why && !strcmp(op->why, "the test"), "a step loses who asked for it");
  must(graph->value[op->out].placed, "a step loses its layout");
}

/* Adds the bytes that a rank receives, by the counts of the call. */
static int64_t received(const struct op *op, int rank)
{
  if (!is_collective(op->kind)) return 0;
  int n = group_size(op->group), *member = take((size_t)n * sizeof *member), me = 0;
  int64_t *give = take((size_t)n * sizeof *give), *get = take((size_t)n * sizeof *get);
  group_members(op->group, rank, member);
  collective_counts(op, rank, give, get);
  while (member[me] != rank) me++;
  int64_t others = 0, chunk = chunk_size(give[me], n, me);
  for (int k = 0; k < n; k++)
    if (k != me) others += get[k];
  if (op->kind == OP_all_reduce) others = chunk * (n - 1) + give[me] - chunk;
  if (op->kind == OP_reduce_scatter) others = give[me] * (n - 1);
  return others * type_bytes(graph->value[op->out].type);
}

static double planned_bytes(const struct value *from, const struct value *to, int *legs)
{
  struct move_segment segment[MAX_SEGMENTS];
  double bytes = 0;
  *legs = segments_of(from->shape, F32, from->layout, to->layout, segment);
  for (int i = 0; i < *legs; i++) bytes += (double)segment[i].moves->bytes;
  return bytes;
}

static bool is_pending(struct layout layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == PARTIAL) return true;
  return false;
}

/* What the operations of a pair bring to the rank that receives most is what was planned. Of
   several legs each may have another such rank. What move_cost says before is right of whole
   and sharded values, and of others no less than it is. */
static void check_cost(const struct value *from, const struct value *to, const int *op, int n)
{
  int legs;
  double estimated = move_cost(cost_model_of_graph(), from->shape, F32, from->layout, to->layout);
  double planned = planned_bytes(from, to, &legs);
  int64_t most = 0, least = 0;
  for (int i = 0; i < n; i++) {
    int64_t here = 0;
    for (int r = 0; r < world_size(); r++) {
      int64_t bytes = received(&graph->op[op[i]], r);
      if (bytes > here) here = bytes;
    }
    most += here;
  }
  for (int r = 0; r < world_size(); r++) {
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += received(&graph->op[op[i]], r);
    if (bytes > least) least = bytes;
  }
  must(planned >= (double)least && planned <= (double)(legs > 1 ? most : least),
       "%s: %s -> %s takes %" PRId64 " to %" PRId64 " bytes, not %g", shape_text(from->shape),
       layout_text(from->layout), layout_text(to->layout), least, most, planned);
  bool exact = plan_options->greedy || (!is_pending(from->layout) && !is_pending(to->layout));
  must(exact ? estimated == planned : estimated >= planned, "%s: %s -> %s costs %g, not %g",
       shape_text(from->shape), layout_text(from->layout), layout_text(to->layout), planned,
       estimated);
}

/* Runs the n operations of the k-th pair, whose result is `last`. */
static void run_pair(struct machine *m, const struct rank_world *w, int k, const int *op, int n,
                     int last, struct array whole)
{
  const struct value *from = &graph->value[2 * k], *to = &graph->value[2 * k + 1];
  load(m, 2 * k, whole);
  for (int i = 0; i < n; i++) {
    check_step(&graph->op[op[i]]);
    run_op(m, &graph->op[op[i]]);
  }
  must(same_layout(graph->value[last].layout, to->layout), "mesh %s, %s: %s -> %s ends as %s",
       w->mesh, w->shape, layout_text(from->layout), layout_text(to->layout),
       layout_text(graph->value[last].layout));
  const char *why = not_held(m, last, whole, 1e-12);
  must(!why, "mesh %s, %s%s: %s -> %s: %s", w->mesh, w->shape, w->greedy ? ", greedy" : "",
       layout_text(from->layout), layout_text(to->layout), why);
  check_cost(from, to, op, n);
}

static void run_pairs(const struct rank_world *w, const struct placement *list, int n)
{
  struct shape shape = parse_shape(w->shape);
  plan_options->greedy = w->greedy;
  int pairs = ask_for_pairs(w, every_layout(shape, list, n)), k = 0, first = 0;
  redistribute();
  check(PASS_REDISTRIBUTE);
  struct array whole = random_array(shape);
  struct machine m = new_machine();
  size_t used = pool_used;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *end = &graph->op[graph->order[i]];
    if (end->out != NONE) continue;
    run_pair(&m, w, k++, graph->order + first, i - first, end->in[0], whole);
    first = i + 1;
    pool_used = used;
  }
  must(k == pairs && k > 0, "%d of %d pairs were run", k, pairs);
}

static void mesh_of(const struct rank_world *w)
{
  int size[MAX_MESH];
  new_graph(parse_mesh(w->mesh, size), size);
}

static struct placement pending(enum reduction how)
{
  return (struct placement){.kind = PARTIAL, .reduction = how};
}

static void run_world(const void *with)
{
  const struct rank_world *w = with;
  struct placement list[MAX_DIMS + 2];
  int n = every_placement(parse_shape(w->shape).ndim, false, list);
  list[n++] = pending(w->how);
  mesh_of(w);
  run_pairs(w, list, n);
}

static void by_both_planners(void (*body)(const void *), struct rank_world w)
{
  passes(body, &w);
  w.greedy = true;
  passes(body, &w);
}

static const char *const meshes[] = {"2", "3", "4", "2x2", "2x3", "3x2", "2x2x2"};
static const char *const wholes[] = {"12x12", "7x5", "5x13",  "3x1",   "1x2", "1x1", "2x9",
                                     "0x3",   "2x0", "4x3x5", "1x5x6", "6",   "0",   ""};

#ifdef __SANITIZE_ADDRESS__
enum { THIN = 4 };
#else
enum { THIN = 1 };
#endif

/* On three dimensions of the mesh there are very many: of most shapes a part of them is tried. */
static int thinned(const char *mesh, const char *shape)
{
  int size[MAX_MESH], ndim = parse_shape(shape).ndim;
  return THIN * (parse_mesh(mesh, size) < 3 || ndim < 2 ? 1 : ndim == 2 ? 5 : 41);
}

static void test_every_pair_by_force(void **state)
{
  (void)state;
  for (int i = 0; i < (int)(sizeof meshes / sizeof *meshes); i++)
    for (int k = 0; k < (int)(sizeof wholes / sizeof *wholes); k++) {
      int every = thinned(meshes[i], wholes[k]);
      struct rank_world w = {
          .mesh = meshes[i], .shape = wholes[k], .every = every, .first = k % every};
      by_both_planners(run_world, w);
    }
}

/* All of them, in parts: memory is never freed. */
static void test_every_pair_on_three_dimensions_by_force(void **state)
{
  (void)state;
  struct rank_world w = {.mesh = "2x2x2", .shape = "7x5", .every = 5};
  for (; w.first < w.every; w.first += THIN) by_both_planners(run_world, w);
}

static void test_maxima_and_minima_by_force(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
    for (enum reduction how = MAX; how <= MIN; how++) {
      struct rank_world w = {.mesh = meshes[i], .shape = "7x5", .how = how};
      w.every = thinned(w.mesh, w.shape);
      by_both_planners(run_world, w);
      w.shape = "1x4";
      by_both_planners(run_world, w);
    }
}

/* From pending values of one kind to those of another. */
static void run_kinds(const void *with)
{
  const struct rank_world *w = with;
  mesh_of(w);
  run_pairs(w, (struct placement[]){R, S(0), S(1), pending(SUM), pending(MAX), pending(MIN)}, 6);
}

static void test_from_one_kind_to_another_by_force(void **state)
{
  (void)state;
  by_both_planners(run_kinds, (struct rank_world){.mesh = "3", .shape = "5x4"});
  by_both_planners(run_kinds, (struct rank_world){.mesh = "2x2", .shape = "3x5"});
  by_both_planners(run_kinds, (struct rank_world){.mesh = "2x3", .shape = "4x2"});
}

/* ------------------------------------------------------------------------------ strided shards */

/* Every pair of layouts over the mesh, among them all that cut one dimension in strides. */
static void run_strided(const void *with)
{
  const struct rank_world *w = with;
  struct placement list[16];
  int n = every_placement(parse_shape(w->shape).ndim, true, list);
  for (int i = 0; i < 4 && w->stride[i]; i++)
    list[n++] = (struct placement){.kind = SHARD, .dim = w->dim, .outer = w->stride[i]};
  mesh_of(w);
  run_pairs(w, list, n);
}

static void test_strided_shards_by_force(void **state)
{
  (void)state;
  static const struct rank_world worlds[] = {
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
      {.mesh = "2x2x2", .shape = "24", .stride = {4, 12}, .every = 17},
  };
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
    by_both_planners(run_strided, worlds[i]);
}

static struct placement strided(int dim, int64_t outer)
{
  return (struct placement){.kind = SHARD, .dim = dim, .outer = outer};
}

/* Two dimensions cut in strides at once; and sums that are pending meanwhile. */
static void run_two_strided(const void *with)
{
  const struct rank_world *w = with;
  mesh_of(w);
  run_pairs(w, (struct placement[]){R, strided(0, 3), strided(1, 4), strided(1, 2), P}, 5);
}

static void test_two_strided_dimensions_by_force(void **state)
{
  (void)state;
  by_both_planners(run_two_strided, (struct rank_world){.mesh = "2x2", .shape = "6x8"});
  by_both_planners(run_two_strided, (struct rank_world){.mesh = "2x3", .shape = "9x8"});
  by_both_planners(run_two_strided, (struct rank_world){.mesh = "2x2x2", .shape = "3x4"});
}

/* What is known of some steps: views move nothing, aligned cuts stay where they are, and what does
   not come apart is made whole. */
static const char *kinds_of(const char *shape, struct placement from, struct placement to)
{
  struct buffer text = {0};
  new_graph(1, (int[]){2});
  plan_options->greedy = true;
  use(ask_for(parse_shape(shape), (struct layout){.on = {from}}, (struct layout){.on = {to}}));
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
                    const char *expected)
{
  const char *kinds = kinds_of(shape, from, to);
  must(!strcmp(kinds, expected), "%s: %s\n  not %s", shape, kinds, expected);
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
  must(isinf(move_cost(cost_model_of_graph(), shape, F32, from, whole)), "it has a price");
  use(ask_for(shape, from, whole));
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

static void refuse_mixed_source(const void *with)
{
  (void)with;
  new_graph(2, (int[]){2, 2});
  struct layout from = parse_layout("P(sum) P(max)");
  must(isinf(move_cost(cost_model_of_graph(), parse_shape("4x4"), F32, from, (struct layout){0})),
       "it has a price");
  use(moved(given(BATCH, "x", parse_shape("4x4"), from), "R R"));
  redistribute();
}

static void refuse_mixed_target(const void *with)
{
  (void)with;
  new_graph(2, (int[]){2, 2});
  use(moved(given(BATCH, "x", parse_shape("4x4"), parse_layout("R P(min)")), "P(sum) P(min)"));
  redistribute();
}

static void test_values_of_two_kinds_cannot_be_pending(void **state)
{
  (void)state;
  refused(refuse_mixed_source, NULL, 1, "unit.lua:31", "a style", "P(sum) P(max) -> R R",
          "values of two kinds are pending", "make one of them Replicate()", NULL);
  refused(refuse_mixed_target, NULL, 1, "unit.lua:31", "R P(min) -> P(sum) P(min)",
          "in P(sum) P(min)", NULL);
}

/* What is asked for in another type is cast, and then moved in that. */
static void check_type_moved(const void *with)
{
  const char *to = with;
  new_graph(1, (int[]){2});
  int x = given(BATCH, "x", parse_shape("4x4"), parse_layout("S(0)"));
  int y = moved(x, to);
  graph->op[graph->value[y].op].type = graph->value[y].type = BF16;
  use(y);
  redistribute();
  check(PASS_REDISTRIBUTE);
  must(graph->norder >= 2 && graph->op[graph->order[0]].kind == OP_cast, "no cast stands first");
  must(graph->value[x].type == F32, "the source has become another");
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    must(op->out == NONE || graph->value[op->out].type == BF16, "a step of another type");
    must(op->out != NONE || graph->value[op->in[0]].type == BF16, "another type is used");
  }
}

/* Where it is to be left in its own type, it is cast back; where it does not move, it stays. */
static void check_left_as_it_was(const void *with)
{
  const char *to = with;
  new_graph(1, (int[]){2});
  int x = given(BATCH, "x", parse_shape("4x4"), parse_layout("P(sum)"));
  int y = moved(x, to), n = 0;
  graph->op[graph->value[y].op].type = BF16;
  use(y);
  redistribute();
  check(PASS_REDISTRIBUTE);
  const struct op *last = &graph->op[graph->order[graph->norder - 1]];
  must(graph->value[last->in[0]].type == F32, "another type is left");
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    n += op->kind == OP_cast;
    must(!is_collective(op->kind) || graph->value[op->out].type == BF16, "a wide collective");
  }
  must(n == (strcmp(to, "P(sum)") ? 2 : 0), "%d casts", n);
}

static void test_a_value_moves_in_the_type_asked_for(void **state)
{
  (void)state;
  passes(check_left_as_it_was, "R");
  passes(check_left_as_it_was, "S(1)");
  passes(check_left_as_it_was, "P(sum)");
  passes(check_type_moved, "R");
  passes(check_type_moved, "S(1)");
  passes(check_type_moved, "S(0)");
}

/* Two values that are moved alike share an exchange; others don't. */
static void check_exchanges(const void *with)
{
  (void)with;
  new_graph(2, (int[]){2, 2});
  struct layout from = parse_layout("S(0) S(0)"), to = parse_layout("S(0)[1] S(0)[0]");
  use(ask_for(parse_shape("8x3"), from, to));
  use(ask_for(parse_shape("8x3"), from, to));
  use(ask_for(parse_shape("8x3"), to, from));
  use(ask_for(parse_shape("4x3"), from, to));
  redistribute();
  int first[4], n = 0;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    must(op->out == NONE || (op->kind == OP_exchange && n < 4), "more than an exchange each");
    if (op->out != NONE) first[n++] = op->exchange;
  }
  must(n == 4 && graph->nexchange == 3, "%d exchanges for %d moves", graph->nexchange, n);
  must(first[0] == first[1], "equal exchanges are two");
}

static void test_equal_exchanges_are_one(void **state)
{
  (void)state;
  passes(check_exchanges, NULL);
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
  const struct rank_world *world = with;
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
  passes(check_roles, &(struct rank_world){.shape = "4x5", .from = "R"});
  passes(check_roles, &(struct rank_world){.shape = "4x5", .from = "P"});
  passes(check_roles, &(struct rank_world){.shape = "4x5", .from = "S(0)"});
  passes(check_roles, &(struct rank_world){.shape = "4x5", .from = "S(1)"});
  passes(check_roles, &(struct rank_world){.shape = "", .from = "R"});
  passes(check_roles, &(struct rank_world){.shape = "", .from = "P"});
}

/* Sizes in a message of the plan's author's: more elements than a call can count. */
static void count_too_many(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  plan_options->greedy = true;
  use(moved(given(BATCH, "x", parse_shape("65536x65536"), parse_layout("P")), "R"));
  redistribute();
  name_values(0);
  graph->memory = new_memory_plan();
  graph->memory->of[graph->op[graph->order[0]].out].storage = 0;
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
      cmocka_unit_test(test_every_pair_by_force),
      cmocka_unit_test(test_every_pair_on_three_dimensions_by_force),
      cmocka_unit_test(test_maxima_and_minima_by_force),
      cmocka_unit_test(test_from_one_kind_to_another_by_force),
      cmocka_unit_test(test_strided_shards_by_force),
      cmocka_unit_test(test_two_strided_dimensions_by_force),
      cmocka_unit_test(test_strided_steps),
      cmocka_unit_test(test_dimensions_have_a_limit),
      cmocka_unit_test(test_values_of_two_kinds_cannot_be_pending),
      cmocka_unit_test(test_a_value_moves_in_the_type_asked_for),
      cmocka_unit_test(test_equal_exchanges_are_one),
      cmocka_unit_test(test_readers_follow),
      cmocka_unit_test(test_roles_are_kept),
      cmocka_unit_test(test_counts_have_a_limit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
