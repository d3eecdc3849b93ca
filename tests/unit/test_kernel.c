/* Kernels as C and as CUDA: every row of the table of operators with an expression, whole and
   sharded in every way, and random programs of such operations with every kind of broadcast, on
   values in different dim orders. They are written for the parts of every rank, compiled by the
   system's compilers (the CUDA text for the stand-in) and run; their results must equal the
   reference's. Without a compiler there is no test. */
#include "check/check.h"
#include "emit/emit.h"
#include "../../runtime/base/philox4x32.h"
#include "build_files.h"
#include "instances.h"

#include <dlfcn.h>

static const uint64_t seed = UINT64_C(0x123456789abcdef);
enum { STEP = 5, MODULE = 2 }; /* t and l while the kernels run */

/* ------------------------------------------------------------------- programs with many kernels */

static struct function *f;
static enum phase phase; /* of the kernel that is made: a kernel ends where it changes */

static void end_kernel(void)
{
  phase = phase == FORWARD ? BACKWARD : FORWARD;
}

static void new_program(void)
{
  new_graph(2, (int[]){2, 3});
  f = graph->function = alloc(sizeof *f);
  *f = (struct function){
      .name = "forward", .count = 1, .upward = true, .op = alloc(8192 * sizeof(int))};
  graph->nfunction = 1;
}

static int run(struct op op, struct layout layout)
{
  op.module = NONE;
  op.phase = phase;
  int i = make_op(op);
  struct value *out = &graph->value[graph->op[i].out];
  out->layout = layout;
  out->placed = true;
  f->op[f->nop++] = i;
  return graph->op[i].out;
}

static bool is_tried(const struct op *op)
{
  return is_pointwise(op->kind) || is_reduce(op->kind);
}

/* Of some values another dimension than the first lies outermost. */
static void raise_some(void)
{
  for (int i = 0; i < graph->nvalue; i++) {
    struct value *v = &graph->value[i];
    if (v->shape.ndim > 1 && draw_below(3) == 0)
      v->order = moved_to_front(draw_below(v->shape.ndim), v->shape.ndim);
  }
}

/* What no other operation reads is an output, and some others. */
static void finish_program(void)
{
  raise_some();
  bool *read = alloc((size_t)graph->nvalue);
  for (int i = 0; i < graph->nop; i++)
    for (int k = 0; k < graph->op[i].nin; k++) read[graph->op[i].in[k]] = true;
  for (int i = 0; i < graph->nop; i++) {
    struct value *v = &graph->value[graph->op[i].out];
    if (!is_tried(&graph->op[i]) || !v->placed) continue;
    v->is_output = !read[graph->op[i].out] || !draw_below(3);
    v->name = text("y%d.y", i);
  }
  fuse();
  kernel_forms();
  memory();
}

/* ---------------------------------------------------------------------- every row, in every way */

/* Other types than the rows' usual ones. */
static const struct instance other_types[] = {
    {OP_sum, .in = {"#ab"}, .dims = 2, .scalar = 1},
    {OP_sum, .in = {"#ab"}, .dims = 1, .scalar = 1},
    {OP_sum, .in = {"#ab"}, .dims = 3, .scalar = 1},
    {OP_amax, .in = {"#ab"}, .dims = 1},
    {OP_amax, .in = {"#ab"}, .dims = 2},
    {OP_amin, .in = {"#abc"}, .dims = 2},
    {OP_amax, .in = {"?ab"}, .dims = 2},
    {OP_amin, .in = {"?ab"}, .dims = 1},
    {OP_mul, .in = {"#ab", "#b"}},
    {OP_mul, .in = {"#ab", "b"}},
    {OP_sub, .in = {"ab", "#a1"}},
    {OP_mul, .in = {"ab", "?ab"}},
    {OP_neg, .in = {"#ab"}},
    {OP_abs, .in = {"#ab"}},
    {OP_scale, .in = {"#ab"}, .scalar = 3},
    {OP_maximum, .in = {"#ab", "#b"}},
    {OP_where, .in = {"?ab", "#ab", "#b"}},
    {OP_where, .in = {"?ab", "?ab", "?b"}},
    {OP_where, .in = {"#ab", "ab", "#b"}},
    {OP_lt, .in = {"#ab", "ab"}},
    {OP_eq, .in = {"#ab", "#ab"}},
    {OP_logical_and, .in = {"#ab", "ab"}},
    {OP_logical_not, .in = {"ab"}},
    {OP_tril, .in = {"?ab"}},
    {OP_triu, .in = {"#ab"}, .number = {-1}},
    {OP_permute, .in = {"?abc"}, .equation = "abc->cab"},
    {OP_narrow, .in = {"#ab"}, .dims = 2, .number = {1}, .out = {"a1"}},
    {OP_pad, .in = {"?ab"}, .dims = 1, .number = {1}, .out = {"8b"}},
    {OP_gather, .in = {"#ab", "#ab"}, .dims = 1},
    {OP_index_select, .in = {"?ab", "#c"}, .dims = 2},
    {OP_expand, .in = {"#a"}, .dims = 2, .scalar = 1, .out = {"ab"}},
    {OP_expand, .in = {"?a"}, .dims = 2, .scalar = 1, .out = {"ab"}},
    {OP_full, .out = {"ab"}, .scalar = -7, .type = I32},
    {OP_full, .out = {"ab"}, .scalar = 1, .type = BOOL},
    {OP_full, .out = {"ab"}, .scalar = -INFINITY},
    {OP_full, .out = {"ab"}, .scalar = 1 / 3.0},
    {OP_index, .dims = 1, .out = {"a"}, .type = F32},
    {OP_index, .dims = 1, .out = {"a"}, .type = I32},
    {OP_index, .dims = 1, .out = {"a"}, .type = I64},
};
enum { OTHER_TYPES = sizeof other_types / sizeof *other_types };

/* The instance once more, cut in one way along each dimension of the mesh. */
static void add_cut(const struct instance *instance, const int64_t *size, int first, int second)
{
  struct choice list[MAX_CHOICES];
  struct letters l;
  const struct op *made = instantiate(instance, size);
  int id = (int)(made - graph->op), pick[] = {first, second};
  op_letters(made, &l);
  choices(made, &l, list);
  for (int i = 0; i < made->nin; i++) {
    struct value *in = &graph->value[made->in[i]];
    in->name = text("x%d.%c", id, 'a' + i);
    for (int d = 0; d < 2; d++) in->layout.on[d] = list[pick[d]].in[i];
  }
  for (int d = 0; d < 2; d++) graph->value[made->out].layout.on[d] = list[pick[d]].out[0];
  graph->value[made->out].placed = true;
  if (draws_stream(made->kind)) graph->op[id].stream_growth = draw_below(2) ? 3 : 0;
  graph->op[id].phase = phase;
  f->op[f->nop++] = id;
  end_kernel();
}

/* Operators that only look at one place are cut in a few ways, the others in all. */
static void add_instance(const struct instance *instance, const int64_t *size)
{
  struct choice list[MAX_CHOICES];
  struct letters l;
  const struct op *op = instantiate(instance, size);
  op_letters(op, &l);
  int nin = op->nin, n = choices(op, &l, list), few = is_broadcast(op->kind) ? 2 : 10;
  if (is_for_cuda()) few /= 2;
  int ways = n * n < few ? n * n : few;
  for (int k = 0; k < ways; k++) {
    int way = n * n <= few ? k : k < n ? k * n + draw_below(n) : draw_below(n * n);
    int pick[] = {way / n, way % n};
    if (fits_together(&l, nin, list, pick)) add_cut(instance, size, pick[0], pick[1]);
  }
}

static void every_row(void)
{
  static const int64_t sizes[][SIZES] = {{6, 4, 5, 2}, {5, 8, 3, 4}};
  new_program();
  for (int i = 0; i < OTHER_TYPES; i++) add_instance(&other_types[i], sizes[i % 2]);
  for (int i = 0; i < INSTANCES; i++) {
    const struct op op = {.kind = instances[i].kind};
    bool narrow = instances[i].type == BF16;
    if (!is_tried(&op) || narrow) continue;
    add_instance(&instances[i], sizes[i % 2]);
  }
  /* The place where index_within notes what is no index. */
  GROW(graph->index_use, graph->nindex_use, graph->index_use_room);
  graph->index_use[graph->nindex_use++] = (struct index_use){.what = "gather", .input = NONE};
  finish_program();
}

/* ------------------------------------------------------------------------------- random kernels */

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

static struct layout without(struct layout layout, unsigned dims, bool keep, enum reduction how)
{
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement *p = &layout.on[d];
    if (p->kind != SHARD) continue;
    if (dims >> p->dim & 1) *p = (struct placement){.kind = PARTIAL, .reduction = how};
    for (int k = p->dim; p->kind == SHARD && !keep && k-- > 0;) p->dim -= dims >> k & 1;
  }
  return layout;
}

static bool is_cut_along(struct layout layout, int dim)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].kind == SHARD && layout.on[d].dim == dim) return true;
  return false;
}

/* A value made of `a` whose elements come from other places: transposed, or a dimension moved;
   `a` itself where the space has no dimension for it. */
static int from_elsewhere(int a, struct shape space, struct layout layout)
{
  if (space.ndim == 2 && space.size[0] == space.size[1] && !is_cut_along(layout, 0) &&
      !is_cut_along(layout, 1))
    return run((struct op){.kind = OP_permute, .nin = 1, .in = {a}, .equation = "xy->yx"}, layout);
  int dim = space.ndim ? draw_below(space.ndim) : 0;
  if (!space.ndim || is_cut_along(layout, dim)) return a;
  struct op op = {.kind = OP_pad,
                  .nin = 1,
                  .in = {a},
                  .dims = 1u << dim,
                  .number = {draw_below(2)},
                  .phase = phase,
                  .module = NONE,
                  .line = 1};
  int out = append_op_shaped(op, space);
  graph->value[out].layout = layout;
  graph->value[out].placed = true;
  f->op[f->nop++] = graph->value[out].op;
  return out;
}

/* By way of other types: a float made whole and back, or the one of two that a comparison says. */
static int by_another_type(int a, int b, struct layout layout)
{
  if (draw_below(2)) {
    int whole = run((struct op){.kind = OP_cast, .nin = 1, .in = {a}, .type = I32}, layout);
    int sum = run((struct op){.kind = OP_add, .nin = 2, .in = {whole, whole}}, layout);
    return run((struct op){.kind = OP_cast, .nin = 1, .in = {sum}, .type = F32}, layout);
  }
  int truth = run((struct op){.kind = OP_gt, .nin = 2, .in = {a, b}}, layout);
  if (draw_below(2)) return run((struct op){.kind = OP_cast, .nin = 1, .in = {truth}}, layout);
  return run((struct op){.kind = OP_where, .nin = 3, .in = {truth, b, a}}, layout);
}

/* Some operations over one space, each on what was made before or on new inputs, then some
   reductions. */
static void random_kernel(struct shape space, struct layout layout)
{
  static const enum op_kind unary[] = {OP_relu, OP_sigmoid, OP_tanh,  OP_silu,
                                       OP_neg,  OP_scale,   OP_square};
  static const enum op_kind binary[] = {OP_add,          OP_sub,       OP_mul,      OP_relu_back,
                                        OP_sigmoid_back, OP_tanh_back, OP_silu_back};
  static const enum op_kind reductions[] = {OP_sum, OP_amax, OP_amin};
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
    }
    if (op.kind == OP_add && draw_below(2)) {
      op.in[0] = b;
      op.in[1] = a;
    }
    made[n++] = draw_below(5)   ? run(op, layout)
                : draw_below(2) ? from_elsewhere(a, space, layout)
                                : by_another_type(a, b, layout);
  }
  if (!space.ndim || draw_below(3) == 0) return;
  unsigned dims = 1 + (unsigned)draw_below((int)all);
  bool keep = draw_below(2);
  for (int count = 1 + draw_below(2); count--;) {
    int how = draw_below(3);
    struct op op = {.kind = reductions[how],
                    .nin = 1,
                    .in = {made[draw_below(n)]},
                    .dims = dims,
                    .keepdim = keep,
                    .scalar = draw_below(2) ? 1 : draw_number()};
    run(op, without(layout, dims, keep, (enum reduction)how));
  }
}

/* Values of elements and of rows, while a kernel by rows is made. */
struct rows {
  struct shape space;
  struct layout layout, of_rows;
  unsigned dims; /* of a row */
  int element[32], nelement, row[32], nrow;
};

static int pick_one(const int *list, int n)
{
  return list[draw_below(n)];
}

static int expanded(struct rows *r, int row)
{
  struct op op = {.kind = OP_expand,
                  .nin = 1,
                  .in = {row},
                  .dims = r->dims,
                  .keepdim = true,
                  .scalar = 0.5,
                  .phase = phase,
                  .module = NONE,
                  .line = 1};
  int out = append_op_shaped(op, r->space);
  graph->value[out].layout = r->layout;
  graph->value[out].placed = true;
  f->op[f->nop++] = graph->value[out].op;
  return out;
}

static int reduced(struct rows *r, int element, unsigned dims, bool keep)
{
  int how = draw_below(3);
  static const enum op_kind reductions[] = {OP_sum, OP_amax, OP_amin};
  struct op op = {.kind = reductions[how],
                  .nin = 1,
                  .in = {element},
                  .dims = dims,
                  .keepdim = keep,
                  .scalar = 0.25};
  return run(op, without(r->layout, dims, keep, (enum reduction)how));
}

static void step_by_rows(struct rows *r)
{
  static const enum op_kind unary[] = {OP_sigmoid, OP_tanh, OP_neg, OP_exp, OP_square};
  static const enum op_kind binary[] = {OP_add, OP_sub, OP_mul};
  unsigned all = (1u << r->space.ndim) - 1;
  int a = pick_one(r->element, r->nelement), b = pick_one(r->element, r->nelement);
  struct op two = {.kind = binary[draw_below(3)], .nin = 2, .in = {a, b}};
  struct op one = {.kind = unary[draw_below(3)], .nin = 1, .in = {a}};
  switch (draw_below(8)) {
  case 0:
  case 1:
    r->row[r->nrow++] = reduced(r, a, r->dims, true);
    return;
  case 2:
    one.in[0] = pick_one(r->row, r->nrow);
    r->row[r->nrow++] = run(one, r->of_rows);
    return;
  case 3:
    two.in[0] = pick_one(r->row, r->nrow);
    two.in[1] = pick_one(r->row, r->nrow);
    r->row[r->nrow++] = run(two, r->of_rows);
    return;
  case 4:
    two.in[1] = pick_one(r->row, r->nrow);
    r->element[r->nelement++] = run(two, r->layout);
    return;
  case 5:
    r->element[r->nelement++] = run(draw_below(2) ? one : two, r->layout);
    return;
  case 6:
    r->element[r->nelement++] = expanded(r, pick_one(r->row, r->nrow));
    return;
  default:
    if (draw_below(2))
      reduced(r, a, all & ~r->dims, draw_below(2));
    else
      run((struct op){.kind = OP_sum,
                      .nin = 1,
                      .in = {pick_one(r->row, r->nrow)},
                      .dims = all,
                      .scalar = 2},
          r->of_rows);
  }
}

/* Operations on the elements of rows, on what rows are reduced to, and on both; and reductions over
   the rows. */
static void random_kernel_by_rows(struct shape space, struct layout layout)
{
  unsigned all = (1u << space.ndim) - 1;
  int first = 1 + draw_below(space.ndim - 1);
  struct rows r = {.space = space, .layout = layout, .dims = all & ~((1u << first) - 1)};
  r.of_rows = without(layout, r.dims, true, SUM);
  r.element[r.nelement++] = input(space, layout, 0);
  r.row[r.nrow++] = input(space, layout, r.dims);
  for (int i = 4 + draw_below(12); i--;) step_by_rows(&r);
}

static void random_kernels(const char *const *spaces, int nspace, int kernels)
{
  new_program();
  for (int i = 0; i < kernels; i++) {
    struct shape space = parse_shape(spaces[draw_below(nspace)]);
    struct placement list[MAX_DIMS + 1];
    int n = every_placement(space.ndim, false, list);
    struct layout layout = nth_layout(list, n, draw_below(n * n));
    for (int d = 0; d < 2; d++)
      if (layout.on[d].kind == SHARD && space.size[layout.on[d].dim] == 1) layout.on[d] = R;
    if (space.ndim > 1 && draw_below(2))
      random_kernel_by_rows(space, layout);
    else
      random_kernel(space, layout);
    end_kernel();
  }
  finish_program();
}

static void random_program(void)
{
  static const char *const spaces[] = {"5x7", "1x6", "6x1", "12",  "2x3x4",  "3x1x5",
                                       "4x6", "",    "1",   "6x6", "2x2x3x2"};
  random_kernels(spaces, 11, 60);
}

/* Rows of one element: neighbours are of several rows. */
static void program_of_short_rows(void)
{
  static const char *const spaces[] = {"8x1", "4x5x1", "4x1x1", "12x1"};
  random_kernels(spaces, 4, 24);
}

/* Rows of which a thread has several vectors, and those that a whole block goes through; so many
   that each has several of them. */
static void program_of_long_rows(void)
{
  static const char *const spaces[] = {"3x1200", "20x517", "6x2x640", "300x12", "1100x8"};
  random_kernels(spaces, 5, 10);
}

/* ------------------------------------------------------------------------- written and compiled */

static const char c_head[] =
    "#include \"base/program.h\"\n#include \"kernels.h\"\n#include <math.h>\n"
    "#include <stdalign.h>\n#include <string.h>\n";
static const char c_memory[] = "static struct memory all, *const m = &all;\n"
                               "void copy(void *to, const void *from, size_t n)\n"
                               "{\n  memcpy(to, from, n);\n}\n"
                               "void begin(void)\n{\n}\n";
static const char cuda_head[] = "#include \"base/program.h\"\n#include \"kernels.h\"\n"
                                "cudaStream_t stream;\nbool profiling;\n"
                                "void note_work(const char *, cudaStream_t)\n{\n}\n"
                                "void fail_call(const char *, int, const char *, const char *)\n"
                                "{\n  abort();\n}\n";
static const char cuda_memory[] =
    "static struct memory *m;\n"
    "extern \"C\" void copy(void *to, const void *from, size_t n)\n"
    "{\n  CHECK_CUDA(cudaMemcpy(to, from, n, cudaMemcpyDefault));\n}\n"
    "extern \"C\" void begin(void)\n{\n"
    "  CHECK_CUDA(cudaMalloc((void **)&m, sizeof *m));\n}\n";

static const char step_begins[] =
    "  CHECK_CUDA(cudaMemcpy(&m->now.step, &step, sizeof step, cudaMemcpyHostToDevice));\n"
    "  const step_number t = &m->now.step;\n";

/* The program of one rank: a function that runs all its kernels one after the other. */
static char *program_of(int rank)
{
  struct buffer code = {0}, b = {0}, places = {0};
  int coordinate[MAX_MESH];
  const char *c = is_for_cuda() ? "extern \"C\" " : "";
  coordinate_of(rank, coordinate);
  name_values(rank);
  put_text(&places, "", 0);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    const char *name = v->role == BATCH || v->is_output ? c_name(i) : NULL;
    if (name) put(&places, "  if (value == %d) return %s;\n", i, name);
  }
  name_locals(f);
  for (int k = 0; k < f->nop; k++)
    if (graph->op[f->op[k]].kind == OP_fused)
      put(&code, "  %s\n", statement_text(&graph->op[f->op[k]], rank));
  put(&b, "%s%s%s", is_for_cuda() ? cuda_head : c_head, memory_declaration(),
      is_for_cuda() ? cuda_memory : c_memory);
  char *locals = local_declarations(code.text);
  put(&b, "%s", activation_table());
  put(&b, "static const int coordinate[] = {%d, %d};\n", coordinate[0], coordinate[1]);
  put(&b, "static const struct program its = {\"\", \"\", 6, %" PRIu64 "u};\n", seed);
  put(&b, "static const struct rank one = {%d, &its, coordinate};\n", rank);
  put(&b, "const struct rank *rank = &one;\nconst struct program *program = &its;\n");
  put(&b, "%svoid *place(int value)\n{\n%s  return NULL;\n}\n", c, places.text);
  bool counts = is_for_cuda() && has_word(code.text, "t");
  put(&b, "%svoid run(int %s, int l)\n{\n  (void)%s, (void)l;\n%s%s%s}\n", c, counts ? "step" : "t",
      counts ? "step" : "t", counts ? step_begins : "", locals, code.text);
  return b.text;
}

static const char *directory;

/* Of kernels that differ by sizes alone. */
static void share_some_bodies(void)
{
  share_bodies();
  must(!target->thread_grids || strstr(kernel_definitions(), "template <int n"),
       "no kernels share a body");
}

static void compile_kernels(void)
{
  share_some_bodies();
  write_text(directory, "kernels.h",
             text("%s%s%s%s",
                  is_for_cuda() ? text("#include <cuda_runtime.h>\n%s", constants_text()) : "",
                  "#include <stddef.h>\n", kernel_includes(), kernel_prototypes()));
  const char *head = is_for_cuda() ? "#include \"kernels.h\"\n#include "
                                     "\"cuda/kernels/kernels.h\"\n#include \"base/indices.h\"\n"
                                   : "#include \"kernels.h\"\n#include \"cpu/kernels/vectors.h\"\n";
  write_text(directory, is_for_cuda() ? "kernels.cu" : "kernels.c",
             text("%s%s\n", head, kernel_definitions()));
  if (!is_for_cuda()) {
    command(text(
        "${CC:-cc} -std=c11 -O1 -fopenmp -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
        " -fPIC -I%s -Iruntime -c -o %s/kernels.o %s/kernels.c",
        directory, directory, directory));
    return;
  }
  command(text("${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -Wno-unknown-pragmas -fPIC "
               "-Itests/cuda_on_cpu/include"
               " -I%s -Iruntime -x c++ -c -o %s/kernels.o %s/kernels.cu",
               directory, directory, directory));
}

static void *compile_rank(int rank)
{
  const char *source = text("%s/rank%d.%s", directory, rank, is_for_cuda() ? "cu" : "c");
  const char *library = text("%s/rank%d.so", directory, rank);
  if (is_for_cuda())
    command(text("mpicxx -std=c++17 -fPIC -shared -Wl,-Bsymbolic -DTPGEN_CUDA"
                 " -Itests/cuda_on_cpu/include -I%s -Iruntime -o %s -x c++ %s -x none"
                 " %s/kernels.o " STAND_IN,
                 directory, library, source, directory));
  else
    command(text(
        "mpicc -std=c11 -fopenmp -fPIC -shared -Wl,-Bsymbolic -Wall -Werror -I%s -Iruntime -o %s"
        " %s %s/kernels.o -lm",
        directory, library, source, directory));
  /* Its threads outlive it. */
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  must(handle, "%s", dlerror());
  return handle;
}

/* --------------------------------------------------------------------------------- run and seen */

/* A rank's program in this process. */
struct loaded {
  void *handle;
  void *(*place)(int);
  void (*begin)(void), (*run)(int, int), (*copy)(void *, const void *, size_t);
};

static struct loaded load_rank(int rank)
{
  struct loaded p = {.handle = compile_rank(rank)};
  *(void **)&p.place = dlsym(p.handle, "place");
  *(void **)&p.begin = dlsym(p.handle, "begin");
  *(void **)&p.run = dlsym(p.handle, "run");
  *(void **)&p.copy = dlsym(p.handle, "copy");
  must(p.place && p.begin && p.run && p.copy, "the program lacks a function");
  p.begin();
  return p;
}

static double get(const void *from, enum type type, int64_t i)
{
  switch (type) {
  case I32:
    return ((const int32_t *)from)[i];
  case I64:
    return (double)((const int64_t *)from)[i];
  case BOOL:
    return ((const unsigned char *)from)[i];
  default:
    return ((const float *)from)[i];
  }
}

static void set(void *to, enum type type, int64_t i, double x)
{
  switch (type) {
  case I32:
    ((int32_t *)to)[i] = (int32_t)x;
    break;
  case I64:
    ((int64_t *)to)[i] = (int64_t)x;
    break;
  case BOOL:
    ((unsigned char *)to)[i] = x != 0;
    break;
  default:
    ((float *)to)[i] = (float)x;
  }
}

/* Where the i-th element of a rank's part lies in memory. */
static int64_t in_memory(int value, int rank, int64_t i)
{
  int64_t index[MAX_DIMS], stride[MAX_DIMS], at = 0;
  struct shape here = local_shape(value, rank);
  indices_of(here, i, index);
  local_strides(value, rank, stride);
  for (int d = 0; d < here.ndim; d++) at += index[d] * stride[d];
  return at;
}

/* Gives the program a rank's part of an input, which becomes what its type can hold_part. */
static void give(const struct loaded *p, int rank, int value, struct array part)
{
  enum type type = graph->value[value].type;
  int64_t n = elements(part.shape);
  size_t bytes = (size_t)(n * type_bytes(type));
  void *raw = take(bytes);
  for (int64_t i = 0; i < n; i++) {
    set(raw, type, in_memory(value, rank, i), part.at[i]);
    part.at[i] = get(raw, type, in_memory(value, rank, i));
  }
  if (p->place(value)) p->copy(p->place(value), raw, bytes);
}

/* The maximum or minimum of nothing is as far as the type goes. */
static double within(enum type type, double x)
{
  if (!isinf(x) || type == F32) return x;
  if (type == BOOL) return x > 0;
  return x > 0 ? INT32_MAX : INT32_MIN;
}

/* Whether the float, or whole number, came out in place of the double. */
static bool is_same(double made, double expected)
{
  if (isnan(made) || isnan(expected)) return isnan(made) && isnan(expected);
  if (isinf(expected)) return made == expected;
  return is_near(made, expected, 2e-4);
}

static void compare(const struct loaded *p, int rank, const struct op *op, struct array expected)
{
  enum type type = graph->value[op->out].type;
  int64_t n = elements(expected.shape);
  size_t bytes = (size_t)(n * type_bytes(type));
  void *raw = take(bytes);
  if (!n) return;
  must(p->place(op->out), "v%d has no place", op->out);
  p->copy(raw, p->place(op->out), bytes);
  for (int64_t i = 0; i < n; i++) {
    double made = get(raw, type, in_memory(op->out, rank, i));
    must(is_same(made, within(type, expected.at[i])),
         "rank %d: v%d = %s: element %" PRId64 " of %s is %g, not %g", rank, op->out, op_name(op),
         i, shape_text(expected.shape), made, expected.at[i]);
  }
}

/* As runtime/base/elements.h has it, from its definition. */
static void draw_elements(const struct op *op, const struct places *at, struct array in,
                          struct array out)
{
  uint32_t key[] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, words[4];
  uint32_t stream = (uint32_t)(op->number[0] + MODULE * op->stream_growth);
  for (int64_t i = 0, n = elements(out.shape); i < n; i++) {
    int64_t index[MAX_DIMS];
    indices_of(out.shape, i, index);
    for (int d = 0; d < out.shape.ndim; d++) index[d] += at->out[0].first[d];
    int64_t flat = place_in_array(at->out[0].whole, index);
    uint32_t counter[] = {(uint32_t)flat, (uint32_t)((uint64_t)flat >> 32), stream, STEP};
    philox4x32(counter, key, words);
    const double x = (double)(words[0] >> 8) / 16777216, y = (double)(words[1] >> 8) / 16777216;
    if (op->kind == OP_dropout)
      out.at[i] = (float)x < (float)op->scalar ? 0 : in.at[i] / (1 - op->scalar);
    else if (op->kind == OP_uniform_like)
      out.at[i] = x;
    else
      out.at[i] = sqrt(-2 * log(x + 1.0 / 16777216)) * cos(6.283185307179586 * y);
  }
}

/* What the operation makes of its parts on this rank, by the reference. */
static struct array made_of(const struct op *op, const struct machine *m, int rank)
{
  struct array in[MAX_INPUTS], out = zeros(local_shape(op->out, rank));
  struct layout in_layout[MAX_INPUTS], out_layout = graph->value[op->out].layout;
  struct letters l;
  for (int i = 0; i < op->nin; i++) {
    in[i] = m->part[rank][op->in[i]];
    in_layout[i] = graph->value[op->in[i]].layout;
  }
  op_letters(op, &l);
  struct places at = places_at(op, &l, in_layout, &out_layout, rank);
  must(evaluate(op, in, &out, &at), "%s: the parts of rank %d do not fit", op_name(op), rank);
  if (draws_stream(op->kind)) draw_elements(op, &at, in[0], out);
  return out;
}

/* Runs the compiled program on this rank's parts and compares every output. */
static int run_on(int rank, struct machine *m)
{
  int compared = 0;
  struct loaded p = load_rank(rank);
  for (int v = 0; v < graph->nvalue; v++)
    if (m->part[rank][v].at && graph->value[v].role == BATCH) give(&p, rank, v, m->part[rank][v]);
  p.run(STEP, MODULE);
  for (int k = 0; k < graph->nop; k++) {
    const struct op *op = &graph->op[k];
    if (!is_tried(op) || !graph->value[op->out].placed) continue;
    m->part[rank][op->out] = made_of(op, m, rank);
    if (!graph->value[op->out].is_output) continue;
    compare(&p, rank, op, m->part[rank][op->out]);
    compared++;
  }
  dlclose(p.handle);
  return compared;
}

/* Numbers for all inputs, those that suit the first operation which reads them. */
static struct machine with_inputs(void)
{
  struct machine m = new_machine();
  for (int k = 0; k < graph->nop; k++) {
    const struct op *op = &graph->op[k];
    struct array in[MAX_INPUTS];
    if (op->nbody) continue;
    for (int i = 0; i < op->nin; i++) {
      in[i] = zeros(graph->value[op->in[i]].shape);
      if (graph->value[op->in[i]].role != BATCH || m.part[0][op->in[i]].at) continue;
      in[i] = suitable_input(op, i, in);
      load(&m, op->in[i], in[i]);
    }
  }
  return m;
}

static void try_program(void (*make)(void), bool cuda)
{
  unit_seed = 5;
  set_target(cuda ? "cuda" : "cpu");
  if (make == random_program) worth_threads = 8;
  make();
  for (int rank = 0; rank < world_size(); rank++)
    write_text(directory, text("rank%d.%s", rank, cuda ? "cu" : "c"), program_of(rank));
  compile_kernels();
  int compared = 0;
  struct machine m = with_inputs();
  int step = cuda ? 2 : 1; /* the stand-in is slow */
  for (int rank = 0; rank < world_size(); rank += step) compared += run_on(rank, &m);
  printf("%d kernels, %d operations compared\n", nkernels, compared);
  fflush(stdout);
}

struct trial {
  void (*make)(void);
  bool cuda;
};

static void try_kernels(const void *with)
{
  const struct trial *trial = with;
  try_program(trial->make, trial->cuda);
}

static void kernels_compute_what_they_say(struct trial trial)
{
  if (!directory || (trial.cuda && system("mpicxx --version > /dev/null 2>&1"))) skip();
  struct ending e = run_child(try_kernels, &trial);
  if (e.status) fail_msg("ended with %d, see %s: %s", e.status, directory, e.said);
}

static void test_every_row_in_c(void **state)
{
  (void)state;
  kernels_compute_what_they_say((struct trial){every_row, false});
}

static void test_every_row_in_cuda(void **state)
{
  (void)state;
  kernels_compute_what_they_say((struct trial){every_row, true});
}

static void test_random_kernels_in_c(void **state)
{
  (void)state;
  kernels_compute_what_they_say((struct trial){random_program, false});
}

static void test_random_kernels_in_cuda(void **state)
{
  (void)state;
  kernels_compute_what_they_say((struct trial){random_program, true});
}

static void test_long_rows_in_cuda(void **state)
{
  (void)state;
  kernels_compute_what_they_say((struct trial){program_of_long_rows, true});
}

static void test_short_rows_in_cuda(void **state)
{
  (void)state;
  kernels_compute_what_they_say((struct trial){program_of_short_rows, true});
}

/* What declares a variable asks so: one that only a comment names would be declared in vain. */
static void test_what_a_text_names(void **state)
{
  (void)state;
  assert_true(has_word("x[i] = a[i];", "a"));
  assert_true(has_word("a = 1; // of all", "a"));
  assert_true(has_word("// of all\n  a = 1;", "a"));
  assert_true(has_word("open(\"file://here\", a);", "a"));
  assert_true(has_word("// a row\n  x = a / 2; // a half", "a"));
  assert_false(has_word("x[i] = m->a + s.a + aa + 'a';", "a"));
  assert_false(has_word("// elements of a row", "a"));
  assert_false(has_word("x = y; // elements of a row\n  y = x;\n  // a", "a"));
}

/* A letter of the rule is a name by itself: a number of the operator may begin with it. */
static void test_letters_of_a_row(void **state)
{
  (void)state;
  const struct op op = {.kind = OP_add, .nin = 2};
  assert_true(names_letter(&op, "d"));
  assert_true(names_letter(&op, "d + 1"));
  assert_false(names_letter(&op, "b"));
  assert_false(names_letter(&op, "s"));
  assert_false(names_letter(&op, "wide"));
  assert_false(names_letter(&op, "e5m2"));
  assert_false(names_letter(&op, "x_y"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_row_in_c),      cmocka_unit_test(test_every_row_in_cuda),
      cmocka_unit_test(test_random_kernels_in_c), cmocka_unit_test(test_random_kernels_in_cuda),
      cmocka_unit_test(test_long_rows_in_cuda),   cmocka_unit_test(test_short_rows_in_cuda),
      cmocka_unit_test(test_what_a_text_names),   cmocka_unit_test(test_letters_of_a_row),
  };
  char temporary[] = "/tmp/kernelsXXXXXX", remove[64];
  setenv("OMP_WAIT_POLICY", "passive", 0); /* there may be more threads than cores */
  bool compilers = !system("${CC:-cc} --version > /dev/null 2>&1") &&
                   !system("mpicc --version > /dev/null 2>&1");
  if (compilers) directory = mkdtemp(temporary);
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  snprintf(remove, sizeof remove, "rm -r %s", temporary);
  return failures || (directory && system(remove));
}
