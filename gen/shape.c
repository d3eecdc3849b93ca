/* shape.c: the pass `shape`, which runs as operations are added.

   Takes   an operation and its inputs.
   Leaves  the shape of what it makes, or the plan's error, which shows both sides of the misfit. */
#include "tpgen.h"

#include <string.h>

static struct shape input_shape(const struct op *op, int i)
{
  return graph->value[op->in[i]].shape;
}

/* As PyTorch broadcasts: aligned at the last dimension, a size of 1 stretches. */
static struct shape broadcast(const struct op *op)
{
  struct shape out = input_shape(op, 0);
  for (int i = 1; i < op->nin; i++) {
    struct shape a = out, b = input_shape(op, i);
    if (a.ndim < b.ndim) {
      struct shape swap = a;
      a = b;
      b = swap;
    }
    out = a;
    for (int d = 0; d < b.ndim; d++) {
      int at = a.ndim - b.ndim + d;
      if (b.size[d] == a.size[at] || b.size[d] == 1) continue;
      if (a.size[at] != 1)
        plan_error(
            op->line,
            "%s: shapes %s and %s do not fit: sizes %lld and %lld at dimension %d from the end",
            op_row[op->kind].name, shape_text(input_shape(op, 0)), shape_text(input_shape(op, i)),
            (long long)a.size[at], (long long)b.size[d], b.ndim - d);
      out.size[at] = b.size[d];
    }
  }
  return out;
}

/* "mk,nk->mn": every letter has one size. */
static struct shape einsum(const struct op *op)
{
  int64_t size[128];
  int where[128];
  memset(where, 0xff, sizeof where);
  const char *c = op->equation;
  for (int i = 0; i < op->nin; i++, c += *c == ',') {
    struct shape s = input_shape(op, i);
    int n = (int)strcspn(c, ",-");
    if (n != s.ndim)
      plan_error(op->line, "matmul %s: input %d has shape %s, not %d dimensions", op->equation, i,
                 shape_text(s), n);
    for (int d = 0; d < n; d++) {
      int letter = c[d] & 127;
      if (where[letter] == NONE) {
        where[letter] = i;
        size[letter] = s.size[d];
      } else if (size[letter] != s.size[d])
        plan_error(op->line, "matmul: shapes %s and %s do not fit: %lld is not %lld",
                   shape_text(input_shape(op, 0)), shape_text(input_shape(op, 1)),
                   (long long)size[letter], (long long)s.size[d]);
    }
    c += n;
  }
  c += strlen("->");
  struct shape out = {.ndim = (int)strlen(c)};
  for (int d = 0; d < out.ndim; d++) out.size[d] = size[c[d] & 127];
  return out;
}

static struct shape reduced(const struct op *op)
{
  struct shape s = input_shape(op, 0), out = {0};
  for (int d = 0; d < s.ndim; d++) {
    if (!(op->dims >> d & 1))
      out.size[out.ndim++] = s.size[d];
    else if (op->keep)
      out.size[out.ndim++] = 1;
  }
  return out;
}

struct shape shape(const struct op *op)
{
  const char *dimensions = op_row[op->kind].dimensions;
  if (!strcmp(dimensions, "equation")) return einsum(op);
  if (!strcmp(dimensions, "reduce")) return reduced(op);
  if (!strcmp(dimensions, "pointwise")) return broadcast(op);
  if (op->nin == 0) bug("shape", NONE, "%s has no input and no shape", op_row[op->kind].name);
  return input_shape(op, 0);
}
