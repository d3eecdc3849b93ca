/* schedule.c: questions about the schedule, for the pass `schedule` and later ones. */
#include "ir/ir.h"

static const struct scheduled undecided = {.chained_to = NONE};

struct schedule *new_schedule(void)
{
  struct schedule *s = alloc(sizeof *s);
  s->nop = graph->nop;
  s->of = alloc((size_t)(s->nop + 1) * sizeof *s->of);
  for (int i = 0; i < s->nop; i++) s->of[i] = undecided;
  return s;
}

const struct scheduled *scheduled(const struct op *op)
{
  const struct schedule *s = graph->schedule;
  return s && op >= graph->op && op < graph->op + s->nop ? &s->of[op - graph->op] : &undecided;
}

struct scheduled *schedule_of(int op)
{
  if (op >= graph->schedule->nop) bug("schedule", "operation %d has no row", op);
  return &graph->schedule->of[op];
}

const struct op *predecessor_of(const struct op *op)
{
  int to = scheduled(op)->chained_to;
  return to == NONE ? NULL : &graph->op[to];
}

int event_slots(const struct op *op)
{
  int distance = scheduled(op)->prefetch_distance;
  return distance > 1 ? distance : 1;
}

bool is_loop_carried(const struct op *op)
{
  const struct scheduled *s = scheduled(op);
  return s->prefetch_distance || s->awaited_next_iteration;
}

bool is_issued_by_part(const struct op *op)
{
  const struct scheduled *s = scheduled(op);
  return s->prefetch_distance || s->issued_in_last_iteration;
}

bool collectives_overlap(void)
{
  return target->streams || plan_options->overlap;
}

bool runs_beside(const struct op *op)
{
  if (!scheduled(op)->overlapped || !collectives_overlap()) return false;
  /* MPI has no exchange of pieces that does not wait. */
  return target->streams || collective_row[op->kind].calls[target->library].equal;
}

bool has_stream(int group)
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (is_collective(op->kind) && scheduled(op)->overlapped && op->group == group) return true;
      /* Whether it is a transfer over that edge. */
      if (is_transfer(op->kind) && graph->group[group].is_edge &&
          op->number[1] == graph->group[group].from && op->number[2] == graph->group[group].to)
        return true;
    }
  return false;
}
