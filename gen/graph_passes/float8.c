/* float8.c: the pass `float8`: products of numbers that are rounded to float8, as in torchao.

   Takes   the placed program; products, forward and backward, whose number `float8` says how their
           operands are rounded (ops.h).
   Leaves  of each such product its operands times a scale, rounded to E4M3 (a gradient with a scale
           for each tensor: to E5M2); the product of these, in float32; and that divided by the
           scales, in the type that the product had. A scale is such that the largest magnitude
           fills the range of the type: that of the whole tensor, or of each row of terms, whose
           scale is a power of 2. Where ranks have parts of what it covers, the maxima go over these
           ranks. Values that several products take are rounded once.

   A target that has products of float8 stores E4M3 and E5M2. On others the rounded numbers are
   stored as bfloat16, which has all of them. */
#include "graph_passes/graph_passes.h"

#include <inttypes.h>
#include <string.h>

enum { BY_TENSOR = 1, BY_ROW };

/* A value as products take it: rounded, and 1 over its scale, without the dimensions `over`, for
   which there is one scale. */
struct rounded {
  int value, made, inverse;
  unsigned over;
  bool wide;
};

struct float8 {
  struct op op; /* the product; its inputs as they are now */
  int how;
  const char *letters[3]; /* of both operands and the result */
  struct rounded *done;
  int ndone, room;
};

/* --------------------------------------------------------------------------- adding operations */

/* suffix: of its name, behind that of `named`; or "". */
static int added(const struct float8 *f, struct op op, struct layout layout, int named,
                 const char *suffix)
{
  op.module = f->op.module;
  op.line = f->op.line;
  op.phase = f->op.phase;
  op.part_of = f->op.part_of;
  int value = append_op(op);
  struct value *v = &graph->value[value];
  v->layout = layout;
  v->placed = true;
  v->name = text("%s%s", value_name(named), suffix);
  v->of = graph->value[named].of;
  return value;
}

/* The layout of what remains of the value without these dimensions, over which there are maxima. */
static struct layout without(int value, unsigned dims)
{
  struct layout layout = graph->value[value].layout;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement *p = &layout.on[d];
    if (p->kind != SHARD) continue;
    int before = 0;
    for (int k = 0; k < p->dim; k++) before += !(dims >> k & 1);
    if (dims >> p->dim & 1)
      *p = (struct placement){.kind = PARTIAL, .reduction = MAX};
    else
      p->dim = before;
  }
  return usual_cut_order(layout);
}

/* `value`, which lacks the dimensions `dims` of `like`, with these. */
static int spread_over(const struct float8 *f, int value, unsigned dims, int like)
{
  struct value to = graph->value[like];
  if (!dims || !graph->value[value].shape.ndim) return value;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (to.layout.on[d].kind == PARTIAL) to.layout.on[d] = (struct placement){0};
  struct op op = {.kind = OP_expand, .nin = 1, .in = {value}, .dims = dims, .scalar = 1};
  op.module = f->op.module;
  op.line = f->op.line;
  op.phase = f->op.phase;
  int out = append_op_shaped(op, to.shape);
  graph->value[out].layout = to.layout;
  graph->value[out].placed = true;
  graph->value[out].name = value_name(value);
  return out;
}

/* ------------------------------------------------------------------------------------ one value */

static void refuse_other_layouts(const struct float8 *f, int value, struct layout maxima)
{
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (graph->mesh.size[d] == 1) continue;
    if (graph->value[value].layout.on[d].kind == PARTIAL)
      plan_error(f->op.line,
                 "float8: a product takes %s while its sum over %s is pending: give it a layout",
                 value_name(value), printable(graph->mesh.name[d]));
    if (graph->mesh.microbatch_axis[d] && maxima.on[d].kind == PARTIAL)
      plan_error(f->op.line,
                 "float8: the largest magnitude of %s is that of all micro-batches, which a step "
                 "goes through one after the other: take accumulate instead, or one micro-batch",
                 value_name(value));
  }
}

/* The largest magnitude over the dimensions `over`, on all ranks that need it. That of a tensor is
   that of its rows: a kernel that makes the rows finds theirs, too. */
static int largest_magnitude(const struct float8 *f, int value, unsigned over)
{
  struct layout layout = without(value, over);
  refuse_other_layouts(f, value, layout);
  const unsigned last = 1u << (graph->value[value].shape.ndim - 1);
  struct op op = {.kind = OP_amax_abs, .nin = 1, .in = {value}, .dims = over};
  int largest;
  if (f->how == BY_TENSOR && over != last) {
    op.dims = last;
    largest = added(f, op, without(value, last), value, ".row_amax");
    op = (struct op){.kind = OP_amax, .nin = 1, .in = {largest}, .dims = over & ~last};
  }
  largest = added(f, op, layout, value, ".amax");
  op = (struct op){.kind = OP_redistribute,
                   .nin = 1,
                   .in = {largest},
                   .type = graph->value[largest].type,
                   .backward_type = graph->value[largest].type,
                   .to = layout,
                   .asked = dimensions_of_ranks(),
                   .why = "the scale of float8"};
  bool pending = false;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].kind == PARTIAL) {
      op.to.on[d] = (struct placement){0};
      pending |= graph->mesh.size[d] > 1;
    }
  if (!pending) graph->value[largest].layout = op.to;
  return pending ? added(f, op, op.to, value, ".amax") : largest;
}

static struct rounded rounded(struct float8 *f, int value, unsigned over, bool wide)
{
  for (int i = 0; i < f->ndone; i++) {
    const struct rounded *r = &f->done[i];
    if (r->value == value && r->over == over && r->wide == wide) return *r;
  }
  int largest = largest_magnitude(f, value, over);
  struct layout layout = graph->value[largest].layout;
  struct op op = {.kind = OP_float8_scale, .nin = 1, .in = {largest}};
  set_number(&op, "wide", wide);
  set_number(&op, "power", f->how == BY_ROW);
  int scale = added(f, op, layout, value, ".scale");
  struct rounded r = {.value = value, .over = over, .wide = wide};
  op = (struct op){.kind = OP_inverse_scale, .nin = 1, .in = {scale}};
  r.inverse = added(f, op, layout, value, ".inverse_scale");
  op = (struct op){.kind = OP_to_float8,
                   .nin = 2,
                   .in = {value, spread_over(f, scale, over, value)},
                   .type = !target->float8 ? BF16
                           : wide          ? E5M2
                                           : E4M3};
  set_number(&op, "wide", wide);
  r.made = added(f, op, graph->value[value].layout, value, ".float8");
  GROW(f->done, f->ndone, f->room);
  return f->done[f->ndone++] = r;
}

/* ---------------------------------------------------------------------------------- one product */

/* A bit for each letter of `of` that `in` lacks. */
static unsigned lacking(const char *of, const char *in)
{
  unsigned bits = 0;
  for (int i = 0; of[i]; i++) bits |= (unsigned)!strchr(in, of[i]) << i;
  return bits;
}

/* The library takes sides that are multiples of 16. */
static void check_sides(const struct float8 *f)
{
  enum { UNIT = 16 };
  for (int i = 0; i < 2; i++) {
    const char *letters = f->letters[i];
    const unsigned terms = lacking(letters, f->letters[2]);
    bool is_even = true;
    for (int d = 0; letters[d]; d++) is_even &= is_cut_evenly(f->op.in[i], d);
    for (int rank = 0; rank < (is_even ? 1 : world_size()); rank++) {
      struct shape here = local_shape(f->op.in[i], rank);
      int64_t side[2] = {1, 1};
      for (int d = 0; d < here.ndim; d++) side[terms >> d & 1] *= here.size[d];
      for (int k = 0; k < 2; k++)
        if (side[k] % UNIT)
          plan_error(f->op.line,
                     "float8: %s has %" PRId64 " %s on rank %d, where products of float8 take "
                     "multiples of %d",
                     value_name(f->op.in[i]), side[k],
                     k ? "terms of the product" : "rows of the product", rank, UNIT);
    }
  }
}

/* Takes the letters of the equation apart; both have each letter once. */
static void read_equation(struct float8 *f)
{
  const char *equation = f->op.equation, *arrow = strstr(equation, "->");
  size_t a = strcspn(equation, ",");
  f->letters[0] = text("%.*s", (int)a, equation);
  f->letters[1] = text("%.*s", (int)(arrow - equation - (long)a - 1), equation + a + 1);
  f->letters[2] = arrow + 2;
}

/* Returns the product in float8, as its readers take it. */
static int product_of_rounded(struct float8 *f)
{
  const struct value result = graph->value[f->op.out];
  struct rounded r[2];
  read_equation(f);
  check_sides(f);
  for (int i = 0; i < 2; i++) {
    const unsigned all = (1u << strlen(f->letters[i])) - 1;
    bool is_gradient = f->op.phase == BACKWARD && i == 0;
    r[i] = f->how == BY_TENSOR
               ? rounded(f, f->op.in[i], all, is_gradient)
               : rounded(f, f->op.in[i], lacking(f->letters[i], f->letters[2]), false);
  }
  struct op op = f->op;
  for (int i = 0; i < 2; i++) op.in[i] = r[i].made;
  set_number(&op, "float8", 0);
  op.type = F32;
  op.typed = true;
  int value = added(f, op, result.layout, f->op.out, ".scaled");
  for (int i = 0; i < 2; i++) {
    int by = spread_over(f, r[i].inverse, lacking(f->letters[2], f->letters[i]), f->op.out);
    op = (struct op){.kind = OP_mul, .nin = 2, .in = {value, by}};
    value = added(f, op, result.layout, f->op.out, i && result.type == F32 ? "" : ".scaled");
  }
  op = (struct op){.kind = OP_cast, .nin = 1, .in = {value}, .type = result.type};
  return result.type == F32 ? value : added(f, op, result.layout, f->op.out, "");
}

/* ------------------------------------------------------------------------------------- the pass */

static bool is_of_float8(const struct op *op)
{
  return op->kind == OP_matmul && number_of(op, "float8") != 0;
}

static void replace_product(void *of, const struct op *op, int *stands_for)
{
  struct float8 *f = of;
  f->op = *op;
  f->how = (int)number_of(op, "float8");
  stands_for[op->out] = product_of_rounded(f);
}

void float8(void)
{
  struct float8 f = {0};
  replace_each(is_of_float8, replace_product, &f);
}
