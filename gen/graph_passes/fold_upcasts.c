/* fold_upcasts.c: the pass `fold_upcasts`: kernels read bfloat16 directly.

   Takes   the flat local program.
   Leaves  no cast from bfloat16 to float32 before a pointwise or reduce operation. Its kernel reads
           bfloat16 and computes in float32, with the same bits, and a value with several readers is
           not stored in float32 too. Products, copies, collectives and operators with kernels of
           their own still read casts. */
#include "graph_passes/graph_passes.h"

/* The bfloat16 value that this one is cast from, or NONE. */
static int widened_from(int value)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE || graph->op[v->op].kind != OP_cast || v->type != F32) return NONE;
  int from = graph->op[v->op].in[0];
  return graph->value[from].type == BF16 ? from : NONE;
}

void fold_upcasts(void)
{
  int kept = 0;
  bool has_upcasts = false;
  for (int at = 0; at < graph->norder && !has_upcasts; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    has_upcasts = op->kind == OP_cast && widened_from(op->out) != NONE;
  }
  if (!has_upcasts) return;
  for (int at = 0; at < graph->norder; at++) {
    struct op *op = &graph->op[graph->order[at]];
    if (is_pointwise(op->kind) || is_reduce(op->kind)) {
      /* The output keeps its type, whatever the inputs' types are now. */
      for (int i = 0; i < op->nin; i++) {
        int from = widened_from(op->in[i]);
        if (from == NONE) continue;
        op->in[i] = from;
        op->typed = true;
        op->type = graph->value[op->out].type;
      }
    }
  }
  const int *readers = count_readers();
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    bool is_unread_cast = op->kind == OP_cast && widened_from(op->out) != NONE &&
                          !readers[op->out] && graph->value[op->out].role == ACTIVATION &&
                          !graph->value[op->out].is_output;
    if (!is_unread_cast) graph->order[kept++] = graph->order[at];
  }
  graph->norder = kept;
}
