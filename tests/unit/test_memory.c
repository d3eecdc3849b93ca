/* The arena: random programs are run with a mark on every four bytes that names the owner. A value
   must find its own marks at every read, in the order in which a kernel reads and writes. The test
   looks at nothing else that memory.c decides: lifetimes, in-place sharing or offsets. */
#include "function_passes/function_passes.h"
#include "functions.h"

#include <string.h>

/* ---------------------------------------------------------------------------------------- marks */

static int *mark;
static int *own_mark; /* by storage: of what has a place of its own */

static bool placed(int value)
{
  return in_arena(graph->memory->of[value].storage);
}

static int words(int value)
{
  return (int)((largest_bytes(value) + 3) / 4);
}

/* A view bears the mark of what it shows, whether it lies there or is a copy. */
static void write_marks(int value)
{
  int whose = shown_by(value);
  if (!graph->value[value].stored) return;
  if (!placed(value)) {
    own_mark[graph->memory->of[value].storage] = whose;
    return;
  }
  must(graph->memory->of[value].offset + largest_bytes(value) <= graph->memory->arena_bytes,
       "beyond the arena");
  for (int i = 0; i < words(value); i++) mark[graph->memory->of[value].offset / 4 + i] = whose;
}

static void find_marks(int value, const struct op *op)
{
  const struct value *v = &graph->value[value];
  struct allocation a = allocation_of(value);
  int whose = shown_by(value);
  if (!v->stored || graph->value[whose].op == NONE) return;
  if (!placed(value)) {
    must(own_mark[a.storage] == whose, "%s reads v%d, but finds v%d in its place",
         op_row[op->kind].name, value, own_mark[a.storage]);
    return;
  }
  for (int i = 0; i < words(value); i++)
    must(mark[a.offset / 4 + i] == whose, "%s reads v%d, but finds v%d at %d",
         op_row[op->kind].name, value, mark[a.offset / 4 + i], (int)a.offset + 4 * i);
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
  for (int k = 0; k < op->nout; k++) write_marks(op->out + k);
  /* A product may write over what it adds to, but not over its operands. */
  int read_on = op->kind == OP_matmul && op->nin == 3 ? 2 : op->nin;
  for (int i = 0; i < read_on && !in_place; i++) find_marks(op->in[i], op);
}

static void run_program(void)
{
  mark = alloc((size_t)graph->memory->arena_bytes + 4);
  own_mark = alloc((size_t)graph->nvalue * sizeof *own_mark);
  memset(mark, 0xff, (size_t)graph->memory->arena_bytes + 4);
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
      struct allocation a = allocation_of(i);
      if (in_arena(i) && a.storage == i && a.first <= at && at <= a.last)
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
  must(graph->memory->arena_bytes >= graph->memory->live_bytes,
       "the arena is smaller than what lives in it");
  must(graph->memory->live_bytes == bound(), "%" PRId64 " bytes live at once, not %" PRId64,
       bound(), graph->memory->live_bytes);
  must((double)graph->memory->arena_bytes <= 1.08 * (double)graph->memory->live_bytes,
       "the arena is %" PRId64 " for %" PRId64, graph->memory->arena_bytes,
       graph->memory->live_bytes);
  for (int i = 0; i < graph->nvalue; i++)
    must(!in_arena(i) || graph->memory->of[i].offset % 64 == 0, "v%d is not aligned", i);
}

/* What the pass leaves depends on the program alone: not on what was asked, nor on having run. */
static void run_twice(const void *with)
{
  const struct program *p = with;
  unit_seed = p->seed;
  random_program(p->length);
  int64_t asked = live_bytes();
  must(!graph->memory, "a question leaves a plan");
  memory();
  struct memory_plan *first = graph->memory;
  int64_t arena_bytes = graph->memory->arena_bytes;
  must(graph->memory->live_bytes == asked, "%" PRId64 " bytes live, not %" PRId64,
       graph->memory->live_bytes, asked);
  size_t size = (size_t)graph->nvalue * sizeof *first->of;
  struct allocation *before = alloc(size);
  memcpy(before, first->of, size);
  must(live_bytes() == asked && can_live_in(asked + asked / 8), "a question is answered anew");
  must(!memcmp(before, first->of, size), "a question changes the plan");
  memory();
  must(graph->memory != first && !memcmp(before, graph->memory->of, size), "it lies elsewhere");
  must(graph->memory->live_bytes == asked && graph->memory->arena_bytes == arena_bytes,
       "it takes other bytes");
}

static void test_it_may_run_again(void **state)
{
  (void)state;
  for (uint64_t seed = 1; seed <= 50; seed++)
    passes(run_twice, &(struct program){seed, 4 + (int)(seed % 60)});
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
  must((double)graph->memory->arena_bytes <= 1.005 * (double)graph->memory->live_bytes,
       "the arena is %" PRId64 " for %" PRId64, graph->memory->arena_bytes,
       graph->memory->live_bytes);
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
  return graph->memory->of[a].storage == graph->memory->of[b].storage;
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
  must(graph->memory->arena_bytes == bytes_of("4x8"), "%" PRId64 " bytes",
       graph->memory->arena_bytes);
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
  must(graph->memory->of[x].storage == x && graph->memory->of[w].storage == w, "it has moved");
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
  must(graph->memory->of[a].storage == g, "a gradient is not reduced where it lies");
  must(graph->memory->arena_bytes == 0, "%" PRId64 " bytes in the arena",
       graph->memory->arena_bytes);
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

/* ---------------------------------------------------------------------------------------- views */

static int view_of(int value)
{
  return run_in_phase(
      (struct op){.kind = OP_view, .nin = 1, .in = {value}, .equation = "ab->1(ab)"});
}

/* A view has no bytes of its own, whatever it shows, and keeps them alive. */
static void a_view_shows(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int x = given(BATCH, "x", parse_shape("4x8"), (struct layout){0});
  int w = given(PARAMETER, "w", parse_shape("4x8"), (struct layout){0});
  int a = first_value("4x8"), b = view_of(a), again = view_of(b), c = first_value("4x8");
  int of_batch = view_of(x), of_parameter = view_of(w);
  keep(c);
  keep(again);
  keep(of_batch);
  keep(of_parameter);
  fuse();
  memory();
  must(shared(a, b) && shared(a, again) && same_place(a, again), "a view has bytes of its own");
  must(shared(x, of_batch) && shared(w, of_parameter), "a view of what is given has its own");
  must(graph->memory->of[a].last >= graph->memory->of[again].last,
       "what is shown dies before its view");
  must(graph->memory->arena_bytes == 2 * bytes_of("4x8"), "%" PRId64 " bytes",
       graph->memory->arena_bytes);
  run_program();
}

/* Nothing is written over what a view still shows, nor over what it shows itself. */
static void a_view_is_kept(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("4x8"), b = view_of(a), c = pointwise(OP_tanh, a, NONE);
  int d = first_value("4x8"), e = view_of(d), f = pointwise(OP_tanh, e, NONE);
  keep(b);
  keep(c);
  keep(d);
  keep(f);
  fuse();
  memory();
  must(!shared(a, c), "what a view shows is overwritten");
  must(!shared(d, f), "what is read later is overwritten through its view");
  run_program();
}

static void a_dead_view_is_used_again(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int x = given(BATCH, "x", parse_shape("4x8"), (struct layout){0});
  int a = first_value("4x8"), b = view_of(a), c = pointwise(OP_tanh, b, NONE);
  int d = view_of(x), e = pointwise(OP_tanh, d, NONE);
  keep(c);
  keep(e);
  fuse();
  memory();
  must(shared(a, c), "a dead view's bytes are not used again");
  must(!shared(e, x), "what is given is overwritten through its view");
  run_program();
}

/* One kernel that reads the same bytes under two names, and writes. */
static void two_names_in_a_kernel(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("1x32"), b = view_of(a);
  int c = pointwise(OP_tanh, a, NONE), d = pointwise(OP_add, c, b);
  keep(c);
  keep(d);
  fuse();
  memory();
  must(!shared(a, c), "an input is overwritten that the kernel reads later by another name");
  must(shared(a, d), "a dead input is not used again");
  run_program();
}

/* What leaves the program lies in its own place: there a view's bytes are made at once, or copied
   where they are still needed. */
static void a_view_leaves(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("4x8"), b = view_of(a), c = first_value("4x8"), d = view_of(c);
  keep(c);
  graph->value[b].is_output = graph->value[d].is_output = true;
  fuse();
  memory();
  must(graph->memory->of[b].storage == b && graph->memory->of[a].storage == b, "it is copied");
  must(graph->memory->of[d].storage == d && graph->memory->of[c].storage == c, "it is not copied");
  run_program();
}

/* Every rank's part is the whole maximum already; of a sum all but one rank's is zero. A part that
   is put among what changes nothing is one of something larger. */
static void pending_values(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  int part = first_value("4x8");
  graph->value[part].layout = parse_layout("S(0)");
  int put =
      run_in_phase((struct op){.kind = OP_to_partial, .nin = 1, .in = {part}, .reduction = MAX});
  graph->value[put].layout = parse_layout("P(max)");
  keep(put);
  int a = first_value("4x8");
  int most =
      run_in_phase((struct op){.kind = OP_to_partial, .nin = 1, .in = {a}, .reduction = MAX});
  int sum = run_in_phase((struct op){.kind = OP_to_partial, .nin = 1, .in = {a}});
  keep(most);
  keep(sum);
  keep(a);
  fuse();
  memory();
  must(shared(a, most), "a maximum is copied");
  must(!shared(a, sum), "a value is overwritten by its summands");
  must(!shared(part, put), "a part is taken for what it is put into");
}

static void test_views(void **state)
{
  (void)state;
  passes(a_view_shows, NULL);
  passes(a_view_is_kept, NULL);
  passes(a_dead_view_is_used_again, NULL);
  passes(two_names_in_a_kernel, NULL);
  passes(a_view_leaves, NULL);
  passes(pending_values, NULL);
}

/* ------------------------------------------------------------------ kernels that look elsewhere */

static int index_of(int value)
{
  int i = given(BATCH, "i", graph->value[value].shape, (struct layout){0});
  graph->value[i].type = I32;
  return i;
}

static void looks_elsewhere(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("8x8"), b = first_value("8x8"), c = first_value("8x8");
  int transposed =
      run_in_phase((struct op){.kind = OP_permute, .nin = 1, .in = {a}, .equation = "ab->ba"});
  int summed = run_in_phase((struct op){.kind = OP_cumsum, .nin = 1, .in = {b}, .dims = 2});
  int moved =
      run_in_phase((struct op){.kind = OP_gather, .nin = 2, .in = {c, index_of(c)}, .dims = 2});
  keep(transposed);
  keep(summed);
  keep(moved);
  fuse();
  memory();
  must(!shared(a, transposed), "a kernel overwrites what it reads in another order");
  must(!shared(b, summed), "a kernel of its own overwrites its input");
  must(!shared(c, moved), "a kernel overwrites what it reads by index");
  run_program();
}

/* What is made in the same kernel is not there yet at other elements. */
static void looks_elsewhere_in_the_kernel(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("8x8"), b = pointwise(OP_tanh, a, NONE);
  int transposed =
      run_in_phase((struct op){.kind = OP_permute, .nin = 1, .in = {b}, .equation = "ab->ba"});
  keep(transposed);
  fuse();
  const struct function *f = function_of_phase(FORWARD);
  for (int k = 0; k < f->nop; k++)
    must(graph->op[f->op[k]].nbody < 2, "a kernel reads what it has not made yet");
  must(graph->value[b].stored, "what another kernel reads is not stored");
}

static void test_elsewhere(void **state)
{
  (void)state;
  passes(looks_elsewhere, NULL);
  passes(looks_elsewhere_in_the_kernel, NULL);
}

/* All that a kernel writes has a place, read or not. */
static void several_outputs(const void *with)
{
  (void)with;
  static struct custom two_values = {.name = "pair", .rule = "ab->ab,a 1", .linear = ""};
  new_graph(1, (int[]){1});
  graph->custom = &two_values;
  int a = first_value("4x8"), kept = first_value("4x8");
  int pair = run_in_phase((struct op){.kind = OP_custom, .nin = 1, .in = {a}});
  keep(pair);
  keep(kept);
  fuse();
  memory();
  must(graph->value[pair + 1].stored && in_arena(pair + 1), "an output has no place");
  must(!shared(a, pair) && !shared(a, pair + 1), "a kernel of its own overwrites its input");
  must(graph->memory->of[pair + 1].made == graph->memory->of[pair].made,
       "they are made at other times");
  run_program();
}

static void test_several_outputs(void **state)
{
  (void)state;
  passes(several_outputs, NULL);
}

/* A truth is a byte. */
static void truths(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int a = first_value("9x9"), b = pointwise(OP_gt, a, a), c = pointwise(OP_exp, a, NONE);
  keep(a);
  keep(b);
  keep(c);
  fuse();
  memory();
  must(graph->value[b].type == BOOL && arena_size(graph->memory, b) == 128,
       "81 truths take %" PRId64 " bytes", arena_size(graph->memory, b));
  must(!shared(a, b) && !shared(b, c), "types of unlike sizes share their bytes");
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
  must(graph->memory->arena_bytes == (4 * 17 * 4 + 63) / 64 * 64, "%" PRId64 " bytes",
       graph->memory->arena_bytes);
}

static void empty(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  function_of_phase(FORWARD);
  fuse();
  memory();
  must(graph->memory->arena_bytes == 0 && graph->memory->live_bytes == 0, "an arena for nothing");
}

static void test_sizes(void **state)
{
  (void)state;
  passes(unlike_layouts, NULL);
  passes(truths, NULL);
  passes(uneven, NULL);
  passes(empty, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values_find_what_they_wrote),
      cmocka_unit_test(test_it_may_run_again),
      cmocka_unit_test(test_deep_models_are_near_the_bound),
      cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_views),
      cmocka_unit_test(test_elsewhere),
      cmocka_unit_test(test_several_outputs),
      cmocka_unit_test(test_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
