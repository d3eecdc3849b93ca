/* statement.c: one operation as text: its C, and the comment that stands above it. */
#include "tpgen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- comments */

const char *plan_shown(void)
{
  const char *slash = strrchr(graph->path, '/');
  return printable(*graph->path == '/' ? slash + 1 : graph->path);
}

static const char *shown(int value)
{
  return printable(local_name(value));
}

/* The operation that makes a value within the same kernel without storing it, or NULL: such a value
   is shown as what makes it. */
static const struct op *inner_maker(const struct op *group, int value)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (op->out == value && !graph->value[value].stored) return op;
  }
  return NULL;
}

static char *nested_text(const struct op *group, const struct op *op, bool within);

static char *operand(const struct op *group, int value, bool within)
{
  const struct op *maker = inner_maker(group, value);
  if (maker) return nested_text(group, maker, within);
  const struct value *v = &graph->value[value];
  if (v->op != NONE && !v->stored) return text("%g", graph->op[v->op].scalar);
  return copy_text(shown(value));
}

/* "a + b" for the operators that C writes between their operands, "relu(a)" for the others. */
static char *call_text(const struct op *group, const struct op *op, bool within)
{
  static const char *const sign[OP_COUNT] = {
      [OP_add] = " + ",        [OP_sub] = " - ", [OP_mul] = " * ", [OP_div] = " / ",
      [OP_matmul] = " @ ",     [OP_eq] = " == ", [OP_ne] = " != ", [OP_lt] = " < ",
      [OP_le] = " <= ",        [OP_gt] = " > ",  [OP_ge] = " >= ", [OP_logical_and] = " && ",
      [OP_logical_or] = " || "};
  struct buffer b = {0};
  bool infix = sign[op->kind] != NULL;
  put(&b, "%s%s", infix ? "" : op_name(op), infix && !within ? "" : "(");
  for (int i = 0; i < op->nin; i++) {
    const char *between = !i ? "" : infix ? sign[op->kind] : ", ";
    put(&b, "%s%s", between, operand(group, op->in[i], infix && i > 0));
  }
  if (op->kind == OP_power) put(&b, ", %s", double_text(op->scalar));
  put(&b, "%s", infix && !within ? "" : ")");
  return b.text;
}

/* The number that the operation multiplies by without its name telling. */
static double factor_of(const struct op *op)
{
  bool has_factor = op->kind == OP_scale || op->kind == OP_expand ||
                    (op->kind == OP_sum && !strcmp(op_name(op), "sum"));
  return has_factor ? op->scalar : 1;
}

static char *nested_text(const struct op *group, const struct op *op, bool within)
{
  double factor = factor_of(op);
  if (factor == 1) return call_text(group, op, within);
  char *rest = op->kind == OP_scale ? operand(group, op->in[0], true) : call_text(group, op, true);
  return text("%s%g * %s%s", within ? "(" : "", factor, rest, within ? ")" : "");
}

char *expression_text(const struct op *op)
{
  if (op->kind == OP_matmul) return text("%s    %s", nested_text(op, op, false), op->equation);
  if (op->kind == OP_view)
    return text("%s    %s -> %s", nested_text(op, op, false),
                shape_text(graph->value[op->in[0]].shape), shape_text(graph->value[op->out].shape));
  if (op->kind != OP_fused) return nested_text(op, op, false);
  struct buffer b = {0};
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (!graph->value[inner->out].stored) continue;
    put(&b, "%s%s = %s", b.length ? "; " : "", shown(inner->out), nested_text(op, inner, false));
  }
  return b.text;
}

char *layouts_text(const struct op *op)
{
  struct buffer b = {0};
  int *list = alloc((size_t)op_width(op) * sizeof *list);
  for (int i = 0, n = op_reads(op, list); i < n; i++)
    put(&b, "%s%s", i ? ", " : "", layout_text(graph->value[list[i]].layout));
  put(&b, " -> ");
  for (int i = 0, n = op_writes(op, list); i < n; i++)
    put(&b, "%s%s", i ? ", " : "", layout_text(graph->value[list[i]].layout));
  return b.text;
}

static char *where(int line)
{
  return line > 0 ? text("%s:%d", plan_shown(), line) : copy_text(plan_shown());
}

/* "plans/toy.lua:14, 34": where the operations of a kernel come from. */
static char *lines_of(const struct op *op)
{
  if (op->kind != OP_fused) return where(op->line);
  struct buffer b = {0};
  for (int k = 0; k < op->nbody; k++) {
    int line = graph->op[op->body[k]].line;
    bool told = false;
    for (int i = 0; i < k; i++) told |= graph->op[op->body[i]].line == line;
    if (!told && !b.length)
      put(&b, "%s:%d", plan_shown(), line);
    else if (!told)
      put(&b, ", %d", line);
  }
  return b.text;
}

static const char *moved_from(const struct op *op)
{
  int in = op->nbody ? graph->op[op->body[0]].in[0] : op->in[0];
  return layout_text(graph->value[in].layout);
}

/* The mesh dimensions over which it moves: the group's, or those on which the layout changes. */
static char *over_text(const struct op *op)
{
  struct buffer b = {0};
  if (is_collective(op->kind) || op->kind == OP_pack || op->kind == OP_unpack)
    return printable(graph->group[op->group].name);
  struct layout from = graph->value[op->in[0]].layout, to = graph->value[op->out].layout;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (!same_placement(from.on[d], to.on[d]))
      put(&b, "%s%s", b.length ? ", " : "", printable(graph->mesh.name[d]));
  return b.text ? b.text : "nothing";
}

/* What a reader wants to know of an operation before its statement. */
char *comment_text(const struct op *op)
{
  if (op->kind == OP_adamw || op->kind == OP_sgd)
    return text("%s over the rank's parameters, %d at once    %s", graph->optimizer.name, op->nbody,
                where(graph->optimizer.line));
  if (op->kind == OP_loop)
    return text("%s, %d modules", printable(graph->module[op->module].path),
                graph->function[op->function].count);
  if (!op->why || op->kind == OP_view)
    return text("%s    %s    %s", expression_text(op), lines_of(op), layouts_text(op));
  struct buffer b = {0};
  put(&b, "%s: %s -> %s over %s: %s", shown(op->in[0]), moved_from(op),
      layout_text(graph->value[op->out].layout), over_text(op), printable(op->why));
  if (!op->nbody) put(&b, ", %s", where(op->line));
  if (is_collective(op->kind)) put(&b, ". %" PRId64 " bytes.", collective_bytes(op, 0));
  return b.text;
}

/* ----------------------------------------------------------------- moves within a rank's memory */

char *zero_text(int value, int rank)
{
  int64_t bytes = elements(local_shape(value, rank)) * type_bytes(graph->value[value].type);
  const char *name = c_name(value);
  return options.cuda
             ? text("CHECK_CUDA(cudaMemsetAsync(%s, 0, %" PRId64 ", stream));", name, bytes)
             : text("memset(%s, 0, %" PRId64 ");", name, bytes);
}

static int64_t row_bytes(int value, int rank, int dim)
{
  struct shape here = local_shape(value, rank);
  int64_t n = type_bytes(graph->value[value].type);
  for (int d = dim; d < here.ndim; d++) n *= here.size[d];
  return n;
}

static int64_t rows(int value, int rank, int dim)
{
  struct shape here = local_shape(value, rank);
  int64_t n = 1;
  for (int d = 0; d < dim; d++) n *= here.size[d];
  return n;
}

/* The first mesh dimension on which the operation changes the layout. */
static int newly_cut(const struct op *op)
{
  struct layout from = graph->value[op->in[0]].layout, to = graph->value[op->out].layout;
  int d = 0;
  while (same_placement(from.on[d], to.on[d])) d++;
  return d;
}

/* This rank's part of a whole value: where it begins depends on the rank alone. */
static char *slice_text(const struct op *op, int rank)
{
  int in = op->in[0], out = op->out, d = newly_cut(op);
  int dim = graph->value[out].layout.on[d].dim;
  if (!c_name(out)) return "";
  struct shape whole = local_shape(in, rank);
  int64_t chunk = (whole.size[dim] + graph->mesh.size[d] - 1) / graph->mesh.size[d];
  int64_t inner = row_bytes(in, rank, dim) / whole.size[dim];
  return text("slice_rows(%s, %s, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
              "L * rank.coordinate[%d]);",
              c_name(out), c_name(in), rows(in, rank, dim), row_bytes(out, rank, dim),
              row_bytes(in, rank, dim), chunk * inner, d);
}

/* The sizes in bytes of the parts along op->dim that the ranks of the mesh dimension hold. */
static char *part_bytes(const struct op *op, int rank)
{
  int coordinate[MAX_MESH], value = op->in[0], n = group_size(op->group);
  int *member = alloc((size_t)n * sizeof *member);
  group_members(op->group, rank, member);
  int64_t inner = row_bytes(value, rank, op->dim) / local_shape(value, rank).size[op->dim];
  struct buffer b = {0};
  for (int r = 0; r < n; r++) {
    coordinate_of(member[r], coordinate);
    struct part p = local_part(&graph->mesh, graph->value[value].shape, op->to, coordinate);
    put(&b, "%s%" PRId64, r ? ", " : "", p.shape.size[op->dim] * inner);
  }
  return b.text;
}

static char *pack_text(const struct op *op, int rank)
{
  if (!c_name(op->out)) return "";
  return text("{\n    static const long part[] = {%s};\n"
              "    %s_parts(%s, %s, %" PRId64 ", %d, part);\n  }",
              part_bytes(op, rank), op_row[op->kind].name, c_name(op->out), c_name(op->in[0]),
              rows(op->in[0], rank, op->dim), group_size(op->group));
}

/* The value's own bytes, where they are not those of the input; "" where they are. */
static char *copy_text_of(const struct op *op, int rank)
{
  if (!c_name(op->out) || same_place(op->in[0], op->out)) return "";
  int64_t bytes = row_bytes(op->out, rank, 0);
  return text("slice_rows(%s, %s, 1, %" PRId64 ", %" PRId64 ", 0);", c_name(op->out),
              c_name(op->in[0]), bytes, bytes);
}

/* The value is a sum in which the first rank along the mesh dimension has all; or a maximum or
   minimum of which each rank has all. */
static char *to_partial_text(const struct op *op, int rank)
{
  char *copy = copy_text_of(op, rank);
  if (!c_name(op->out) || op->reduction != SUM) return copy;
  return text("%s%sif (rank.coordinate[%d] != 0) %s", copy, *copy ? "\n  " : "", newly_cut(op),
              zero_text(op->out, rank));
}

/* The inputs' rows, side by side. */
static char *cat_text(const struct op *op, int rank)
{
  struct buffer b = {0};
  int64_t begin = 0;
  int dim = 0;
  while (!(op->dims >> dim & 1)) dim++;
  if (!c_name(op->out)) return "";
  for (int i = 0; i < op->nin; i++) {
    int64_t bytes = row_bytes(op->in[i], rank, dim);
    put(&b, "%sput_rows(%s, %s, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ");",
        i ? "\n  " : "", c_name(op->out), c_name(op->in[i]), rows(op->out, rank, dim), bytes,
        row_bytes(op->out, rank, dim), begin);
    begin += bytes;
  }
  return b.text;
}

/* The C of one operation, or "" where this rank has nothing to do. */
char *statement_text(const struct op *op, int rank)
{
  switch (op->kind) {
  case OP_matmul:
    return matmul_text(op, rank);
  case OP_slice:
    return slice_text(op, rank);
  case OP_to_partial:
    return to_partial_text(op, rank);
  case OP_pack:
  case OP_unpack:
    return pack_text(op, rank);
  case OP_view:
    return copy_text_of(op, rank);
  case OP_cat:
    return cat_text(op, rank);
  case OP_fused:
  case OP_adamw:
  case OP_sgd:
    return kernel_call(op, rank);
  default:
    return has_kernel(op->kind) ? file_kernel_call(op, rank) : collective_text(op, rank);
  }
}
