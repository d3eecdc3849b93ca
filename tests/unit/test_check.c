/* The checker finds what a pass could break: a correct graph passes after every pass, and each
   injected fault ends tpgen with the name of the pass and the fault. */

#include "driver/driver.h"
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
  run_passes(PASS_OUTLINE, PASS_LAST);
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
static void unusual_cut_order(void)
{
  graph->value[x].layout.on[0].cut_order = 1;
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

/* In a graph in which the checker found all to be well. */
static void find_later(const void *with)
{
  const struct fault *fault = with;
  sound_graph();
  check(fault->pass);
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
      {no_module, PASS_LUA, "is in no module"},
      {of_nothing, PASS_GRAD, "belongs to nothing"},
      {wrong_shard, PASS_PLAN, "a dimension that it has not"},
      {no_kind, PASS_LUA, "of no kind"},
      {many_inputs, PASS_LUA, "too many inputs"},
      {no_input, PASS_LUA, "an input is not a value"},
      {no_output, PASS_LUA, "an output is not a value"},
      {op_without_module, PASS_LUA, "is in no module"},
      {not_in_order, PASS_PLAN, "not made yet"},
      {no_loss, PASS_PLAN, "the loss is not made"},
      {not_placed, PASS_PROPAGATE, "not placed"},
      {not_legal, PASS_PROPAGATE, "does not run on the layouts of its inputs"},
      {not_as_taken, PASS_PROPAGATE, "does not run on the layouts of its inputs"},
      {not_as_parameter, PASS_GRAD, "has another dimension order than its parameter"},
      {sum_left, PASS_REDISTRIBUTE, "a pending sum is left"},
      {sum_left_in_output, PASS_REDISTRIBUTE, "a pending sum is left"},
      {move_left, PASS_REDISTRIBUTE, "a redistribution is left"},
      {unusual_cut_order, PASS_PROPAGATE, "cuts are not numbered as usual"},
      {not_in_modules_order, PASS_LUA, "order of the modules"},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    refused(find, &list[i], -SIGABRT, pass_name[list[i].pass], list[i].found, NULL);
    refused(find_later, &list[i], -SIGABRT, pass_name[list[i].pass], list[i].found, NULL);
  }
}

/* ----------------------------------------------------------------------- steps that move data */

/* One operation on a tensor of 12 x 12 on a mesh of 2 x 2 x 2, its group "ab" or "ba" or such. */
struct step {
  enum op_kind kind;
  const char *group, *from, *to;
  int dim, dim_to;
  const char *parts; /* pack, unpack */
};

static int group_called(const char *name)
{
  int dim[MAX_MESH], n = 0;
  for (; name[n]; n++) dim[n] = name[n] - 'a';
  return add_ordered_group(n, dim);
}

static struct op step_of(const struct step *step, int in)
{
  struct op op = {.kind = step->kind, .nin = 1, .in = {in}, .module = NONE, .dim = step->dim};
  op.dim_to = step->dim_to;
  if (step->parts) op.to = parse_layout(step->parts);
  op.group = group_called(step->group);
  return op;
}

static void take_step(const void *with)
{
  const struct step *step = with;
  new_graph(3, (int[]){2, 2, 2});
  int in = given(BATCH, "x", parse_shape("12x12"), parse_layout(step->from));
  int out = append_op(step_of(step, in));
  graph->value[out].layout = parse_layout(step->to);
  graph->value[out].placed = true;
  check(PASS_REDISTRIBUTE);
}

static void test_steps_are_what_they_say(void **state)
{
  (void)state;
  static const struct step list[] = {
      {OP_all_reduce, "a", "P R R", "R R R", 0, 0, NULL},
      {OP_all_reduce, "ac", "P S(0) P", "R S(0) R", 0, 0, NULL},
      {OP_all_gather, "b", "S(0) S(0) R", "S(0) R R", 0, 0, NULL},
      {OP_all_gather, "ab", "S(0) S(0) R", "R R R", 0, 0, NULL},
      {OP_all_gather, "ba", "S(0)[1] S(0)[0] P", "R R P", 0, 0, NULL},
      {OP_all_gather, "a", "S(0)[1] S(0)[0] R", "R S(0) R", 0, 0, NULL},
      {OP_reduce_scatter, "ca", "P S(0) P", "S(0)[2] S(0)[0] S(0)[1]", 0, 0, NULL},
      {OP_all_to_all, "bc", "S(0) S(0) S(0)", "S(0) S(1) S(1)", 0, 1, NULL},
      {OP_slice, "", "S(1) R R", "S(1) S(0) S(1)", 0, 0, NULL},
      {OP_slice, "", "R S(0) R", "S(0)[1] S(0)[0] R", 0, 0, NULL},
      {OP_to_partial, "", "R S(0) S(0)", "P S(0) P", 0, 0, NULL},
      {OP_pack, "ba", "P P R", "P P R", 1, 0, "S(1)[1] S(1)[0] R"},
      {OP_unpack, "b", "S(0) R R", "S(0) R R", 0, 0, "S(0) S(0) R"},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) passes(take_step, &list[i]);
}

/* A gather that was found to be one is so no more when any of these is another. */
static void change_step(const void *with)
{
  const char *what = with;
  take_step(&(struct step){OP_all_gather, "ab", "S(0) S(0) R", "R R R", 0, 0, NULL});
  struct op *op = &graph->op[0];
  if (!strcmp(what, "dim")) op->dim = 1;
  if (!strcmp(what, "group")) op->group = group_called("ba");
  if (!strcmp(what, "from")) graph->value[op->in[0]].layout = parse_layout("S(0) R R");
  if (!strcmp(what, "to")) graph->value[op->out].layout = parse_layout("R S(0) R");
  check(PASS_RECOMPUTE);
}

static void test_what_is_a_step_no_more_is_found(void **state)
{
  (void)state;
  static const char *const what[] = {"dim", "group", "from", "to"};
  for (size_t i = 0; i < sizeof what / sizeof *what; i++)
    refused(change_step, what[i], -SIGABRT, "recompute", "is not what a step of its kind does",
            NULL);
  passes(change_step, "nothing");
}

static void test_what_is_no_step_is_found(void **state)
{
  (void)state;
  static const struct step list[] = {
      /* other dimensions of the mesh than the group's change, or fewer */
      {OP_all_reduce, "a", "P P R", "R R R", 0, 0, NULL},
      {OP_all_reduce, "ab", "P S(0) R", "R S(0) R", 0, 0, NULL},
      {OP_all_gather, "a", "S(0) S(1) R", "R R R", 0, 0, NULL},
      /* not what is pending */
      {OP_all_reduce, "a", "P(max) R R", "R R R", 0, 0, NULL},
      {OP_reduce_scatter, "a", "R R R", "S(0) R R", 0, 0, NULL},
      /* not the last cuts, or not in the order of the group */
      {OP_all_gather, "a", "S(0) S(0) R", "R S(0) R", 0, 0, NULL},
      {OP_all_gather, "ba", "S(0) S(0) R", "R R R", 0, 0, NULL},
      {OP_all_gather, "ab", "S(0)[1] S(0)[0] R", "R R R", 0, 0, NULL},
      {OP_reduce_scatter, "a", "P S(0) R", "S(0) S(0) R", 0, 0, NULL},
      {OP_all_to_all, "a", "S(0) S(0) R", "S(1) S(0) R", 0, 1, NULL},
      {OP_all_to_all, "b", "S(0) S(1) S(1)", "S(0) S(0) S(1)", 1, 0, NULL},
      {OP_slice, "", "R S(0) R", "S(0) S(0) R", 0, 0, NULL},
      {OP_to_partial, "", "S(0) S(0) R", "P S(0) R", 0, 0, NULL},
      /* another dimension of the tensor */
      {OP_all_gather, "a", "S(0) R R", "R R R", 1, 0, NULL},
      {OP_all_to_all, "a", "S(0) R R", "S(1) R R", 1, 0, NULL},
      {OP_all_to_all, "ab", "S(0) S(0) R", "S(0)[1] S(0)[0] R", 0, 0, NULL},
      {OP_reduce_scatter, "a", "P R R", "S(0) R R", 1, 0, NULL},
      /* nothing changes, or something else does */
      {OP_slice, "", "R R R", "R R R", 0, 0, NULL},
      {OP_slice, "", "S(0) R R", "S(1) R R", 0, 0, NULL},
      {OP_slice, "", "P R R", "S(0) R R", 0, 0, NULL},
      {OP_slice, "", "S(0) S(0) R", "S(0)[2] S(0)[1] S(0)[0]", 0, 0, NULL},
      {OP_to_partial, "", "P(max) R R", "P R R", 0, 0, NULL},
      {OP_to_partial, "", "S(0) R R", "R P R", 0, 0, NULL},
      /* strided */
      {OP_all_gather, "a", "S(0/2) R R", "R R R", 0, 0, NULL},
      {OP_slice, "", "R R R", "S(0/2) R R", 0, 0, NULL},
      {OP_slice, "", "S(0/2) R R", "S(0/2) S(0) R", 0, 0, NULL},
      /* packings */
      {OP_pack, "a", "P R R", "S(0) R R", 0, 0, "S(0) R R"},
      {OP_pack, "a", "P R R", "P R R", 0, 0, "S(1) R R"},
      {OP_unpack, "ab", "R R R", "R R R", 0, 0, "S(0)[1] S(0)[0] R"},
      {OP_unpack, "a", "R R R", "R R R", 2, 0, "S(0) R R"},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    refused(take_step, &list[i], -SIGABRT, "redistribute", op_row[list[i].kind].name,
            "is not what a step of its kind does", NULL);
}

/* An exchange of a tensor of 4 x 4 over a, as the pass leaves it, and what is wrong in it. */
struct wrong_exchange {
  const char *from, *to;
  void (*put)(struct exchange *e, struct op *op);
};

static void other_group(struct exchange *e, struct op *op)
{
  (void)e;
  op->group = group_called("b");
}
static void smaller_group(struct exchange *e, struct op *op)
{
  e->move.n = 1;
  e->group = op->group = group_called("a");
}
static void other_type(struct exchange *e, struct op *op)
{
  (void)op;
  e->type = BF16;
}
static void other_shape(struct exchange *e, struct op *op)
{
  (void)op;
  e->whole = parse_shape("4x6");
}
static void other_layout(struct exchange *e, struct op *op)
{
  (void)op;
  e->move.from = parse_layout("R S(0) R");
}
static void no_exchange(struct exchange *e, struct op *op)
{
  (void)e;
  op->exchange = 7;
}

static void exchange(const void *with)
{
  const struct wrong_exchange *wrong = with;
  new_graph(3, (int[]){2, 2, 2});
  struct exchange e = {.whole = parse_shape("4x4"),
                       .move = {.kind = OP_exchange, .n = 2, .dim = {0, 1}},
                       .group = group_called("ab")};
  e.move.from = parse_layout(wrong->from);
  e.move.to = parse_layout(wrong->to);
  int in = given(BATCH, "x", e.whole, e.move.from);
  struct op op = {.kind = OP_exchange, .nin = 1, .in = {in}, .group = e.group, .module = NONE};
  int out = append_op(op);
  graph->value[out].layout = e.move.to;
  graph->value[out].placed = true;
  if (wrong->put) wrong->put(&e, &graph->op[0]);
  graph->exchange = &e;
  graph->nexchange = 1;
  check(PASS_REDISTRIBUTE);
}

static void test_exchanges(void **state)
{
  (void)state;
  static const struct wrong_exchange right[] = {{"S(0) S(0) R", "S(0)[1] S(0)[0] R", NULL},
                                                {"R S(0) P", "S(0) R P", NULL},
                                                {"S(0)[1] S(0)[0] S(1)", "S(0) R S(1)", NULL}};
  static const struct wrong_exchange wrong[] = {
      {"R S(0) R", "S(0) R R", other_group},
      {"R S(0) R", "S(0) R R", smaller_group},
      {"R S(0) R", "S(0) R R", other_type},
      {"R S(0) R", "S(0) R R", other_shape},
      {"S(0) R R", "R S(0) R", other_layout},
      {"R S(0) R", "S(0) R R", no_exchange},
      {"P S(0) R", "R S(0) R", NULL},             /* nothing is reduced */
      {"S(0) S(0) R", "R S(0) S(0)", NULL},       /* c is none of the group's */
      {"R S(0) R", "S(0)[2] S(0)[1] S(0)", NULL}, /* so too */
      {"R S(0/2) R", "S(0) R R", NULL},           /* strided */
      {"S(1) S(0) R", "S(0) R R", NULL},          /* its pieces are no runs: they are not packed */
  };
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) passes(exchange, &right[i]);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    refused(exchange, &wrong[i], -SIGABRT, "redistribute", "exchange",
            "is not what a step of its kind does", NULL);
}

/* ------------------------------------------------------------------------------------- buckets */

static struct op *bucketed; /* a bucket of two */

/* Two parameters that are gathered as one. */
static void two_gathers(void)
{
  new_graph(1, (int[]){2});
  graph->nunit = 1;
  graph->unit = alloc(sizeof *graph->unit);
  graph->unit[0] = (struct unit){.name = "", .shards = 1};
  for (int i = 0; i < 2; i++) {
    int w = given(PARAMETER, "w", parse_shape("4x3"), parse_layout("S(0)"));
    struct op op = {.kind = OP_all_gather, .nin = 1, .in = {w}, .module = NONE, .of_unit = true};
    op.group = add_group(1);
    int whole = append_op(op);
    graph->value[whole].placed = graph->value[whole].is_output = true;
  }
  outline();
  bucket();
  const struct function *f = &graph->function[0];
  must(f->nop == 1, "%d operations, not a bucket", f->nop);
  bucketed = &graph->op[f->op[0]];
}

static struct op *member(int k)
{
  return &graph->op[bucketed->body[k]];
}

static void of_one(void)
{
  bucketed->nbody = 1;
}
static void in_no_buffer(void)
{
  bucketed->packed = false;
}
static void of_another_kind(void)
{
  member(1)->kind = OP_all_reduce;
}
static void of_another_group(void)
{
  member(1)->group = add_ordered_group(1, (int[]){0}) + 1;
}
static void of_another_type(void)
{
  graph->value[member(1)->in[0]].type = I32;
}
static void lies_otherwise(void)
{
  graph->value[member(1)->out].order = 1;
}
static void needs_another(void)
{
  member(1)->in[0] = member(0)->out;
}
static void too_small(void)
{
  graph->value[bucketed->buffer].shape.size[0]--;
}
static void of_another(void)
{
  graph->value[bucketed->buffer].op = bucketed->body[0];
}

static const struct fault wrong_bucket[] = {
    {of_one, PASS_BUCKET, "a bucket of less than two"},
    {in_no_buffer, PASS_BUCKET, "parts that are adjacent nowhere"},
    {of_another_kind, PASS_BUCKET, "a member is of another kind"},
    {of_another_group, PASS_BUCKET, "a member is of another kind"},
    {of_another_type, PASS_BUCKET, "a member is of another type"},
    {lies_otherwise, PASS_BUCKET, "a member has another dimension order after than before"},
    {needs_another, PASS_BUCKET, "a member reads a value not made yet"},
    {too_small, PASS_BUCKET, "its buffer does not fit its members"},
    {of_another, PASS_BUCKET, "its buffer is another's"},
};

static void find_wrong_bucket(const void *with)
{
  const struct fault *fault = with;
  two_gathers();
  if (fault->put) fault->put();
  check(PASS_BUCKET);
}

static void test_buckets(void **state)
{
  (void)state;
  passes(find_wrong_bucket, &(struct fault){0});
  for (size_t i = 0; i < sizeof wrong_bucket / sizeof *wrong_bucket; i++)
    refused(find_wrong_bucket, &wrong_bucket[i], -SIGABRT, "bucket", wrong_bucket[i].found, NULL);
}

/* ------------------------------------------------------------------------------------ the arena */

static void lie_in_memory(void (*put)(void))
{
  sound_graph();
  fold_modules();
  run_passes(PASS_OUTLINE + 1, PASS_LAST);
  put();
  check(PASS_MEMORY);
}

static void beyond(void)
{
  graph->memory->arena_bytes = 0;
}
static void together(void)
{
  for (int i = 0; i < graph->nvalue; i++) {
    graph->memory->of[i] =
        (struct allocation){.storage = i, .depth = 1, .in_flight = NONE, .last = 9};
    graph->value[i].stored = true;
  }
  graph->memory->arena_bytes = 1 << 20;
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
  refused(find_together, NULL, -SIGABRT, "memory", "it writes over what it still reads", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_sound_graph_passes),
      cmocka_unit_test(test_every_fault_is_found),
      cmocka_unit_test(test_steps_are_what_they_say),
      cmocka_unit_test(test_what_is_a_step_no_more_is_found),
      cmocka_unit_test(test_what_is_no_step_is_found),
      cmocka_unit_test(test_exchanges),
      cmocka_unit_test(test_buckets),
      cmocka_unit_test(test_the_arena),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
