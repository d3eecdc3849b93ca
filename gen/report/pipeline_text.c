/* pipeline_text.c: of plan.txt, the schedule of a pipeline: what each rank does in which step of
   time, if a forward takes one and a backward two; what that leaves idle; what moves. */
#include "report/report.h"

static void put_rank(struct buffer *b, const struct pipeline *p, int rank)
{
  put(b, "  %3d ", rank);
  for (int i = 0; i < p->order[rank].n; i++) {
    const struct action *a = &p->order[rank].at[i];
    if (a->kind == ACTION_IDLE)
      put(b, "    ");
    else
      put(b, " %c%-2d", a->kind == ACTION_F ? 'F' : 'B', a->microbatch);
  }
  put(b, "\n");
}

static void put_transfer(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  if (op->kind != OP_send && op->kind != OP_receive) return;
  int value = op->kind == OP_send ? op->in[0] : op->out;
  const struct pipeline_stages *s = graph->stages;
  put(to, "  %-8s %-15s %15s   %d times\n      %s: At(%d) -> At(%d)\n", phase_name[op->phase],
      op_row[op->kind].name, grouped(largest_bytes(value)), times, printable(value_name(value)),
      s->coordinate[op->number[1]], s->coordinate[op->number[2]]);
}

void put_pipeline(struct buffer *b)
{
  enum { MOST_SHOWN = 26, MOST_RANKS = 32 };
  const struct pipeline_stages *s = graph->stages;
  if (!s) return;
  int ranks = graph->mesh.size[s->mesh_dim];
  const char *why;
  const struct pipeline *p = pipeline_here(&why);
  struct pipeline_cost cost = pipeline_cost(p);
  put(b, "\npipeline     stage %d of %d over %s, schedule %s, %d micro-batches; idle %.1f %%\n",
      s->here, s->n, printable(graph->mesh.name[s->mesh_dim]), printable(s->schedule),
      microbatches(), 100 * cost.idle);
  put(b, "             at most %d in flight, %s bytes of activations each\n", graph->memory->slots,
      grouped(graph->memory->slot_bytes));
  bool fits = ranks <= MOST_RANKS;
  for (int r = 0; r < ranks; r++) fits &= p->order[r].n <= MOST_SHOWN;
  for (int r = 0; r < ranks && fits; r++) put_rank(b, p, r);
  each_op(put_transfer, b);
}
