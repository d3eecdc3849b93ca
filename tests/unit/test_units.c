/* The parameters of FSDP units: which dimension is sharded and in which cut order, where they are
   gathered, and which gathers the backward repeats. */
#include "driver/driver.h"
#include "unit.h"

static int root;

/* A model on a mesh, and a unit of its root that cuts over these dimensions of the mesh. */
static struct unit *model(const char *mesh, unsigned shards, unsigned copies)
{
  int size[MAX_MESH], ndim = parse_mesh(mesh, size);
  new_graph(ndim, size);
  GROW(graph->unit, graph->nunit, graph->unit_room);
  graph->unit[graph->nunit++] = (struct unit){.name = "",
                                              .line = 9,
                                              .who = "fully_shard",
                                              .shards = shards,
                                              .copies = copies,
                                              .dim = ANY_DIM};
  root = add_module("", "Model", NONE, 1);
  graph->module[root].unit = 0;
  graph->loss = NONE;
  return &graph->unit[0];
}

static int add_weight(const char *shape, const char *layout, int module)
{
  int w = given(PARAMETER, "w", parse_shape(shape), parse_layout(layout));
  graph->value[w].module = module;
  graph->value[w].unit = 0;
  return w;
}

/* ------------------------------------------------------------------------------- where they lie */

struct unit_place {
  const char *mesh;
  unsigned shards, copies;
  int dim;
  const char *shape, *styled, *placed;
};

static void place(const void *with)
{
  const struct unit_place *p = with;
  model(p->mesh, p->shards, p->copies)->dim = p->dim;
  int w = add_weight(p->shape, p->styled, root);
  plan();
  propagate();
  char *got = layout_text(graph->value[w].layout);
  must(!strcmp(got, p->placed), "%s on %s: %s, not %s", p->shape, p->mesh, got, p->placed);
}

static void test_places(void **state)
{
  static const struct unit_place list[] = {
      {"2", 1, 0, ANY_DIM, "8x6", "R", "S(0)"},
      {"2", 1, 0, ANY_DIM, "8", "R", "S(0)"},
      /* the first dimension that is cut evenly, or the first */
      {"4", 1, 0, ANY_DIM, "6x8", "R", "S(1)"},
      {"4", 1, 0, ANY_DIM, "6x7", "R", "S(0)"},
      {"4", 1, 0, ANY_DIM, "3x2x8x8", "R", "S(2)"},
      /* behind what a style cuts */
      {"2x2", 1, 0, ANY_DIM, "8x6", "R S(0)", "S(0)[1] S(0)[0]"},
      {"2x2", 1, 0, ANY_DIM, "6x8", "R S(0)", "S(1) S(0)"},
      {"2x2", 1, 0, ANY_DIM, "6x7", "R S(0)", "S(0)[1] S(0)[0]"},
      {"2x2", 1, 0, ANY_DIM, "8x6", "R S(1)", "S(0) S(1)"},
      {"2x2", 2, 0, ANY_DIM, "8x6", "S(0) R", "S(0) S(0)"},
      /* what the plan tells, where there is such */
      {"2", 1, 0, -1, "8x6", "R", "S(1)"},
      {"2", 1, 0, 1, "8x7", "R", "S(1)"},
      {"2x2", 1, 0, -1, "8x8", "R S(1)", "S(1)[1] S(1)[0]"},
      /* copies; a single number; one rank */
      {"2x3x2", 2, 1, ANY_DIM, "6x6", "R R R", "R S(0) R"},
      {"2x2", 1, 2, ANY_DIM, "", "R R", "R R"},
      {"1x2", 1, 0, ANY_DIM, "8x6", "R R", "R"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) passes(place, &list[i]);
}

static void place_where_a_style_does(const void *with)
{
  (void)with;
  model("2", 1, 0);
  add_weight("8x6", "S(1)", root);
  plan();
}

static void place_beyond(const void *with)
{
  model("2", 1, 0)->dim = *(const int *)with;
  add_weight("8x6", "R", root);
  add_weight("8", "R", root);
  plan();
}

static void test_refusals(void **state)
{
  (void)state;
  refused(place_where_a_style_does, NULL, 1, "unit.lua:9:", "fully_shard of the model over a",
          "places w as S(1)", NULL);
  refused(place_beyond, &(int){2}, 1, "unit.lua:9:", "shard_dim = 2", "at most 2 dimensions", NULL);
  refused(place_beyond, &(int){-3}, 1, "unit.lua:9:", "shard_dim = -3", NULL);
  passes(place_beyond, &(int){-2});
}

/* -------------------------------------------------------------------------- where they are read */

/* A list of two layers, which are no part of the unit, and another module beside it. */
static int list, layer[2], beside_loop, x, w;

static void layers(bool reshards)
{
  model("2", 1, 0)->again = reshards;
  list = add_module("layers", "ModuleList", root, 1);
  layer[0] = add_module("0", "Layer", list, 1);
  layer[1] = add_module("1", "Layer", list, 1);
  beside_loop = add_module("beside", "Linear", root, 1);
  x = given(BATCH, "x", parse_shape("4x8"), parse_layout("S(0)"));
  w = add_weight("8x8", "R", root);
}

static int product(int in, int with, int module)
{
  return append_op((struct op){.kind = OP_matmul,
                               .nin = 2,
                               .in = {in, with},
                               .equation = "mk,nk->mn",
                               .module = module,
                               .line = 3});
}

/* The operations in their order, each with its module: "redistribute  matmul layers.0". */
static const char *program(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    const char *path = graph->module[op->module].path;
    put(&b, "%s%s%s%s", i ? ", " : "", op_row[op->kind].name, *path ? " " : "", path);
    must(op->kind != OP_redistribute || unit_of(op) == 0, "a gather of no unit");
  }
  return b.text;
}

static void runs(const char *expected)
{
  plan();
  must(!strcmp(program(), expected), "%s, not %s", program(), expected);
}

static void read_twice(const void *with)
{
  (void)with;
  layers(true);
  product(product(x, w, root), w, root);
  runs("redistribute, matmul, matmul");
}

static void read_elsewhere(const void *with)
{
  bool reshards = *(const bool *)with;
  layers(reshards);
  product(product(product(x, w, root), w, beside_loop), w, root);
  runs(reshards ? "redistribute, matmul, redistribute beside, matmul beside, matmul"
                : "redistribute, matmul, matmul beside, matmul");
}

/* Ahead of all layers, though it is the second that reads it. */
static void read_by_layers(const void *with)
{
  (void)with;
  layers(true);
  int h =
      append_op((struct op){.kind = OP_exp, .nin = 1, .in = {x}, .module = layer[0], .line = 3});
  h = product(h, w, layer[1]);
  product(h, w, layer[0]);
  runs("redistribute, exp layers.0, matmul layers.1, matmul layers.0");
}

/* The narrow type travels; what the model has cast in two places is cast once. */
static void read_narrow(const void *with)
{
  (void)with;
  layers(true);
  graph->value[w].used_as = BF16;
  struct op cast = {.kind = OP_cast, .nin = 1, .in = {w}, .type = BF16, .module = root, .line = 3};
  int h = append_op(
      (struct op){.kind = OP_cast, .nin = 1, .in = {x}, .type = BF16, .module = root, .line = 3});
  product(product(h, append_op(cast), root), append_op(cast), root);
  runs("cast, cast, redistribute, matmul, matmul");
  const struct op *gather = &graph->op[graph->order[2]];
  must(graph->value[gather->out].type == BF16, "a wide gather");
}

static void test_readers(void **state)
{
  (void)state;
  passes(read_twice, NULL);
  passes(read_elsewhere, &(bool){true});
  passes(read_elsewhere, &(bool){false});
  passes(read_by_layers, NULL);
  passes(read_narrow, NULL);
}

/* -------------------------------------------------------------------------- and in the backward */

static int count(enum op_kind kind, enum phase phase)
{
  int n = 0;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    n += op->kind == kind && op->phase == phase && unit_of(op) == 0;
  }
  return n;
}

/* Whether the backward reads what the forward has gathered. */
static bool keeps_gathered(void)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    for (int k = 0; k < op->nin && op->phase == BACKWARD; k++) {
      const struct value *v = &graph->value[op->in[k]];
      if (v->op != NONE && graph->op[v->op].phase == FORWARD && gathers(&graph->op[v->op]))
        return true;
    }
  }
  return false;
}

struct training {
  const char *mesh;
  unsigned shards, copies;
  unsigned again;
  bool checkpoint;
  const char *shape;
  int gathers, twice, scatters, sums; /* of the forward, again for the backward; of the gradients */
};

/* Two layers of the unit, each a product with a weight of its own. */
static void train(const void *with)
{
  const struct training *t = with;
  model(t->mesh, t->shards, t->copies)->again = t->again;
  plan_options->checkpoint = t->checkpoint;
  list = add_module("layers", "ModuleList", root, 1);
  int h = given(BATCH, "x", parse_shape("8x8"), parse_layout("S(0) S(0)"));
  for (int i = 0; i < 2; i++) {
    layer[i] = add_module(i ? "1" : "0", "Layer", list, 1);
    graph->module[layer[i]].unit = 0;
    w = add_weight(t->shape, "R R", layer[i]);
    h = append_op((struct op){
        .kind = OP_tanh, .nin = 1, .in = {product(h, w, layer[i])}, .module = layer[i], .line = 3});
  }
  graph->loss = append_op((struct op){
      .kind = OP_sum, .nin = 1, .in = {h}, .dims = 3, .scalar = 1, .module = root, .line = 4});
  use_sgd();
  plan_options->accumulate = 1;
  run_passes(PASS_PLAN, PASS_RECOMPUTE);
  int gathers = count(OP_all_gather, FORWARD), again = count(OP_all_gather, BACKWARD);
  int scatters = count(OP_reduce_scatter, BACKWARD), sums = count(OP_all_reduce, BACKWARD);
  must(gathers == t->gathers && again == t->twice, "%d and %d gathers", gathers, again);
  must(scatters == t->scatters && sums == t->sums, "%d scatters, %d sums", scatters, sums);
  bool kept = t->again != t->shards;
  must(keeps_gathered() == kept, "what is gathered is %skept", kept ? "not " : "");
}

static void test_backward(void **state)
{
  static const struct training list[] = {
      /* of the first layer's weight the backward needs nothing: its input is the batch */
      {"2x1", 1, 0, 1, false, "8x8", 2, 1, 2, 0},
      {"2x1", 1, 0, 0, false, "8x8", 2, 0, 2, 0},
      {"3x1", 1, 0, 1, false, "8x8", 2, 1, 2, 0},
      /* a checkpoint runs both products again, and gathers once for all that reads it */
      {"2x1", 1, 0, 1, true, "8x8", 2, 2, 2, 0},
      {"2x1", 1, 0, 0, true, "8x8", 2, 0, 2, 0},
      /* with copies: scattered first, then summed */
      {"2x2", 2, 1, 2, false, "8x8", 2, 1, 2, 2},
      {"2x2", 2, 1, 0, true, "8x8", 2, 0, 2, 2},
      /* in groups: what was gathered over the last dimension is kept */
      {"2x2", 3, 0, 1, false, "8x8", 4, 1, 2, 0},
      {"2x2", 3, 0, 1, true, "8x8", 4, 2, 2, 0},
  };
  (void)state;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) passes(train, &list[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_places),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_readers),
      cmocka_unit_test(test_backward),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
