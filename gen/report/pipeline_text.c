/* pipeline_text.c: of plan.txt, the schedule of a pipeline: what each rank does in which step of
   time, if a forward takes one and a backward two; what that leaves idle; what moves. */
#include "report/report.h"

#include <string.h>

/* "F3", or "2F3" where ranks have several stages; of an overlap "2F3+5B1". */
static const char *step_text(const struct pipeline *p, const struct action *a)
{
  struct buffer b = {0};
  struct action part[ACTION_PARTS];
  put_text(&b, "", 0);
  for (int k = 0, n = action_parts(a, part); k < n; k++) {
    const char *step = action_text(&part[k]);
    if (p->stages == p->ranks) step += strspn(step, "0123456789");
    put(&b, "%s%s", k ? "+" : "", step);
  }
  return b.text;
}

static void put_schedule(struct buffer *b, const struct pipeline *p)
{
  enum { MOST_RANKS = 32, COLUMNS = 114 };
  int widest = 0, most = 0;
  for (int r = 0; r < p->ranks; r++) {
    if (p->order[r].n > most) most = p->order[r].n;
    for (int i = 0; i < p->order[r].n; i++) {
      int width = (int)strlen(step_text(p, &p->order[r].at[i]));
      if (width > widest) widest = width;
    }
  }
  if (p->ranks > MOST_RANKS || most * (widest + 1) > COLUMNS) return;
  for (int r = 0; r < p->ranks; r++) {
    put(b, "  %3d ", r);
    for (int i = 0; i < p->order[r].n; i++)
      put(b, " %-*s", widest, step_text(p, &p->order[r].at[i]));
    put(b, "\n");
  }
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
  const char *why;
  const struct pipeline *p = pipeline_here(&why);
  struct pipeline_cost cost = pipeline_cost(p);
  put(b, "\npipeline     %s of %d over %s, schedule %s, %d micro-batches; idle %.1f %%\n",
      stages_text(), s->n, printable(graph->mesh.name[s->mesh_dim]), printable(s->schedule),
      microbatches(), 100 * cost.idle);
  for (int i = 0; i < s->n; i++) {
    if (!is_stage_here(i)) continue;
    const struct slots *of = &graph->memory->slots[i];
    put(b, "             %sat most %d in flight, %s bytes of activations each\n",
        stages_here() > 1 ? text("of stage %d ", i) : "", of->n, grouped(of->bytes));
  }
  put_schedule(b, p);
  each_op(put_transfer, b);
}
