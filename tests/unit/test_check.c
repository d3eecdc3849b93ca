/* The checker finds what a pass could break: a sound graph passes after every pass, and each fault
   put into it ends tpgen with the pass and what is wrong. */
#include "unit.h"

static int w, x, y, z, loss, gradient;

/* x @ w, its exponential, its sum over two ranks that is the loss, and a gradient. */
static void sound_graph(void)
{
  new_graph(1, (int[]){2});
  int root = add_module("", "Model", NONE, 1), inner = add_module("inner", "Linear", root, 2);
  w = given(PARAMETER, "inner.w", parse_shape("6x4"), (struct layout){0});
  graph->value[w].module = inner;
  x = given(BATCH, "x", parse_shape("8x6"), parse_layout("S(0)"));
  struct op op = {
      .kind = OP_matmul, .nin = 2, .in = {x, w}, .equation = "mk,kn->mn", .module = inner};
  y = append_op(op);
  z = append_op(
      (struct op){.kind = OP_sum, .nin = 1, .in = {y}, .dims = 3, .scalar = 1, .module = NONE});
  op = (struct op){
      .kind = OP_all_reduce, .nin = 1, .in = {z}, .module = NONE, .group = add_group(1)};
  loss = append_op(op);
  op = (struct op){.kind = OP_matmul,
                   .nin = 2,
                   .in = {x, y},
                   .equation = "km,kn->mn",
                   .module = NONE,
                   .phase = BACKWARD};
  int partial = append_op(op);
  op = (struct op){
      .kind = OP_all_reduce, .nin = 1, .in = {partial}, .module = NONE, .phase = BACKWARD};
  op.group = add_group(1);
  gradient = append_op(op);
  graph->value[y].layout = parse_layout("S(0)");
  graph->value[z].layout = graph->value[partial].layout = parse_layout("P");
  for (int i = 0; i < graph->nvalue; i++) graph->value[i].placed = true;
  graph->loss = loss;
  graph->value[loss].role = LOSS;
  graph->value[gradient].role = GRADIENT;
  graph->value[gradient].of = w;
}

static void check_all(const void *with)
{
  (void)with;
  sound_graph();
  for (enum pass pass = PASS_LUA; pass <= PASS_REDISTRIBUTE; pass++) check(pass);
  outline();
  check(PASS_OUTLINE);
  bucket();
  check(PASS_BUCKET);
  fuse();
  check(PASS_FUSE);
  schedule();
  check(PASS_SCHEDULE);
  memory();
  check(PASS_MEMORY);
}

static void test_a_sound_graph_passes(void **state)
{
  (void)state;
  passes(check_all, NULL);
}

struct fault {
  void (*put)(void);
  enum pass pass;
  const char *found;
};

static void many_dimensions(void)
{
  graph->value[x].shape.ndim = MAX_DIMS + 1;
}
static void negative_size(void)
{
  graph->value[x].shape.size[0] = -1;
}
static void no_maker(void)
{
  graph->value[y].op = graph->nop;
}
static void no_module(void)
{
  graph->value[y].module = graph->nmodule;
}
static void of_nothing(void)
{
  graph->value[gradient].of = NONE;
}
static void wrong_shard(void)
{
  graph->value[x].layout.on[0].dim = 2;
}
static void no_kind(void)
{
  graph->op[1].kind = OP_COUNT;
}
static void many_inputs(void)
{
  graph->op[1].nin = MAX_INPUTS + 1;
}
static void no_input(void)
{
  graph->op[1].in[0] = graph->nvalue;
}
static void no_output(void)
{
  graph->op[1].out = -2;
}
static void op_without_module(void)
{
  graph->op[1].module = graph->nmodule;
}
static void not_in_order(void)
{
  graph->order[0] = 1;
  graph->order[1] = 0;
}
static void no_loss(void)
{
  graph->norder = 2;
}
static void not_placed(void)
{
  graph->value[y].placed = false;
}
static void not_legal(void)
{
  graph->value[y].layout = parse_layout("S(1)");
}
static void not_as_taken(void)
{
  graph->value[w].layout = parse_layout("S(1)");
}
static void not_as_parameter(void)
{
  graph->value[gradient].layout = parse_layout("S(0)");
}
static void sum_left(void)
{
  graph->value[loss].layout = parse_layout("P");
}
static void sum_left_in_output(void)
{
  graph->value[z].is_output = true;
}
static void move_left(void)
{
  graph->op[2].kind = OP_redistribute;
}
static void not_in_modules_order(void)
{
  given(PARAMETER, "a", parse_shape("2"), (struct layout){0});
  int last = given(PARAMETER, "inner.b", parse_shape("2"), (struct layout){0});
  graph->value[last].module = 1;
  graph->value[last - 1].module = 0;
}

static void find(const void *with)
{
  const struct fault *fault = with;
  sound_graph();
  fault->put();
  check(fault->pass);
}

static void test_every_fault_is_found(void **state)
{
  (void)state;
  static const struct fault list[] = {
      {many_dimensions, PASS_LUA, "too many dimensions"},
      {negative_size, PASS_LUA, "negative size"},
      {no_maker, PASS_LUA, "made by no operation"},
      {no_module, PASS_LUA, "lies in no module"},
      {of_nothing, PASS_GRAD, "belongs to nothing"},
      {wrong_shard, PASS_PLAN, "a dimension that it has not"},
      {no_kind, PASS_LUA, "of no kind"},
      {many_inputs, PASS_LUA, "too many inputs"},
      {no_input, PASS_LUA, "an input is no value"},
      {no_output, PASS_LUA, "an output is no value"},
      {op_without_module, PASS_LUA, "lies in no module"},
      {not_in_order, PASS_PLAN, "not made yet"},
      {no_loss, PASS_PLAN, "the loss is not made"},
      {not_placed, PASS_PROPAGATE, "not placed"},
      {not_legal, PASS_PROPAGATE, "does not run on its inputs as they lie"},
      {not_as_taken, PASS_PROPAGATE, "does not run on its inputs as they lie"},
      {not_as_parameter, PASS_GRAD, "does not lie as its parameter"},
      {sum_left, PASS_REDISTRIBUTE, "a pending sum is left"},
      {sum_left_in_output, PASS_REDISTRIBUTE, "a pending sum is left"},
      {move_left, PASS_REDISTRIBUTE, "a redistribution is left"},
      {not_in_modules_order, PASS_LUA, "order of the modules"},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    refused(find, &list[i], -SIGABRT, pass_name[list[i].pass], list[i].found, NULL);
}

/* ------------------------------------------------------------------------------------ the arena */

static void lie_in_memory(void (*put)(void))
{
  sound_graph();
  outline();
  bucket();
  fuse();
  schedule();
  memory();
  put();
  check(PASS_MEMORY);
}

static void beyond(void)
{
  graph->arena_bytes = 0;
}
static void together(void)
{
  for (int i = 0; i < graph->nvalue; i++) {
    struct value *v = &graph->value[i];
    v->first = 0;
    v->last = 9;
    v->offset = 0;
    v->storage = i;
    v->stored = true;
    v->depth = 1;
  }
  graph->arena_bytes = 1 << 20;
}

static void find_beyond(const void *with)
{
  (void)with;
  lie_in_memory(beyond);
}

static void find_together(const void *with)
{
  (void)with;
  lie_in_memory(together);
}

static void test_the_arena(void **state)
{
  (void)state;
  refused(find_beyond, NULL, -SIGABRT, "memory", "outside the arena", NULL);
  refused(find_together, NULL, -SIGABRT, "memory", "overlap", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_sound_graph_passes),
      cmocka_unit_test(test_every_fault_is_found),
      cmocka_unit_test(test_the_arena),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
