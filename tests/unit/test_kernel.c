/* Kernels as C: random programs of pointwise operations and sums, with every way of broadcasting,
   on the parts of every rank, are written out by kernel.c, compiled by the system's C compiler and
   run; what they leave must be what the interpreter makes of the same numbers. Without a compiler
   there is no test. */
#include "interpreter.h"

#include <dlfcn.h>

/* ------------------------------------------------------------------------------- random kernels */

static struct function *f;

static int run(struct op op, struct layout layout)
{
  op.module = NONE;
  int i = make_op(op);
  struct value *out = &graph->value[graph->op[i].out];
  out->layout = layout;
  out->placed = true;
  f->op[f->nop++] = i;
  return graph->op[i].out;
}

/* An input that is broadcast to `space` where `stretched` has a bit, cut where the space is. */
static int input(struct shape space, struct layout layout, unsigned stretched)
{
  struct shape s = space;
  for (int d = 0; d < s.ndim; d++)
    if (stretched >> d & 1) s.size[d] = 1;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].kind == SHARD && s.size[layout.on[d].dim] == 1) layout.on[d] = R;
  return given(BATCH, text("x%d", graph->nvalue), s, layout);
}

static struct layout without(struct layout layout, unsigned dims, bool keep)
{
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement *p = &layout.on[d];
    if (p->kind != SHARD) continue;
    if (dims >> p->dim & 1) *p = P;
    for (int k = p->dim; p->kind == SHARD && !keep && k-- > 0;) p->dim -= dims >> k & 1;
  }
  return layout;
}

/* Some operations over one space, each on what was made before or on new inputs, then some sums. */
static void random_kernel(struct shape space, struct layout layout)
{
  static const enum op_kind unary[] = {OP_relu, OP_sigmoid, OP_tanh,  OP_silu,
                                       OP_neg,  OP_scale,   OP_square};
  static const enum op_kind binary[] = {OP_add,          OP_sub,       OP_mul,      OP_relu_back,
                                        OP_sigmoid_back, OP_tanh_back, OP_silu_back};
  unsigned all = (1u << space.ndim) - 1;
  int made[32], n = 0, steps = 1 + draw_below(6);
  made[n++] = input(space, layout, 0);
  for (int i = 0; i < steps; i++) {
    int a = made[draw_below(n)],
        b = draw_below(2) ? made[draw_below(n)] : input(space, layout, draw() & all);
    struct op op = {.nin = 2, .in = {a, b}, .scalar = draw_number()};
    op.kind = binary[draw_below(7)];
    if (!draw_below(3)) {
      op.kind = unary[draw_below(7)];
      op.nin = 1;
    } else if (!draw_below(5)) {
      op.kind = OP_variance_back;
      op.in[op.nin++] = input(space, layout, draw() & all);
    }
    if (op.kind == OP_add && draw_below(2)) {
      op.in[0] = b;
      op.in[1] = a;
    }
    made[n++] = run(op, layout);
  }
  if (!space.ndim || draw_below(3) == 0) return;
  unsigned dims = 1 + (unsigned)draw_below((int)all);
  bool keep = draw_below(2);
  for (int sums = 1 + draw_below(2); sums--;) {
    struct op op = {.kind = OP_sum,
                    .nin = 1,
                    .in = {made[draw_below(n)]},
                    .dims = dims,
                    .keep = keep,
                    .scalar = draw_below(2) ? 1 : draw_number()};
    if (!draw_below(3)) {
      op.kind = OP_variance;
      op.in[op.nin++] = input(space, layout, dims);
    }
    run(op, without(layout, dims, keep));
  }
}

/* Something that is no kernel ends it. */
static void end_kernel(void)
{
  int x = given(BATCH, text("x%d", graph->nvalue), parse_shape("2"), (struct layout){0});
  run((struct op){.kind = OP_to_partial, .nin = 1, .in = {x}}, (struct layout){0});
}

/* What no other operation reads is an output, and some others. */
static void keep_results(void)
{
  bool *read = alloc((size_t)graph->nvalue);
  for (int i = 0; i < graph->nop; i++)
    for (int k = 0; k < graph->op[i].nin; k++) read[graph->op[i].in[k]] = true;
  for (int i = 0; i < graph->nop; i++) {
    struct value *v = &graph->value[graph->op[i].out];
    if (graph->op[i].kind == OP_to_partial) continue;
    v->is_output = !read[graph->op[i].out] || !draw_below(3);
    v->name = text("y%d", graph->op[i].out);
  }
}

enum { KERNELS = 60 };

static void random_program(void)
{
  static const char *const spaces[] = {"5x7",   "1x6", "6x1", "12", "2x3x4",
                                       "3x1x5", "4x6", "",    "1",  "2x2x3x2"};
  new_graph(2, (int[]){2, 3});
  f = graph->function = alloc(sizeof *f);
  *f = (struct function){
      .name = "forward", .count = 1, .upward = true, .op = alloc(4096 * sizeof(int))};
  graph->nfunction = 1;
  for (int i = 0; i < KERNELS; i++) {
    struct shape space = parse_shape(spaces[draw_below(10)]);
    struct placement list[MAX_DIMS + 1];
    int n = every_placement(space.ndim, false, list);
    struct layout layout = nth_layout(list, n, draw_below(n * n));
    for (int d = 0; d < 2; d++)
      if (layout.on[d].kind == SHARD && space.size[layout.on[d].dim] == 1) layout.on[d] = R;
    random_kernel(space, layout);
    end_kernel();
  }
  keep_results();
  fuse();
  memory();
}

/* ------------------------------------------------------------------------- written and compiled */

/* The C of one rank's program: all kernels, and a function that runs them one after the other. */
static char *program_of(int rank)
{
  struct buffer code = {0}, b = {0}, places = {0};
  name_values(rank);
  put_text(&places, "", 0);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    const char *name = v->role == BATCH || v->is_output ? c_name(i) : NULL;
    if (name) put(&places, "  if (value == %d) return (float *)%s;\n", i, name);
  }
  name_locals(f);
  for (int k = 0; k < f->nop; k++)
    if (graph->op[f->op[k]].kind == OP_fused)
      put(&code, "  %s\n", statement_text(&graph->op[f->op[k]], rank));
  put(&b,
      "#include <math.h>\n#include <stdalign.h>\n#include <stddef.h>\n#include "
      "<string.h>\n%s\n%s\n",
      kernel_definitions(), memory_declaration());
  put(&b, "static struct memory all, *const m = &all;\n");
  put(&b, "float *place(int value)\n{\n%s  return NULL;\n}\n", places.text);
  put(&b, "void run(void)\n{\n%s%s}\n", local_declarations(code.text), code.text);
  return b.text;
}

static void *compile(const char *text, const char *directory)
{
  char c[512], command[2048], library[512];
  snprintf(c, sizeof c, "%s/kernels.c", directory);
  snprintf(library, sizeof library, "%s/kernels.so", directory);
  FILE *out = fopen(c, "w");
  must(out && fputs(text, out) >= 0 && fclose(out) == 0, "cannot write %s", c);
  snprintf(command, sizeof command,
           "${CC:-cc} -std=c11 -O1 -Wall -Wextra -Wconversion -Werror -fPIC -shared -o %s %s -lm",
           library, c);
  must(system(command) == 0, "%s does not compile", c);
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  must(handle, "%s", dlerror());
  return handle;
}

/* Runs the compiled program on this rank's parts and compares every output. */
static void run_on(int rank, const char *directory)
{
  void *handle = compile(program_of(rank), directory);
  float *(*place)(int);
  void (*go)(void);
  *(void **)&place = dlsym(handle, "place");
  *(void **)&go = dlsym(handle, "run");
  must(place && go, "the program has no place or run");
  struct machine m = new_machine();
  for (int v = 0; v < graph->nvalue; v++) {
    if (graph->value[v].role != BATCH) continue;
    struct array here = random_array(local_shape(v, rank));
    m.part[rank][v] = here;
    for (int64_t i = 0; i < elements(here.shape); i++) {
      here.at[i] = (float)here.at[i];
      if (place(v)) place(v)[i] = (float)here.at[i];
    }
  }
  go();
  for (int k = 0; k < graph->nop; k++) {
    const struct op *op = &graph->op[k];
    struct array in[MAX_INPUTS];
    if (op->nbody || op->kind == OP_to_partial) continue;
    for (int i = 0; i < op->nin; i++) in[i] = m.part[rank][op->in[i]];
    struct array out = m.part[rank][op->out] = evaluate(op, in, local_shape(op->out, rank));
    if (!graph->value[op->out].is_output) continue;
    const float *made = place(op->out);
    must(made || !elements(out.shape), "v%d has no place", op->out);
    for (int64_t i = 0; i < elements(out.shape); i++)
      must(is_near(made[i], out.at[i], 2e-4),
           "rank %d: v%d = %s: element %" PRId64 " is %g, not %g", rank, op->out,
           op_row[op->kind].name, i, made[i], out.at[i]);
  }
  dlclose(handle);
}

static void try_kernels(const void *with)
{
  const char *directory = with;
  unit_seed = 5;
  random_program();
  for (int rank = 0; rank < world_size(); rank++) {
    forget();
    run_on(rank, directory);
  }
}

static void test_kernels_compute_what_they_say(void **state)
{
  (void)state;
  if (system("${CC:-cc} --version > /dev/null 2>&1")) skip();
  char directory[] = "/tmp/kernelsXXXXXX", command[64];
  assert_non_null(mkdtemp(directory));
  struct ending e = run_child(try_kernels, directory);
  snprintf(command, sizeof command, "rm -r %s", directory);
  if (!e.status) assert_int_equal(system(command), 0);
  if (e.status) fail_msg("ended with %d, see %s: %s", e.status, directory, e.said);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kernels_compute_what_they_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
