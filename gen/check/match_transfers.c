/* match_transfers.c: proves that what stages of a pipeline send matches what others receive, where
   calls match by their order. */
#include "check/check.h"

#include <string.h>

/* What the two ends of an edge do in a step, as the places of a pipeline are planned one by one: in
   order, each tag behind its micro-batch. */
struct ends {
  bool known[2];
  struct list did[2]; /* sends, receives */
};

static void note_transfers(struct ends *ends, const struct function *f, int microbatch)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (!is_transfer(op->kind)) continue;
    struct list *did = &ends[edge_of(op)].did[op->kind == OP_receive];
    add(did, microbatch);
    add(did, (int)op->number[0]);
  }
}

static void note_phase(struct ends *ends, enum phase phase)
{
  for (int i = 0; i < graph->nfunction; i++)
    if (graph->function[i].phase == phase) note_transfers(ends, &graph->function[i], NONE);
}

static void note_step(struct ends *ends)
{
  const struct actions actions = actions_here();
  note_phase(ends, GATHER);
  for (int i = 0; i < actions.n; i++) {
    const struct action *a = &actions.at[i];
    for (int k = 0; k < graph->nfunction; k++) {
      const struct function *f = &graph->function[k];
      if (!is_phase(f) || !is_of_batch(f->phase) || f->stage != a->stage) continue;
      if (does_work(a->kind, work_of_function(f))) note_transfers(ends, f, a->microbatch);
    }
  }
  note_phase(ends, UPDATE);
}

static bool is_same_list(const struct list *a, const struct list *b)
{
  return a->n == b->n && (!a->n || !memcmp(a->at, b->at, (size_t)a->n * sizeof *a->at));
}

const char *unlike_ends(void)
{
  static const struct graph *of;
  static struct ends *ends; /* by group */
  if (!target->edge_groups) return NULL;
  if (of != graph->stages->program) ends = alloc((size_t)(graph->ngroup + 1) * sizeof *ends);
  of = graph->stages->program;
  note_step(ends);
  for (int g = 0; g < graph->ngroup; g++) {
    const struct group *edge = &graph->group[g];
    if (!edge->is_edge) continue;
    ends[g].known[0] |= is_stage_here(edge->from);
    ends[g].known[1] |= is_stage_here(edge->to);
    if (ends[g].known[0] && ends[g].known[1] && !is_same_list(&ends[g].did[0], &ends[g].did[1]))
      return text("stage %d does not send in the order in which stage %d receives, as calls of "
                  "NCCL have to",
                  edge->from, edge->to);
  }
  return NULL;
}
