/* copies.c: the text of moves within a rank's memory.

   Takes   an operation that moves bytes within a rank, or packs them for a collective.
   Leaves  its statement: calls of runtime/cpu/kernels/copies.h and runtime/cuda/kernels/copies.h,
           with sizes as literals. The beginning of a rank's part is an expression in its
           coordinates, the same text for all ranks. */
#include "emit/emit.h"

#include <inttypes.h>
#include <string.h>

/* The rank's part, with its dimensions in memory order. */
static struct shape shape_in_memory(int value, int rank)
{
  struct shape here = local_shape(value, rank), laid = here;
  for (int at = 0; at < here.ndim; at++) laid.size[at] = here.size[dimension_at(value, at)];
  return laid;
}

/* In memory a part is rows; each row has dimension `dim` outermost. */
static int64_t row_bytes(int value, int rank, int dim)
{
  struct shape laid = shape_in_memory(value, rank);
  int64_t n = type_bytes(graph->value[value].type);
  for (int at = dimension_place(value, dim); at < laid.ndim; at++) n *= laid.size[at];
  return n;
}

static int64_t rows(int value, int rank, int dim)
{
  struct shape laid = shape_in_memory(value, rank);
  int64_t n = 1;
  for (int at = 0; at < dimension_place(value, dim); at++) n *= laid.size[at];
  return n;
}

char *same_bytes_text(const struct op *op, int rank)
{
  if (!c_name(op->out) || same_place(op->in[0], op->out)) return "";
  int64_t bytes = all_bytes(op->out, rank);
  return text("slice_rows(%s, %s, /* rows */ 1, /* bytes */ %" PRId64 ", /* of */ %" PRId64
              ", /* begin */ 0);",
              c_name(op->out), c_name(op->in[0]), bytes, bytes);
}

/* ------------------------------------------------------------------- a part within a larger one */

/* The mesh dimensions that cut `dim` of a value, without those of size 1. */
static int real_cuts(int value, int dim, int cut[MAX_MESH])
{
  int n = cuts_of(&graph->mesh, graph->value[value].layout, dim, cut), left = 0;
  for (int i = 0; i < n; i++)
    if (graph->mesh.size[cut[i]] > 1) cut[left++] = cut[i];
  return left;
}

/* The mesh dimensions that cut it in the smaller part and not in the larger, in their order. */
static int new_cuts(const struct op *op, int larger, int smaller, int dim, int *cut)
{
  int before[MAX_MESH], after[MAX_MESH];
  int a = real_cuts(larger, dim, before), b = real_cuts(smaller, dim, after);
  if (a > b || memcmp(before, after, (size_t)a * sizeof *before))
    bug_at("emit", op->out, "a part is not one of what it is cut from");
  memcpy(cut, after + a, (size_t)(b - a) * sizeof *cut);
  return b - a;
}

/* The copy between a part and its box in a larger part: "slice" takes it out, "put" puts it in. If
   only one dimension is cut, the copy is by rows. */
static char *box_text(const struct op *op, int rank, const char *verb, int larger, int smaller)
{
  struct shape of = shape_in_memory(larger, rank), size = shape_in_memory(smaller, rank);
  int dim = NONE, ndims = 0, cut[MAX_MESH];
  struct buffer first = {0};
  for (int at = 0; at < of.ndim; at++) {
    int ncut = new_cuts(op, larger, smaller, dimension_at(larger, at), cut);
    if (ncut) dim = dimension_at(larger, at), ndims++;
    put(&first, "%s%s", at ? ", " : "",
        begin_text(&graph->value[smaller].layout, cut, ncut, of.size[at], 1));
  }
  const char *to = c_name(op->out), *from = c_name(op->in[0]);
  if (ndims == 1) {
    int64_t n = local_shape(larger, rank).size[dim], inner = row_bytes(larger, rank, dim) / n;
    int ncut = new_cuts(op, larger, smaller, dim, cut);
    return text("%s_rows(%s, %s, /* rows */ %" PRId64 ", /* bytes */ %" PRId64 ", /* of */ %" PRId64
                ", /* begin */ %s);",
                verb, to, from, rows(larger, rank, dim), row_bytes(smaller, rank, dim),
                row_bytes(larger, rank, dim),
                begin_text(&graph->value[smaller].layout, cut, ncut, n, inner));
  }
  return text("{\n    static const long size[] = {%s}, of[] = {%s};\n"
              "    const long first[] = {%s};\n"
              "    %s_box(%s, %s, %" PRId64 ", %d, size, of, first);\n  }",
              sizes_text(size), sizes_text(of), first.text, verb, to, from,
              type_bytes(graph->value[larger].type), of.ndim);
}

/* --------------------------------------------------------------------------- pending reductions */

/* The neutral element of a maximum or minimum, in C. */
static const char *least_text(enum type type, bool of_max)
{
  switch (type) {
  case F32:
    return of_max ? "-INFINITY" : "INFINITY";
  case BF16:
    return of_max ? "float_to_bf16(-INFINITY)" : "float_to_bf16(INFINITY)";
  case I32:
    return of_max ? "INT_MIN" : "INT_MAX";
  case I64:
    return of_max ? "LONG_MIN" : "LONG_MAX";
  default:
    return of_max ? "0" : "1";
  }
}

/* "rank->coordinate[0] == 0 && rank->coordinate[1] == 0", or with != and ||: the condition that a
   rank is the one, of those with the same data, that contributes it to a sum. NULL if no two have
   the same data. */
static char *first_of_equals(const struct op *op, const char *is, const char *and)
{
  struct buffer b = {0};
  struct layout from = graph->value[op->in[0]].layout, to = graph->value[op->out].layout;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (from.on[d].kind == REPLICATE && to.on[d].kind == PARTIAL && graph->mesh.size[d] > 1)
      put(&b, "%s%s %s 0", b.length ? and : "", coordinate_text(d), is);
  return b.text;
}

/* A sum, to which the first of the ranks with the same data contributes it; a maximum or
   minimum, to which each does. If the input is cut, neutral elements surround it. */
static char *to_partial_text(const struct op *op, int rank)
{
  struct shape in = local_shape(op->in[0], rank), out = local_shape(op->out, rank);
  if (!c_name(op->out)) return "";
  bool cut = false;
  int unused[MAX_MESH];
  for (int d = 0; d < out.ndim; d++) cut |= new_cuts(op, op->out, op->in[0], d, unused) > 0;
  if (!cut) {
    const char *others = op->reduction == SUM ? first_of_equals(op, "!=", " || ") : NULL;
    char *copy = same_bytes_text(op, rank);
    if (!others) return copy;
    return text("%s%sif (%s) %s", copy, *copy ? "\n  " : "", others, zero_text(op->out, rank));
  }
  const char *giver = op->reduction == SUM ? first_of_equals(op, "==", " && ") : NULL;
  char *rest; /* the whole output as if this rank contributed nothing */
  if (op->reduction == SUM) {
    rest = zero_text(op->out, rank);
  } else {
    enum type type = graph->value[op->out].type;
    const char *n = text("%" PRId64, elements(out));
    rest = text("{\n    const %s least = %s;\n    %s\n  }", c_type(type),
                least_text(type, op->reduction == MAX),
                fill(target_syntax()->fill_value, "at", c_name(op->out), "n", n, NULL));
  }
  if (elements(in) == 0) return rest;
  const char *condition = giver ? text("if (%s) ", giver) : "";
  return text("%s\n  %s%s", rest, condition, box_text(op, rank, "put", op->out, op->in[0]));
}

/* -------------------------------------------------------------------------------------- packing */

/* The array of the sizes in bytes of the members' parts along op->dim. */
static char *part_bytes(const struct op *op, int rank)
{
  int coordinate[MAX_MESH], value = op->in[0], n = group_size(op->group);
  int *member = alloc((size_t)n * sizeof *member);
  group_members(op->group, rank, member);
  int64_t inner = row_bytes(value, rank, op->dim) / local_shape(value, rank).size[op->dim];
  int64_t *bytes = alloc((size_t)n * sizeof *bytes);
  for (int r = 0; r < n; r++) {
    coordinate_of(member[r], coordinate);
    struct part p = local_part(&graph->mesh, graph->value[value].shape, op->to, coordinate);
    bytes[r] = p.shape.size[op->dim] * inner;
  }
  return list_text("long", "part", bytes, n, false);
}

/* ---------------------------------------------------------------------------------------------- */

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
    put(&b,
        "%sput_rows(%s, %s, /* rows */ %" PRId64 ", /* bytes */ %" PRId64 ", /* of */ %" PRId64
        ", /* begin */ %" PRId64 ");",
        i ? "\n  " : "", c_name(op->out), c_name(op->in[i]), rows(op->out, rank, dim), bytes,
        row_bytes(op->out, rank, dim), begin);
    begin += bytes;
  }
  return b.text;
}

char *copies_text(const struct op *op, int rank)
{
  const char *out = c_name(op->out), *in = op->nin ? c_name(op->in[0]) : NULL;
  const char *row = op_row[op->kind].name;
  int64_t bytes;
  switch (op->kind) {
  case OP_scan_take: /* the slice of a step, if it is not in its place in the whole value */
    bytes = all_bytes(op->out, rank);
    if (!out || allocation_of(op->out).slice) return "";
    return text("slice_rows(%s, %s, /* rows */ 1, /* bytes */ %" PRId64 ", /* of */ %" PRId64
                ", /* begin */ (long)l * %" PRId64 ");",
                out, in, bytes, all_bytes(op->in[0], rank), bytes);
  case OP_scan_stack:
    return "";
  case OP_slice: /* its start depends only on the rank */
    return out ? box_text(op, rank, "slice", op->in[0], op->out) : "";
  case OP_to_partial:
    return to_partial_text(op, rank);
  case OP_pack:
  case OP_unpack:
    if (!out) return "";
    return text("{\n%s"
                "    %s_parts(%s, %s, %" PRId64 ", %d, part);\n  }",
                part_bytes(op, rank), row, out, in, rows(op->in[0], rank, op->dim),
                group_size(op->group));
  case OP_pack_pieces:
  case OP_unpack_pieces: /* boxes, and their offsets, depend on the rank: rank<N>.c has the table */
    if (!out || !in) return "";
    return text("%s(%s, %s, %" PRId64 ", &%s.%s);", row, out, in,
                type_bytes(graph->value[op->out].type), exchange_row_text(op),
                op->kind == OP_pack_pieces ? "pack" : "unpack");
  case OP_cat:
    return cat_text(op, rank);
  default:
    return same_bytes_text(op, rank);
  }
}
