/* match_transfers.c: where calls match by their order, proves that the sends of a pipeline's stages
   match the receives of others; and that all issue the same collectives of several stages'
   ranks. */
#include "check/check.h"

#include <string.h>

static void note_transfers(const struct function *f, int microbatch)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (!is_transfer(op->kind)) continue;
    struct list *did = &graph->stages->ends[edge_of(op)].did[op->kind == OP_receive];
    add(did, microbatch);
    add(did, (int)op->number[0]);
  }
}

static void note_phase(enum phase phase)
{
  for (int i = 0; i < graph->nfunction; i++)
    if (graph->function[i].phase == phase) note_transfers(&graph->function[i], NONE);
}

static bool is_same_list(const struct list *a, const struct list *b)
{
  return a->n == b->n && (!a->n || !memcmp(a->at, b->at, (size_t)a->n * sizeof *a->at));
}

const char *unlike_ends(void)
{
  if (!target->edge_groups) return NULL;
  const struct actions actions = actions_here();
  note_phase(GATHER);
  for (int i = 0; i < actions.n; i++) {
    const struct action *a = &actions.at[i];
    for (int k = 0; k < graph->nfunction; k++) {
      const struct function *f = &graph->function[k];
      if (!is_phase(f) || !is_of_batch(f->phase) || f->stage != a->stage) continue;
      if (action_does(a->kind, work_of_function(f))) note_transfers(f, a->microbatch);
    }
  }
  note_phase(UPDATE);

  for (int g = 0; g < graph->ngroup; g++) {
    const struct group *edge = &graph->group[g];
    if (!edge->is_edge) continue;
    struct edge_ends *ends = &graph->stages->ends[g];
    ends->known[0] |= is_stage_here(edge->from);
    ends->known[1] |= is_stage_here(edge->to);
    if (ends->known[0] && ends->known[1] && !is_same_list(&ends->did[0], &ends->did[1]))
      return text("stage %d does not send in the order in which stage %d receives, as calls of "
                  "NCCL have to",
                  edge->from, edge->to);
  }
  return NULL;
}

/* The properties that a collective of several stages has in common for all of its members. */
static void note_joined(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  if (!joins_stages(op)) return;
  for (int i = 0; i < times; i++) {
    add(to, (int)op->kind);
    add(to, (int)graph->group[op->group].dims);
    add(to, (int)op->reduction);
    add(to, (int)moved_type(op));
    add(to, (int)(op->packed ? largest_bytes(op->buffer) : largest_bytes(op->in[0])));
  }
}

const char *unlike_joins(void)
{
  struct list here = {0};
  struct edge_ends *joins = graph->stages->joins;
  each_op(note_joined, &here);
  if (!joins->known[0]) joins->did[0] = here;
  joins->known[0] = true;
  if (is_same_list(&joins->did[0], &here)) return NULL;
  return "the ranks of two stages join in other collectives, or in another order";
}
