/* sequence_order.c: sequences whose tokens are in another order (context_parallel's balance):
   refuses operations along them, and additions of values that follow the order of the sequence.

   Takes   the flat program, before it is placed.
   Leaves  it unchanged.

   Attention uses the places of tokens. Every other operation that may not be cut along a dimension
   depends on the order along it: a recurrence, a convolution, a running sum, a part of it. In
   another order it would compute other numbers. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* By value, a bit for each dimension. */
struct orders {
  unsigned *other;   /* the dimensions along which tokens are in another order */
  bool *is_by_place; /* it has numbers for the places of a sequence: a parameter, or its indices */
};

/* The dimensions that context.lua puts in the other order: of an input, or of the list of
   places. */
static unsigned put_in_order(const struct op *op)
{
  const struct value *in = &graph->value[op->in[0]];
  if (op->kind != OP_redistribute || !op->why || strcmp(op->why, "the order of the sequence"))
    return 0;
  if (in->op != NONE && graph->op[in->op].kind == OP_index_select) return graph->op[in->op].dims;
  return in->shape.ndim == 1 ? 1 : 0;
}

static unsigned dims_with(const struct axis *axis, uint64_t letters, int ndim)
{
  unsigned dims = 0;
  for (int d = 0; d < ndim; d++)
    for (int i = 0; i < axis[d].n; i++) dims |= (unsigned)(letters >> axis[d].letter[i] & 1) << d;
  return dims;
}

static _Noreturn void refuse(const struct op *op, const char *what)
{
  plan_error(op->line,
             "%s %s, and context_parallel's balance has the tokens in another order: leave out the "
             "balance, or the places of tokens are x:positions()",
             printable(op_name(op)), what);
}

static void look_at(struct orders *o, const struct op *op)
{
  struct letters l;
  uint64_t other = 0;
  bool by_place = op->nin > 0;
  unsigned put = put_in_order(op);
  for (int i = 0; i < op->nin; i++) by_place &= o->is_by_place[op->in[i]];
  for (int k = 0; k < op->nout; k++) o->is_by_place[op->out + k] = by_place || op->kind == OP_index;
  if (op->kind == OP_redistribute) {
    o->other[op->out] = put | o->other[op->in[0]];
    return;
  }
  if (!op->nin || !*rule_of(op)) return;
  op_letters(op, &l);
  for (int i = 0; i < op->nin; i++) {
    /* A bit for each letter of the dimensions. */
    const struct axis *axis = l.in[i];
    unsigned int dims = o->other[op->in[i]];
    int ndim = graph->value[op->in[i]].shape.ndim;
    uint64_t letters = 0;
    for (int d = 0; d < ndim; d++)
      for (int k = 0; dims >> d & 1 && k < axis[d].n; k++)
        letters |= UINT64_C(1) << axis[d].letter[k];
    other |= letters;
  }
  if (!other) return;
  for (int k = 0; k < op->nout; k++)
    o->other[op->out + k] = dims_with(l.out[k], other, graph->value[op->out + k].shape.ndim);
  if (is_attention(op) || op->kind == OP_view) return;
  for (int letter = 0; letter < l.n; letter++) {
    bool is_along = l.whole[letter] || (l.gets_start[letter] && op->kind != OP_dropout);
    if (other >> letter & 1 && is_along && l.size[letter] > 1)
      refuse(op, "goes along the sequence");
  }
  for (int i = 0; i < op->nin && is_broadcast(op->kind); i++) {
    int value = op->in[i], ndim = graph->value[value].shape.ndim;
    if (o->is_by_place[value] && !o->other[value] && dims_with(l.in[i], other, ndim))
      refuse(op, "takes numbers of the places of a sequence");
  }
}

void check_sequence_order(void)
{
  struct orders o = {0};
  bool any = false;
  for (int at = 0; at < graph->norder && !any; at++)
    any = put_in_order(&graph->op[graph->order[at]]);
  if (!any) return;
  o.other = alloc((size_t)(graph->nvalue + 1) * sizeof *o.other);
  o.is_by_place = alloc((size_t)(graph->nvalue + 1) * sizeof *o.is_by_place);
  for (int i = 0; i < graph->nvalue; i++) o.is_by_place[i] = graph->value[i].role == PARAMETER;
  for (int at = 0; at < graph->norder; at++)
    if (graph->op[graph->order[at]].phase == FORWARD) look_at(&o, &graph->op[graph->order[at]]);
}
