/* bfloat16: the conversions of runtime/base/elements.h, on every bit pattern; and kernels that read
   and write it, as C and as CUDA for the stand-in: on all roundings, NaN, infinities and denormals
   their results equal the definition's to the bit. Without a compiler no kernel is run. */
#include "emit/emit.h"
#include "../../runtime/base/elements.h"
#include "build_files.h"

#include <dlfcn.h>

/* --------------------------------------------------------------------------- by the definition */

enum { PATTERNS = 1 << 16, SIDE = 256 };

/* What the 15 lower bits stand for; the first of infinity as if the numbers went on. */
static double magnitude(int bits)
{
  int exponent = bits >> 7, fraction = bits & 127;
  return exponent ? ldexp(128 + fraction, exponent - 134) : ldexp(fraction, -133);
}

static double value_of(int bits)
{
  int low = bits & 0x7fff;
  double x = low > 0x7f80 ? NAN : low == 0x7f80 ? INFINITY : magnitude(low);
  return bits & 0x8000 ? -x : x;
}

/* The nearest bfloat16, of two as near the even one. */
static int nearest(double x)
{
  if (isnan(x)) return 0x7fc0;
  double size = fabs(x);
  int sign = signbit(x) ? 0x8000 : 0, low = 0, high = 0x7f80;
  if (size >= magnitude(high)) return sign | high;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    *(magnitude(middle) <= size ? &low : &high) = middle;
  }
  double down = size - magnitude(low), up = magnitude(high) - size;
  return sign | (down < up || (down == up && low % 2 == 0) ? low : high);
}

static bool is_nan_pattern(int bits)
{
  return (bits & 0x7fff) > 0x7f80;
}

static float float_of(uint32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Floats below, at and above the middle between two neighbours. */
static const uint32_t between[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
enum { BETWEEN = sizeof between / sizeof *between };

static void test_every_pattern_is_a_float_and_comes_back(void **state)
{
  (void)state;
  for (int bits = 0; bits < PATTERNS; bits++) {
    float x = bf16_to_float((bf16)bits);
    int back = float_to_bf16(x);
    if (is_nan_pattern(bits)) {
      if (!isnan(x)) fail_msg("%04x is %g", (unsigned)bits, (double)x);
      if (back != (bits | 0x40)) fail_msg("NaN %04x becomes %04x", (unsigned)bits, (unsigned)back);
      continue;
    }
    if ((double)x != value_of(bits) || back != bits)
      fail_msg("%04x is %g, and comes back as %04x", (unsigned)bits, (double)x, (unsigned)back);
  }
}

static void test_floats_are_rounded_to_the_nearest(void **state)
{
  (void)state;
  for (uint32_t bits = 0; bits < PATTERNS; bits++)
    for (int k = 0; k < BETWEEN; k++) {
      float x = float_of(bits << 16 | between[k]);
      int made = float_to_bf16(x), expected = nearest((double)x);
      bool same = isnan(x) ? is_nan_pattern(made) : made == expected;
      if (!same)
        fail_msg("%a becomes %04x, not %04x", (double)x, (unsigned)made, (unsigned)expected);
    }
}

/* ----------------------------------------------------------------------------------- the trials */

/* An operation, and what it makes of the inputs' elements, in floats, before that is stored. */
struct trial {
  enum op_kind kind;
  int nin;
  enum type in[3], out;
  float (*of)(float a, float b, float c);
  double scalar;
};

static float first(float a, float b, float c)
{
  return (void)b, (void)c, a;
}
static float is_some(float a, float b, float c)
{
  return (void)b, (void)c, a != 0;
}
static float is_none(float a, float b, float c)
{
  return (void)b, (void)c, a == 0;
}
static float sum_of(float a, float b, float c)
{
  return (void)c, a + b;
}
static float difference(float a, float b, float c)
{
  return (void)c, a - b;
}
static float product(float a, float b, float c)
{
  return (void)c, a * b;
}
static float quotient(float a, float b, float c)
{
  return (void)c, a / b;
}
static float greater_of(float a, float b, float c)
{
  return (void)c, isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}
static float opposite(float a, float b, float c)
{
  return (void)b, (void)c, -a;
}
static float third_of(float a, float b, float c)
{
  return (void)b, (void)c, 0.3f * a;
}
static float root(float a, float b, float c)
{
  return (void)b, (void)c, sqrtf(a);
}
static float chosen(float a, float b, float c)
{
  return a != 0 ? b : c;
}
static float is_less(float a, float b, float c)
{
  return (void)c, a < b;
}
static float both(float a, float b, float c)
{
  return (void)c, a != 0 && b != 0;
}
/* A number that meets a bfloat16 is one. */
static float tenth_more(float a, float b, float c)
{
  return (void)b, (void)c, a + 0.10009765625f;
}
static float a_tenth(float a, float b, float c)
{
  return (void)a, (void)b, (void)c, 0.1f;
}
/* What is not stored is rounded too. */
static float product_more(float a, float b, float c)
{
  return (void)c, (float)value_of(nearest((double)(a * b))) + a;
}

static const struct trial trials[] = {
    {OP_cast, 1, {F32}, BF16, first, 0},
    {OP_cast, 1, {BF16}, F32, first, 0},
    {OP_cast, 1, {BF16}, I32, first, 0},
    {OP_cast, 1, {BF16}, I64, first, 0},
    {OP_cast, 1, {BF16}, BOOL, is_some, 0},
    {OP_cast, 1, {I32}, BF16, first, 0},
    {OP_cast, 1, {I64}, BF16, first, 0},
    {OP_cast, 1, {BOOL}, BF16, first, 0},
    {OP_add, 2, {BF16, BF16}, BF16, sum_of, 0},
    {OP_sub, 2, {BF16, BF16}, BF16, difference, 0},
    {OP_mul, 2, {BF16, BF16}, BF16, product, 0},
    {OP_div, 2, {BF16, BF16}, BF16, quotient, 0},
    {OP_maximum, 2, {BF16, BF16}, BF16, greater_of, 0},
    {OP_neg, 1, {BF16}, BF16, opposite, 0},
    {OP_scale, 1, {BF16}, BF16, third_of, 0.3},
    {OP_sqrt, 1, {BF16}, BF16, root, 0},
    {OP_where, 3, {BOOL, BF16, BF16}, BF16, chosen, 0},
    {OP_lt, 2, {BF16, BF16}, BOOL, is_less, 0},
    {OP_logical_and, 2, {BF16, BF16}, BOOL, both, 0},
    {OP_logical_not, 1, {BF16}, BOOL, is_none, 0},
    {OP_full, 0, {F32}, BF16, a_tenth, 0.1},
    /* Of several operations: see add_trial. */
    {OP_custom, 1, {BF16}, BF16, tenth_more, 0.1},
    {OP_fused, 2, {BF16, BF16}, BF16, product_more, 0},
};
enum { TRIALS = sizeof trials / sizeof *trials };

/* Elements that only move. */
static const struct op moves[] = {
    {.kind = OP_permute, .equation = "ab->ba"},
    {.kind = OP_narrow, .dims = 2, .number = {3}},
    {.kind = OP_pad, .dims = 2, .number = {3}},
    {.kind = OP_expand, .dims = 1, .scalar = 1},
};
static const char *const moved_shape[] = {NULL, "256x100", "256x300", "3x256x256"};
enum { MOVE_CASES = sizeof moves / sizeof *moves };

/* Where the moved element was in [SIDE, SIDE]; NONE: nowhere, it is 0. */
static int moved_from(const struct op *op, int i)
{
  int width = (int)graph->value[op->out].shape.size[1], column = i % width;
  switch (op->kind) {
  case OP_permute:
    return i % SIDE * SIDE + i / SIDE;
  case OP_narrow:
    return i / width * SIDE + column + 3;
  case OP_pad:
    return column < 3 || column >= SIDE + 3 ? NONE : i / width * SIDE + column - 3;
  default:
    return i % PATTERNS;
  }
}

static const struct op reductions[] = {
    {.kind = OP_sum, .dims = 1, .scalar = 1},  {.kind = OP_sum, .dims = 2, .scalar = 0.25},
    {.kind = OP_sum, .dims = 3, .scalar = 1},  {.kind = OP_amax, .dims = 1, .scalar = 1},
    {.kind = OP_amin, .dims = 2, .scalar = 1}, {.kind = OP_amax, .dims = 3, .scalar = 1},
};
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

/* ---------------------------------------------------------------- the program that has them all */

static struct function *f;
static enum phase phase;    /* of the kernel that is made: a kernel ends where it changes */
static int made_by[TRIALS]; /* the values that the trials make */
static int moved[MOVE_CASES], reduced[REDUCTIONS], reduced_in_kernel;

static void end_kernel(void)
{
  phase = phase == FORWARD ? BACKWARD : FORWARD;
}

static int input(enum type type, struct shape shape)
{
  int value = given(BATCH, text("x%d", graph->nvalue), shape, (struct layout){0});
  graph->value[value].type = type;
  return value;
}

static int run(struct op op, const struct shape *shape)
{
  op.module = NONE;
  op.line = 1;
  op.phase = phase;
  int out = shape ? append_op_shaped(op, *shape) : append_op(op);
  graph->value[out].placed = true;
  f->op[f->nop++] = graph->value[out].op;
  return out;
}

static int number(double x)
{
  struct shape one = {0};
  return run((struct op){.kind = OP_full, .type = BF16, .scalar = x}, &one);
}

static int add_trial(const struct trial *t)
{
  struct shape shape = {2, {SIDE, SIDE}};
  struct op op = {.kind = t->kind, .type = t->out, .scalar = t->scalar};
  if (t->nin && t->in[0] == F32) shape = (struct shape){3, {BETWEEN, SIDE, SIDE}};
  for (; op.nin < t->nin; op.nin++) op.in[op.nin] = input(t->in[op.nin], shape);
  if (t->kind == OP_full) return run(op, &shape);
  if (t->kind == OP_custom)
    return run((struct op){.kind = OP_add, .nin = 2, .in = {op.in[0], number(t->scalar)}}, NULL);
  if (t->kind != OP_fused) return run(op, NULL);
  int product = run((struct op){.kind = OP_mul, .nin = 2, .in = {op.in[0], op.in[1]}}, NULL);
  return run((struct op){.kind = OP_add, .nin = 2, .in = {product, op.in[0]}}, NULL);
}

static void make_program(void)
{
  struct shape square = {2, {SIDE, SIDE}};
  new_graph(1, (int[]){1});
  f = graph->function = alloc(sizeof *f);
  *f = (struct function){
      .name = "forward", .count = 1, .upward = true, .op = alloc(256 * sizeof(int))};
  graph->nfunction = 1;
  for (int i = 0; i < TRIALS; i++, end_kernel()) made_by[i] = add_trial(&trials[i]);
  for (int i = 0; i < MOVE_CASES; i++, end_kernel()) {
    struct op op = moves[i];
    struct shape shape = moved_shape[i] ? parse_shape(moved_shape[i]) : square;
    op.in[op.nin++] = input(BF16, square);
    moved[i] = run(op, &shape);
  }
  for (int i = 0; i < REDUCTIONS; i++, end_kernel()) {
    struct op op = reductions[i];
    op.in[op.nin++] = input(BF16, square);
    reduced[i] = run(op, NULL);
  }
  /* A sum over the outer dimension in the kernel that makes its terms. */
  int x = input(BF16, square);
  reduced_in_kernel = run((struct op){.kind = OP_neg, .nin = 1, .in = {x}}, NULL);
  run((struct op){.kind = OP_sum, .nin = 1, .in = {reduced_in_kernel}, .dims = 1, .scalar = 1},
      NULL);
  for (int i = 0; i < graph->nvalue; i++) {
    struct value *v = &graph->value[i];
    v->name = text("x%d", i);
    v->is_output = v->op != NONE && v->shape.ndim > 0;
  }
  graph->value[reduced[2]].is_output = graph->value[reduced[5]].is_output = true;
  fuse();
  kernel_forms();
  memory();
}

/* ------------------------------------------------------------------------- written and compiled */

static const char c_head[] = "#include \"kernels.h\"\n#include <math.h>\n#include <stdalign.h>\n"
                             "#include <stddef.h>\n#include <string.h>\n";
static const char c_memory[] = "static struct memory all, *const m = &all;\n"
                               "void begin(void);\nvoid run(void);\nvoid *place(int value);\n"
                               "void copy(void *to, const void *from, size_t n);\n"
                               "void begin(void)\n{\n}\n"
                               "void copy(void *to, const void *from, size_t n)\n"
                               "{\n  memcpy(to, from, n);\n}\n";
static const char cuda_head[] = "#include \"base/program.h\"\n#include \"kernels.h\"\n"
                                "#include \"cuda/kernels/kernels.h\"\n"
                                "cudaStream_t stream;\nbool profiling;\n"
                                "void note_work(const char *, cudaStream_t)\n{\n}\n"
                                "void fail_call(const char *, int, const char *, const char *)\n"
                                "{\n  abort();\n}\n";
static const char cuda_memory[] =
    "static struct memory *m;\nextern \"C\" {\nvoid begin(void);\nvoid run(void);\n"
    "void *place(int value);\nvoid copy(void *to, const void *from, size_t n);\n}\n"
    "void begin(void)\n{\n  CHECK_CUDA(cudaStreamCreate(&stream));\n"
    "  CHECK_CUDA(cudaMalloc((void **)&m, sizeof *m));\n}\n"
    "void copy(void *to, const void *from, size_t n)\n"
    "{\n  CHECK_CUDA(cudaMemcpy(to, from, n, cudaMemcpyDefault));\n}\n";

static char *program_text(void)
{
  struct buffer code = {0}, places = {0};
  name_values(0);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == BATCH || v->is_output)
      put(&places, "  if (value == %d) return %s;\n", i, c_name(i));
  }
  name_locals(f);
  for (int k = 0; k < f->nop; k++) put(&code, "  %s\n", statement_text(&graph->op[f->op[k]], 0));
  char *locals = local_declarations(code.text);
  return text(
      "%s%s%s\n%s%svoid *place(int value)\n{\n%s  return NULL;\n}\nvoid run(void)\n{\n%s%s}\n",
      is_for_cuda() ? cuda_head : c_head, memory_declaration(), kernel_definitions(),
      is_for_cuda() ? cuda_memory : c_memory, activation_table(), places.text, locals, code.text);
}

static const char *directory;

static void compile(void)
{
  char *program = program_text();
  write_text(directory, "kernels.h",
             text("%s%s%s", is_for_cuda() ? "#include <cuda_runtime.h>\n" : "", kernel_includes(),
                  kernel_prototypes()));
  write_text(directory, "program.c", program);
  if (is_for_cuda())
    command(text("mpicxx -std=c++17 -O1 -fPIC -shared -Wl,-Bsymbolic -Wall -Wextra -DTPGEN_CUDA"
                 " -Itests/cuda_on_cpu -Itests/cuda_on_cpu/include -I%s -Iruntime"
                 " -o %s/program.so -x c++ %s/program.c -x none " STAND_IN,
                 directory, directory, directory));
  else
    command(text("${CC:-cc} -std=c11 -O1 -fopenmp -Wall -Wextra -Wpedantic -Wconversion -Wshadow"
                 " -Werror -fPIC -shared -I%s -Iruntime -o %s/program.so %s/program.c -lm",
                 directory, directory, directory));
}

/* ------------------------------------------------------------------------------------------ run */

static struct {
  void *(*place)(int);
  void (*begin)(void), (*run)(void), (*copy)(void *, const void *, size_t);
} program;

static void load_program(void)
{
  void *handle = dlopen(text("%s/program.so", directory), RTLD_NOW | RTLD_LOCAL);
  must(handle, "%s", dlerror());
  *(void **)&program.place = dlsym(handle, "place");
  *(void **)&program.begin = dlsym(handle, "begin");
  *(void **)&program.run = dlsym(handle, "run");
  *(void **)&program.copy = dlsym(handle, "copy");
  must(program.place && program.begin && program.run && program.copy, "it lacks a function");
  program.begin();
}

static unsigned char **raw; /* by value: its elements as they are in memory */

static double get(int value, int64_t i)
{
  const unsigned char *from = raw[value];
  switch (graph->value[value].type) {
  case I32:
    return ((const int32_t *)(const void *)from)[i];
  case I64:
    return (double)((const int64_t *)(const void *)from)[i];
  case BOOL:
    return from[i];
  case BF16:
    return value_of(((const uint16_t *)(const void *)from)[i]);
  default:
    return (double)((const float *)(const void *)from)[i];
  }
}

/* Numbers that are whole, of both signs, large and small. */
static int64_t whole_number(int64_t i)
{
  return (int64_t)((uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15)) >> i % 60;
}

/* The patterns that two inputs meet each other with. */
static int some_pattern(int i)
{
  static const int special[] = {0,      0x8000, 1,      0x8001, 0x7f,   0x80,   0x8080, 0x3f80,
                                0xbf80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xff81};
  enum { SPECIAL = sizeof special / sizeof *special };
  return i < SPECIAL ? special[i] : 0x3c00 + i * 8 + (i & 1) * 0x8000 + i % 7;
}

/* A pattern that a whole number can be made of. */
static int within(enum type type, int bits)
{
  double limit = type == I32 ? 0x1p31 : type == I64 ? 0x1p63 : INFINITY;
  return limit < INFINITY && !(fabs(value_of(bits)) < limit) ? 0x4049 : bits;
}

static void put_element(int value, int64_t i, int pattern)
{
  switch (graph->value[value].type) {
  case I32:
    ((int32_t *)(void *)raw[value])[i] = (int32_t)(whole_number(i) >> 32);
    break;
  case I64:
    ((int64_t *)(void *)raw[value])[i] = whole_number(i);
    break;
  case BOOL:
    raw[value][i] = i % 3 == 0;
    break;
  case BF16:
    ((uint16_t *)(void *)raw[value])[i] = (uint16_t)pattern;
    break;
  default:
    ((uint32_t *)(void *)raw[value])[i] =
        (uint32_t)i % PATTERNS << 16 | between[i / PATTERNS % BETWEEN];
  }
}

static void take_room(void)
{
  raw = alloc((size_t)graph->nvalue * sizeof *raw);
  for (int v = 0; v < graph->nvalue; v++)
    raw[v] =
        alloc((size_t)(elements(graph->value[v].shape) * type_bytes(graph->value[v].type)) + 64);
}

static void fill_trial(const struct trial *t, int made)
{
  const struct op *op = &graph->op[graph->value[made].op];
  int a = t->kind == OP_fused ? graph->op[graph->value[op->in[0]].op].in[0] : op->in[0];
  for (int k = 0; k < t->nin; k++)
    for (int64_t i = 0, n = elements(graph->value[a + k].shape); i < n; i++) {
      bool alone = t->nin == 1, is_first = k == (t->in[0] == BOOL);
      int pattern = alone ? (int)i : some_pattern((int)(is_first ? i / SIDE : i % SIDE));
      put_element(a + k, i, within(t->out, pattern));
    }
}

/* Finite numbers, whose sums are; for the greatest and the least also those that are not. */
static void fill_reduced(const struct op *op)
{
  bool is_extreme = op->kind == OP_amax || op->kind == OP_amin;
  for (int i = 0; i < PATTERNS; i++) {
    int pattern = nearest(2 * draw_number() - 0.3);
    if (is_extreme && i % 5000 == 77) pattern = i % 3 ? 0x7f80 : 0x7fc0;
    put_element(op->in[0], i, pattern);
  }
}

static void fill_inputs(void)
{
  for (int i = 0; i < TRIALS; i++) fill_trial(&trials[i], made_by[i]);
  for (int i = 0; i < MOVE_CASES; i++)
    for (int k = 0; k < PATTERNS; k++)
      put_element(graph->op[graph->value[moved[i]].op].in[0], k, k);
  for (int i = 0; i < REDUCTIONS; i++) fill_reduced(&graph->op[graph->value[reduced[i]].op]);
  fill_reduced(&graph->op[graph->value[reduced_in_kernel].op]);
}

static void copy_value(int value, bool in)
{
  const struct value *v = &graph->value[value];
  size_t bytes = (size_t)(elements(v->shape) * type_bytes(v->type));
  if (in && v->role == BATCH) program.copy(program.place(value), raw[value], bytes);
  if (!in && v->is_output) program.copy(raw[value], program.place(value), bytes);
}

/* ------------------------------------------------------------------------------------- and seen */

static double stored_as(enum type type, float x)
{
  switch (type) {
  case BF16:
    return value_of(nearest((double)x));
  case BOOL:
    return x != 0;
  case F32:
    return (double)x;
  default:
    return trunc((double)x) + 0.0; /* no -0 */
  }
}

static bool is_same(double made, double expected)
{
  if (isnan(made) || isnan(expected)) return isnan(made) && isnan(expected);
  return made == expected && !signbit(made) == !signbit(expected);
}

static void compare_trial(const struct trial *t, int made)
{
  const struct op *op = &graph->op[graph->value[made].op];
  int a = t->kind == OP_fused ? graph->op[graph->value[op->in[0]].op].in[0] : op->in[0];
  enum type type = graph->value[made].type;
  must(type == t->out, "%s makes %s", op_row[t->kind].name, type_name(type));
  for (int64_t i = 0, n = elements(graph->value[made].shape); i < n; i++) {
    float x[3] = {0};
    for (int k = 0; k < t->nin; k++) x[k] = (float)get(a + k, i);
    double expected = stored_as(type, t->of(x[0], x[1], x[2]));
    must(is_same(get(made, i), expected), "%s to %s: of %a %a %a comes %a, not %a",
         op_row[t->kind].name, type_name(type), (double)x[0], (double)x[1], (double)x[2],
         get(made, i), expected);
  }
}

static void compare_moved(int made)
{
  const struct op *op = &graph->op[graph->value[made].op];
  for (int i = 0, n = (int)elements(graph->value[made].shape); i < n; i++) {
    int from = moved_from(op, i);
    double expected = from == NONE ? 0 : get(op->in[0], from);
    must(is_same(get(made, i), expected), "%s: element %d is %a, not %a", op_row[op->kind].name, i,
         get(made, i), expected);
  }
}

/* The terms of element i of the reduced value taken together, and their magnitudes. */
static double reduced_value(const struct op *op, int i, double *magnitudes)
{
  double all = op->kind == OP_sum ? 0 : op->kind == OP_amax ? -INFINITY : INFINITY;
  *magnitudes = 0;
  for (int k = 0; k < PATTERNS; k++) {
    if ((op->dims == 1 && k % SIDE != i) || (op->dims == 2 && k / SIDE != i)) continue;
    double x = get(op->in[0], k);
    *magnitudes += fabs(op->scalar * x);
    if (op->kind == OP_sum)
      all += op->scalar * x;
    else if (isnan(x) || (op->kind == OP_amax ? x > all : x < all))
      all = isnan(all) ? all : x;
  }
  return all;
}

/* A sum that went through bfloat16 at every step would be further off. */
static void compare_reduced(int made)
{
  const struct op *op = &graph->op[graph->value[made].op];
  for (int i = 0, n = (int)elements(graph->value[made].shape); i < n; i++) {
    double magnitudes, expected = reduced_value(op, i, &magnitudes);
    double allowed = fabs(expected) * 0x1p-8 + magnitudes * 1e-6;
    bool same = op->kind == OP_sum ? fabs(get(made, i) - expected) <= allowed
                                   : is_same(get(made, i), expected);
    must(same, "%s over %u: element %d is %a, not %a", op_row[op->kind].name, op->dims, i,
         get(made, i), expected);
  }
}

static void try_kernels(const void *with)
{
  set_target(*(const bool *)with ? "cuda" : "cpu");
  make_program();
  compile();
  load_program();
  take_room();
  fill_inputs();
  for (int v = 0; v < graph->nvalue; v++) copy_value(v, true);
  program.run();
  for (int v = 0; v < graph->nvalue; v++) copy_value(v, false);
  for (int i = 0; i < TRIALS; i++) compare_trial(&trials[i], made_by[i]);
  for (int i = 0; i < MOVE_CASES; i++) compare_moved(moved[i]);
  for (int i = 0; i < REDUCTIONS; i++) compare_reduced(reduced[i]);
  compare_reduced(reduced_in_kernel + 1);
}

static void kernels_round(bool cuda)
{
  if (!directory || (cuda && system("mpicxx --version > /dev/null 2>&1"))) skip();
  struct ending e = run_child(try_kernels, &cuda);
  if (e.status) fail_msg("ended with %d, see %s: %s", e.status, directory, e.said);
}

static void test_kernels_in_c(void **state)
{
  (void)state;
  kernels_round(false);
}

static void test_kernels_in_cuda(void **state)
{
  (void)state;
  kernels_round(true);
}

/* ------------------------------------------------------------------------- kernels of their own */

/* The call of an operator with a kernel of its own that is given bfloat16. */
static char *call_of(const struct op *of)
{
  struct op op = *of;
  op.nin = 1;
  op.module = NONE;
  op.line = 7;
  op.in[0] = input(BF16, (struct shape){2, {3, 4}});
  int out = append_op(op);
  graph->value[out].placed = graph->value[out].is_output = true;
  graph->value[out].name = "y";
  name_values(0);
  return statement_text(&graph->op[graph->value[out].op], 0);
}

/* Kernels of files take it and make floats, which hold_part what they add up; or indices. */
static void call_own_kernel(const void *op)
{
  new_graph(1, (int[]){1});
  call_of(op);
  must(strstr(kernel_prototypes(), "const bf16 *restrict a"), "it takes another type");
  must(!strstr(kernel_prototypes(), "bf16 *restrict out"), "it makes bfloat16");
}

static void test_kernels_of_files_take_it(void **state)
{
  (void)state;
  static const struct op cumsum = {.kind = OP_cumsum, .dims = 1},
                         argmax = {.kind = OP_argmax, .dims = 1};
  passes(call_own_kernel, &cumsum);
  passes(call_own_kernel, &argmax);
}

/* A plan's own operator may take it. */
static void call_own_operator(const void *with)
{
  (void)with;
  static struct custom twice = {.name = "twice",
                                .rule = "...->...",
                                .linear = "a",
                                .kernel[LANGUAGE_C] =
                                    "void $name$(bf16 *restrict out, const bf16 *restrict x)\n{\n"
                                    "  for (long i = 0; i < $batch$; i++)\n"
                                    "    out[i] = float_to_bf16(2 * bf16_to_float(x[i]));\n}\n"};
  static const struct op op = {.kind = OP_custom};
  new_graph(1, (int[]){1});
  GROW(graph->custom, graph->ncustom, graph->custom_room);
  graph->custom[graph->ncustom++] = twice;
  must(strstr(call_of(&op), "twice_3x4("), "it is not called");
  must(strstr(kernel_includes(), "#include \"base/elements.h\""), "its types are not known");
}

static void test_own_operators_may_take_it(void **state)
{
  (void)state;
  passes(call_own_operator, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_pattern_is_a_float_and_comes_back),
      cmocka_unit_test(test_floats_are_rounded_to_the_nearest),
      cmocka_unit_test(test_kernels_in_c),
      cmocka_unit_test(test_kernels_in_cuda),
      cmocka_unit_test(test_kernels_of_files_take_it),
      cmocka_unit_test(test_own_operators_may_take_it),
  };
  char temporary[] = "/tmp/bf16XXXXXX", remove[64];
  if (!system("${CC:-cc} --version > /dev/null 2>&1")) directory = mkdtemp(temporary);
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  snprintf(remove, sizeof remove, "rm -r %s", temporary);
  return failures || (directory && system(remove));
}
