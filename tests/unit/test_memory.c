/* The arena: random programs are run with a mark on every four bytes that says whose they are. A
   value must find its own marks wherever it is read, in the order in which a kernel reads and
   writes; nothing else that memory.c may decide, lifetimes, sharing in place or offsets, is looked
   at for this. */
#include "functions.h"

/* ---------------------------------------------------------------------------------------- marks */

static int *mark;
static int *own_mark; /* by storage: of what has a place of its own */

static bool placed(int value)
{
  return in_arena(graph->value[value].storage);
}

static int words(int value)
{
  return (int)((largest_bytes(value) + 3) / 4);
}

static void write_marks(int value)
{
  if (!graph->value[value].stored) return;
  if (!placed(value)) {
    own_mark[graph->value[value].storage] = value;
    return;
  }
  must(graph->value[value].offset + largest_bytes(value) <= graph->arena_bytes, "beyond the arena");
  for (int i = 0; i < words(value); i++) mark[graph->value[value].offset / 4 + i] = value;
}

static void find_marks(int value, const struct op *op)
{
  const struct value *v = &graph->value[value];
  if (!v->stored || v->op == NONE) return;
  if (!placed(value)) {
    must(own_mark[v->storage] == value, "%s reads v%d, but finds v%d in its place",
         op_row[op->kind].name, value, own_mark[v->storage]);
    return;
  }
  for (int i = 0; i < words(value); i++)
    must(mark[v->offset / 4 + i] == value, "%s reads v%d, but finds v%d at %d",
         op_row[op->kind].name, value, mark[v->offset / 4 + i], (int)v->offset + 4 * i);
}

static bool made_inside(const struct op *kernel, int value)
{
  for (int k = 0; k < kernel->nbody; k++)
    if (graph->op[kernel->body[k]].out == value) return true;
  return false;
}

/* A kernel goes from element to element: for each, it does its pointwise operations in order,
   reading the element, then adds to its sums. What it reads at other elements must be there until
   its end. */
static void run_kernel(const struct op *kernel)
{
  for (int sums = 0; sums < 2; sums++)
    for (int k = 0; k < kernel->nbody; k++) {
      const struct op *op = &graph->op[kernel->body[k]];
      if (is_reduce(op->kind) != sums) continue;
      for (int i = 0; i < op->nin; i++)
        if (!made_inside(kernel, op->in[i])) find_marks(op->in[i], op);
      if (!sums) write_marks(op->out);
    }
  for (int k = 0; k < kernel->nbody; k++) {
    const struct op *op = &graph->op[kernel->body[k]];
    struct shape space = graph->value[is_reduce(op->kind) ? op->in[0] : op->out].shape;
    for (int i = 0; i < op->nin; i++)
      if (!made_inside(kernel, op->in[i]) && !same_shape(graph->value[op->in[i]].shape, space))
        find_marks(op->in[i], op);
    if (is_reduce(op->kind)) write_marks(op->out);
  }
}

static void run_step(const struct op *op)
{
  if (op->kind == OP_fused) {
    run_kernel(op);
    return;
  }
  for (int i = 0; i < op->nin; i++) find_marks(op->in[i], op);
  /* Only these may write over what they read. */
  bool in_place = op->kind == OP_all_reduce || op->kind == OP_to_partial;
  write_marks(op->out);
  for (int i = 0; i < op->nin && !in_place; i++) find_marks(op->in[i], op);
}

static void run_program(void)
{
  mark = alloc((size_t)graph->arena_bytes + 4);
  own_mark = alloc((size_t)graph->nvalue * sizeof *own_mark);
  memset(mark, 0xff, (size_t)graph->arena_bytes + 4);
  for (int i = 0; i < graph->nvalue; i++) own_mark[i] = NONE;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) run_step(&graph->op[graph->function[i].op[k]]);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].is_output) find_marks(i, &graph->op[graph->value[i].op]);
}

/* The largest sum of the bytes of what is in the arena at once, from first to last use. */
static int64_t bound(void)
{
  int64_t most = 0;
  int places = 0;
  for (int i = 0; i < graph->nfunction; i++) places += graph->function[i].nop;
  for (int at = 0; at < places; at++) {
    int64_t sum = 0;
    for (int i = 0; i < graph->nvalue; i++) {
      const struct value *v = &graph->value[i];
      if (in_arena(i) && v->storage == i && v->first <= at && at <= v->last)
        sum += (largest_bytes(i) + 63) / 64 * 64;
    }
    if (sum > most) most = sum;
  }
  return most;
}

struct program {
  uint64_t seed;
  int length;
};

static void run_random(const void *with)
{
  const struct program *p = with;
  unit_seed = p->seed;
  random_program(p->length);
  memory();
  run_program();
  must(graph->arena_bytes >= graph->live_bytes, "the arena is smaller than what lives in it");
  must(graph->live_bytes == bound(), "%" PRId64 " bytes live at once, not %" PRId64, bound(),
       graph->live_bytes);
  must((double)graph->arena_bytes <= 1.2 * (double)graph->live_bytes,
       "the arena is %" PRId64 " for %" PRId64, graph->arena_bytes, graph->live_bytes);
  for (int i = 0; i < graph->nvalue; i++)
    must(!in_arena(i) || graph->value[i].offset % 64 == 0, "v%d is not aligned", i);
}

static void test_values_find_what_they_wrote(void **state)
{
  (void)state;
  int programs = 0;
  for (uint64_t seed = 1; seed <= 300; seed++, programs++)
    passes(run_random, &(struct program){seed, 4 + (int)(seed % 60)});
  print_message("%d programs\n", programs);
}

/* ------------------------------------------------------------------------------- near the bound */

static int64_t bytes_of(const char *shape)
{
  return (elements(parse_shape(shape)) * 4 + 63) / 64 * 64;
}

/* A deep model: each layer makes two values, one of which its backward reads. */
static void deep(const void *with)
{
  const char *const *shape = with;
  new_graph(1, (int[]){1});
  int saved[64], x = given(BATCH, "x", parse_shape(shape[0]), (struct layout){0});
  for (int l = 0; l < 64; l++) {
    x = run_in_phase((struct op){.kind = OP_pack, .nin = 1, .in = {x}});
    graph->value[x].shape = parse_shape(shape[l % 3]);
    saved[l] = x;
    x = run_in_phase((struct op){.kind = OP_pack, .nin = 1, .in = {x}});
  }
  int g = run_in_phase((struct op){.kind = OP_pack, .nin = 1, .in = {x}, .phase = BACKWARD});
  for (int l = 63; l >= 0; l--) {
    g = run_in_phase((struct op){.kind = OP_matmul,
                                 .nin = 2,
                                 .in = {g, saved[l]},
                                 .equation = "ab,cd->ab",
                                 .phase = BACKWARD});
    graph->value[g].shape = parse_shape(shape[(l + 2) % 3]);
  }
  graph->value[g].is_output = true;
  fuse();
  memory();
  run_program();
  must((double)graph->arena_bytes <= 1.005 * (double)graph->live_bytes,
       "the arena is %" PRId64 " for %" PRId64, graph->arena_bytes, graph->live_bytes);
}

static void test_deep_models_are_near_the_bound(void **state)
{
  (void)state;
  passes(deep, (const char *[]){"64x64", "64x64", "64x64"});
  passes(deep, (const char *[]){"64x64", "64x256", "64x64"});
  passes(deep, (const char *[]){"100x70", "30x9", "211x3"});
}

/* ------------------------------------------------------------------------------------- in place */

static bool shared(int a, int b)
{
  return graph->value[a].storage == graph->value[b].storage;
}

static int first_value(const char *shape)
{
  int x = given(BATCH, "x", parse_shape(shape), (struct layout){0});
  return run_in_phase((struct op){.kind = OP_pack, .nin = 1, .in = {x}});
}

static int pointwise(enum op_kind kind, int a, int b)
{
  return run_in_phase(
      (struct op){.kind = kind, .nin = b == NONE ? 1 : 2, .in = {a, b}, .scalar = 1});
}

static void keep(int value)
{
  run_in_phase((struct op){.kind = OP_slice, .nin = 1, .in = {value}});
}

/* What is read for the last time gives its bytes to what is made of it. */
static void in_place(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("4x8"), b = pointwise(OP_tanh, a, NONE);
  keep(b);
  fuse();
  memory();
  must(shared(a, b), "a dead input is not used again");
  must(graph->arena_bytes == bytes_of("4x8"), "%" PRId64 " bytes", graph->arena_bytes);
  run_program();
}

static void read_later(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("4x8"), b = pointwise(OP_tanh, a, NONE);
  keep(b);
  keep(a);
  fuse();
  memory();
  must(!shared(a, b), "an input is overwritten that is read later");
  run_program();
}

/* tanh and a + tanh in one kernel, both kept: the sum still needs a when tanh is written. */
static void read_later_in_the_kernel(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("4x8"), b = pointwise(OP_tanh, a, NONE), c = pointwise(OP_add, b, a);
  keep(b);
  keep(c);
  fuse();
  memory();
  must(!shared(a, b), "an input is overwritten that the same kernel reads later");
  must(shared(a, c), "a dead input is not used again");
  run_program();
}

/* The same where the kernel's sum reads it. */
static void read_by_the_sum(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("4x8"), b = pointwise(OP_tanh, a, NONE);
  int s = run_in_phase((struct op){.kind = OP_sum, .nin = 1, .in = {a}, .dims = 3, .scalar = 1});
  keep(b);
  keep(s);
  fuse();
  memory();
  must(!shared(a, b), "an input is overwritten that the kernel's sum reads");
  run_program();
}

/* A row that every row of the output reads: it is needed until the last. */
static void read_for_every_row(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("1x8"), b = first_value("4x8"), c = pointwise(OP_add, a, b);
  keep(c);
  fuse();
  memory();
  must(!shared(a, c), "a broadcast input is overwritten");
  must(shared(b, c), "a dead input is not used again");
  run_program();
}

/* Parameters and inputs of the step are never written over. */
static void read_from_outside(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int x = given(BATCH, "x", parse_shape("4x8"), (struct layout){0});
  int w = given(PARAMETER, "w", parse_shape("4x8"), (struct layout){0});
  int a = pointwise(OP_tanh, x, NONE), b = pointwise(OP_exp, w, NONE);
  keep(a);
  keep(b);
  fuse();
  memory();
  must(!shared(a, x) && !shared(b, w), "what is not in the arena is overwritten");
  must(graph->value[x].storage == x && graph->value[w].storage == w, "it has moved");
}

/* A sum over ranks is done in place, into the place of its own that its result has. */
static void reduce_in_place(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  int w = given(PARAMETER, "w", parse_shape("4x8"), (struct layout){0});
  int a = first_value("4x8");
  int g =
      run_in_phase((struct op){.kind = OP_all_reduce, .nin = 1, .in = {a}, .group = add_group(1)});
  graph->value[g].role = GRADIENT;
  graph->value[g].of = w;
  fuse();
  memory();
  must(graph->value[a].storage == g, "a gradient is not reduced where it lies");
  must(graph->arena_bytes == 0, "%" PRId64 " bytes in the arena", graph->arena_bytes);
}

static void test_in_place(void **state)
{
  (void)state;
  passes(in_place, NULL);
  passes(read_later, NULL);
  passes(read_later_in_the_kernel, NULL);
  passes(read_by_the_sum, NULL);
  passes(read_for_every_row, NULL);
  passes(read_from_outside, NULL);
  passes(reduce_in_place, NULL);
}

/* Parts of unlike layouts have unlike sizes on some ranks, even where rank 0's are alike. */
static void unlike_layouts(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  int x = given(BATCH, "x", parse_shape("2x2"), parse_layout("S(0)"));
  int a = run_in_phase((struct op){.kind = OP_pack, .nin = 1, .in = {x}});
  int b =
      run_in_phase((struct op){.kind = OP_all_reduce, .nin = 1, .in = {a}, .group = add_group(1)});
  graph->value[b].layout = parse_layout("S(1)");
  keep(b);
  fuse();
  memory();
  must(!shared(a, b), "parts along different dimensions share their bytes");
}

/* The arena has room for the largest part of any rank. */
static void uneven(const void *with)
{
  (void)with;
  new_graph(2, (int[]){2, 3});
  int x = given(BATCH, "x", parse_shape("7x50"), parse_layout("S(0) S(1)"));
  int a = run_in_phase((struct op){.kind = OP_pack, .nin = 1, .in = {x}});
  keep(a);
  fuse();
  memory();
  must(graph->arena_bytes == (4 * 17 * 4 + 63) / 64 * 64, "%" PRId64 " bytes", graph->arena_bytes);
}

static void empty(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  function_of_phase(FORWARD);
  fuse();
  memory();
  must(graph->arena_bytes == 0 && graph->live_bytes == 0, "an arena for nothing");
}

static void test_sizes(void **state)
{
  (void)state;
  passes(unlike_layouts, NULL);
  passes(uneven, NULL);
  passes(empty, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values_find_what_they_wrote),
      cmocka_unit_test(test_deep_models_are_near_the_bound),
      cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
