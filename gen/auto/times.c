/* times.c: what the ways of an operation take on a rank, beside moves: the memory that it reads and
   writes, and its arithmetic, forward and backward. Work that ranks share takes less.

   Kernels are fused: a value that is made by elements, and read once, by elements, is in no
   memory. Products and attention take the same whichever way ranks divide them. */
#include "auto/auto.h"

#include <string.h>

static bool goes_by_elements(const struct op *op)
{
  return is_pointwise(op->kind) || is_reduce(op->kind);
}

bool *values_in_memory(void)
{
  bool *is_in_memory = alloc((size_t)(graph->nvalue + 1) * sizeof *is_in_memory);
  int *reads = alloc((size_t)(graph->nvalue + 1) * sizeof *reads);
  for (int i = 0; i < graph->nvalue; i++) is_in_memory[i] = graph->value[i].op == NONE;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    for (int i = 0; i < op->nin; i++) {
      const int value = op->in[i];
      if (++reads[value] > 1 || !goes_by_elements(op)) is_in_memory[value] = true;
    }
    for (int k = 0; k < op->nout; k++)
      if (!goes_by_elements(op)) is_in_memory[op->out + k] = true;
  }
  return is_in_memory;
}

static double parts_of_layout(const struct auto_space *s, int layout)
{
  const struct layout l = layout_of_number(layout);
  double parts = s->parts;
  for (int i = 0; i < s->ndim; i++)
    if (l.on[s->dim[i]].kind == SHARD) parts *= graph->mesh.size[s->dim[i]];
  return parts;
}

static double bytes_in_memory(const struct auto_space *s, const bool *is_in_memory, int value,
                              int layout)
{
  const struct value *v = &graph->value[value];
  if (!is_in_memory[value] || v->role == PARAMETER || v->counts != NONE) return 0;
  return (double)(elements(v->shape) * type_bytes(v->type)) / parts_of_layout(s, layout);
}

double seconds_of_way(const struct auto_space *s, const bool *is_in_memory, const struct op *op,
                      const struct op_strategy *way, bool has_gradient)
{
  static const double BACKWARD = 2;
  const enum elements reads = op_row[op->kind].elements;
  if (reads == ALL_OF_FIRST || op->kind == OP_redistribute) return 0;
  double bytes = 0, parts = 1;
  for (int i = 0; i < op->nin; i++) {
    const bool is_some = !i && (reads == SOME_OF_FIRST || reads == SOME_OR_ZERO);
    if (!is_some) bytes += bytes_in_memory(s, is_in_memory, op->in[i], way->in[i]);
    const double cut = parts_of_layout(s, way->in[i]);
    if (cut > parts) parts = cut;
  }
  for (int k = 0; k < op->nout; k++) {
    bytes += bytes_in_memory(s, is_in_memory, op->out + k, way->out[k]);
    const double cut = parts_of_layout(s, way->out[k]);
    if (cut > parts) parts = cut;
  }
  const bool is_half = op->nin && graph->value[op->in[0]].type == BF16;
  const double computing =
      *op_row[op->kind].flops
          ? arithmetic_seconds(flops_of(op) / parts, is_half ? IN_BFLOAT16 : IN_FLOAT32)
          : 0;
  const double moving = bytes > 0 ? memory_seconds(bytes) : 0;
  return (computing > moving ? computing : moving) * (has_gradient ? 1 + BACKWARD : 1);
}
