/* operand_price.c: the price of bringing an operand of an operation to a layout. */
#include "sharding/sharding.h"

#include <math.h>

struct layout layout_after(const struct op *op, struct layout now)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (op->asked >> i & 1 && (!op->finishes || now.on[i].kind == PARTIAL))
      now.on[i] = op->to.on[i];
  return usual_cut_order(now);
}

/* Not from a shard to a pending sum, nor from one kind of pending value to another: that moves
   nothing, but each rank would then work on the whole value, which is mostly zeros. */
bool leads_to(struct placement from, struct placement to)
{
  return to.kind != PARTIAL || same_placement(from, to) || from.kind == REPLICATE;
}

bool is_plain_move(const struct op *op)
{
  enum type type = graph->value[op->in[0]].type;
  return !is_floating(type) || (op->type == type && op->backward_type == type);
}

bool move_serves(const struct op *move, enum phase phase)
{
  /* Labels are counted before the forward of any batch, and keep nothing for it. */
  const bool is_of_step = move->phase == FORWARD || move->phase == BACKWARD;
  return is_plain_move(move) && (phase == COUNT ? !is_of_step : move->phase != COUNT);
}

int moved_before_to(const struct def_use *uses, int value, struct layout to, enum phase phase)
{
  for (int i = uses->moved_to[value]; i != NONE; i = uses->moved_before[i])
    if (move_serves(&graph->op[i], phase) && same_layout(graph->value[graph->op[i].out].layout, to))
      return graph->op[i].out;
  return NONE;
}

/* The gathers in the backward that this way causes: where an operation of the forward takes or
   leaves a value that is cut after, and was of this kind before. */
static double gathered_again(const struct op *op, enum placement_kind kind, struct layout from,
                             struct layout to)
{
  double bytes = 0;
  if (graph->loss == NONE || op->phase != FORWARD) return 0;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (from.on[d].kind == kind && to.on[d].kind == SHARD && graph->mesh.size[d] > 1)
      bytes += round(link_of_dimension(d).latency * link_of_dimension(d).bandwidth);
  return bytes;
}

/* Each place of a value by rows has one expert: so much less than the whole tensor moves. */
static double bytes_to_move(struct cost_model *m, const struct value *v, struct layout from,
                            struct layout to)
{
  if (v->counts == NONE && moves_in_time(v->shape, from, to)) return HUGE_VAL;
  double bytes = move_cost(m, v->shape, v->type, from, to);
  if (v->counts == NONE) return bytes;
  return can_move_rows(from, to) ? bytes / (double)v->shape.size[0] : HUGE_VAL;
}

struct price price_of_operand(const struct chooser *c, const struct op *op, int o,
                              struct layout layout)
{
  struct price p = {0};
  if (o >= op->nin) {
    const int value = op->out + o - op->nin, of = graph->value[value].of;
    struct layout out = layout;
    /* The plan's requests on an output: a chain of redistributions, each in its type. */
    for (int r = c->uses->asked_of[value]; r != NONE; r = c->uses->asked_of[graph->op[r].out]) {
      const struct value *v = &graph->value[graph->op[r].out];
      struct layout next = layout_after(&graph->op[r], out);
      p.refused += !reductions_agree(next);
      p.moves += !same_layout(out, next);
      p.bytes += bytes_to_move(c->m, v, out, next);
      p.bytes += gathered_again(op, REPLICATE, out, next);
      out = next;
    }
    for (int d = 0; d < graph->mesh.ndim && of != NONE; d++) {
      struct placement like = layout_in(c, of)->on[d];
      p.apart += like.kind == SHARD && !same_placement(like, layout.on[d]);
    }
    return p;
  }
  const struct value *v = &graph->value[op->in[o]];
  const struct layout now = *layout_in(c, op->in[o]);
  if (same_layout(now, layout) || moved_before_to(c->uses, op->in[o], layout, op->phase) != NONE)
    return p;
  p.moves = 1;
  if (v->role == CACHE) { /* it is written in place: a moved copy would be lost */
    p.bytes = HUGE_VAL;
    return p;
  }
  p.bytes = bytes_to_move(c->m, v, now, layout);
  if (is_floating(v->type)) p.bytes += gathered_again(op, PARTIAL, now, layout);
  for (int d = 0; d < graph->mesh.ndim; d++)
    p.sums += layout.on[d].kind == PARTIAL && now.on[d].kind != PARTIAL;
  return p;
}

const struct op *next_user(const struct chooser *c, const struct op *op)
{
  const struct def_use *uses = c->uses;
  if (op->nout != 1 || uses->asked_of[op->out] != NONE || uses->taken_by[op->out] == NONE)
    return NULL;
  const struct op *user = &graph->op[uses->taken_by[op->out]];
  for (int i = 0; i < user->nin; i++)
    if (user->in[i] != op->out && !graph->value[user->in[i]].placed) return NULL;
  return *rule_of(user) ? user : NULL;
}
