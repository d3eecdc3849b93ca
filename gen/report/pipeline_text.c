/* pipeline_text.c: in the plan of a pipeline's stage: the number of its micro-batches in flight,
   and its sends and receives. pipeline_plan.c has the facts of all stages. */
#include "report/report.h"

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

/* "stage 2", "stages 0 and 3", "stages 0, 4 and 8" */
static char *stages_text(void)
{
  struct buffer b = {0};
  int n = stages_here(), k = 0;
  put(&b, "stage%s", n > 1 ? "s" : "");
  for (int s = 0; s < graph->stages->n; s++)
    if (is_stage_here(s)) put(&b, "%s%d", !k++ ? " " : k < n ? ", " : " and ", s);
  return b.text;
}

void put_pipeline(struct buffer *b)
{
  const struct pipeline_stages *s = graph->stages;
  if (!s) return;
  put(b, "\npipeline     %s of %d over %s\n", stages_text(), s->n,
      printable(graph->mesh.name[s->mesh_dim]));
  for (int i = 0; i < s->n; i++) {
    if (!is_stage_here(i)) continue;
    const struct slots *of = &graph->memory->slots[i];
    put(b, "             %sat most %d in flight, %s bytes of activations each\n",
        stages_here() > 1 ? text("of stage %d ", i) : "", of->n, grouped(of->bytes));
  }
  each_op(put_transfer, b);
}
