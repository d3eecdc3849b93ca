/* check_transfers.c: a part of check.c: in a pipeline, the values that the stages take from each
   other.

   Takes   the program of all stages, from the pass `stages` up to `redistribute`.
   Holds   each send has the number of one receive, of the same stages, which takes the same tensor
           later on. An operation reads nothing of a stage that other ranks have. The pipeline has
           an edge for every value that one stage makes and another one reads. */
#include "check/check.h"

enum { RECEIVED = -2 };

/* The stage that makes a value and the one that reads it have an edge. */
static void check_edge(int maker, int reader)
{
  int from = stage_of(maker), to = stage_of(reader);
  if (from == NONE || to == NONE || from == to) return;
  if (!is_of_batch(graph->op[maker].phase) || !is_of_batch(graph->op[reader].phase)) return;
  /* On the same ranks the work of a stage for a micro-batch comes in this order: forward, backward,
     weights' gradients. So an edge to the first work that reads is enough. */
  enum stage_work made = stage_work(maker);
  enum stage_work read = stage_work(reader);
  bool same_ranks = coordinate_of_stage(from) == coordinate_of_stage(to);
  bool has_edge = false;
  for (int i = 0; i < graph->stages->nedge && !has_edge; i++) {
    const struct stage_edge *e = &graph->stages->edge[i];
    if (e->from != from || e->to != to || e->made != made) continue;
    has_edge = e->read == read || (same_ranks && e->read < read);
  }
  require(has_edge, reader, "no edge of the pipeline says that its stage reads that");
}

void check_transfers(void)
{
  if (!graph->stages || graph->stages->here != NONE) return;
  /* By a transfer's number, which is below the number of operations: its send, until it is
     received. */
  int n = graph->nop, *send = alloc((size_t)(n + 1) * sizeof *send);
  for (int i = 0; i < n; i++) send[i] = NONE;
  for (int at = 0; at < graph->norder; at++) {
    int id = graph->order[at];
    const struct op *op = &graph->op[id];
    if (is_transfer(op->kind))
      require(op->number[0] >= 0 && op->number[0] < n, id, "its number is that of no transfer");
    if (op->kind == OP_send) {
      require(send[op->number[0]] == NONE, id, "another send has its number");
      send[op->number[0]] = id;
    }
    if (op->kind == OP_receive) {
      /* `send` has the sends above it, by their numbers. */
      int mate = send[op->number[0]];
      require(mate >= 0, id, "nothing is sent with its number, or it is received twice");
      const struct op *from = &graph->op[mate];
      require(from->number[1] == op->number[1] && from->number[2] == op->number[2], id,
              "what is sent with its number goes elsewhere");
      int a = from->in[0];
      const struct value *v = &graph->value[a], *w = &graph->value[op->out];
      bool is_same_tensor =
          v->type == w->type && same_shape(v->shape, w->shape) && same_layout(v->layout, w->layout);
      require(is_same_tensor, id, "what is sent with its number is another tensor");
      require(is_of_batch(from->phase) == is_of_batch(op->phase), id,
              "a send for each micro-batch has a receive for each, and no other one has");
      check_edge(mate, id);
      send[op->number[0]] = RECEIVED;
    }
    for (int i = 0; i < op->nin; i++) {
      int maker = graph->value[op->in[i]].op;
      if (maker == NONE || stage_of(maker) == NONE || stage_of(id) == NONE) continue;
      require(coordinate_of_stage(stage_of(maker)) == coordinate_of_stage(stage_of(id)), id,
              "it reads what ranks of another stage have");
      check_edge(maker, id);
    }
  }
  for (int i = 0; i < n; i++) require(send[i] < 0, send[i], "nobody receives what it sends");
}
