/* split_backward.c: a part of the pass `stages`: the two parts of a backward, and the edges between
   stages.

   Takes   the flat program, each operation in its stage, sends and receives among them.
   Leaves  in a stage whose backward the schedule splits, those operations in the part for the
           weights that lead to the gradient of only one parameter. An operation that leads to
           another stage or to the gradients of several parameters, as the gradients that go from
           layer to layer do, stays in the first part: also in the first stage, so that its parts
           take about as long as those of others. */
#include "graph_passes/graph_passes.h"

/* The aim of an operation is the only parameter whose gradient it leads to; MANY: several; NONE:
   nothing so far. */
enum { MANY = -2 };

static int joined(int a, int b)
{
  return a == NONE || a == b ? b : b == NONE ? a : MANY;
}

/* The aim of the operation's own outputs. */
static int own_aim(const struct op *op)
{
  int aim = op->kind == OP_send ? MANY : NONE;
  for (int k = 0; k < op->nout; k++)
    if (is_gradient(op->out + k)) aim = joined(aim, graph->value[op->out + k].of);
  return aim;
}

/* Adds an edge if the operation `to` reads a value that `from` made in another stage. */
static void note_edge(int from, int to)
{
  if (stage_of(from) == NONE || stage_of(to) == NONE || stage_of(from) == stage_of(to)) return;
  if (!is_of_batch(graph->op[from].phase) || !is_of_batch(graph->op[to].phase)) return;
  add_stage_edge((struct stage_edge){.from = stage_of(from),
                                     .to = stage_of(to),
                                     .made = stage_work(from),
                                     .read = stage_work(to)});
}

void split_backwards(void)
{
  const struct pipeline_stages *s = graph->stages;
  int *aim = alloc((size_t)(graph->nop + 1) * sizeof *aim);
  for (int i = 0; i < graph->nop; i++) aim[i] = NONE;
  for (int at = graph->norder; at-- > 0;) {
    int id = graph->order[at], stage = stage_of(id);
    const struct op *op = &graph->op[id];
    if (op->phase != BACKWARD) continue;
    aim[id] = joined(aim[id], own_aim(op));
    if (stage != NONE && s->is_split[stage] && aim[id] >= 0) set_of_weights(id);
    for (int i = 0; i < op->nin; i++) {
      int maker = graph->value[op->in[i]].op;
      if (maker == NONE) continue;
      aim[maker] = joined(aim[maker], stage_of(maker) == stage ? aim[id] : MANY);
    }
  }
  int *send = alloc((size_t)(graph->norder + 1) * sizeof *send); /* by its number */
  for (int at = 0; at < graph->norder; at++) {
    int id = graph->order[at];
    const struct op *op = &graph->op[id];
    if (op->kind == OP_send) send[op->number[0]] = id;
    if (op->kind == OP_receive) note_edge(send[op->number[0]], id);
    for (int i = 0; i < op->nin; i++)
      if (graph->value[op->in[i]].op != NONE) note_edge(graph->value[op->in[i]].op, id);
  }
}
