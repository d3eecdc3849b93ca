/* schedule.c: the pass `schedule`: the order in which operations run.

   Takes   functions whose order respects every dependence.
   Leaves  the same operations, each value still made before it is read, in an order in which less
           is alive at once, or in the old order if none better was found; then with collectives
           that overlap with arithmetic, and their awaits: overlap.c. The order is the same on every
           rank: sizes are those of rank 0.

   At each point, of the operations whose inputs exist, the next is the one that frees the most
   bytes, less those that it allocates (an in-place result counts once). So the gradient of a weight
   is computed while its input still exists. Nothing moves across a loop. Better orders are taken as
   long as the bound on walks through the whole program allows. */
#include "function_passes/function_passes.h"

/* A collective in flight between iterations meets everything in an iteration, so it has an event of
   its own, one for each iteration of its prefetch distance. `taken` has for each event the
   collective that holds it, or NONE. */
static void number_carried(void *taken, int id, int times)
{
  const struct op *op = &graph->op[id];
  (void)times;
  if (!is_collective(op->kind) || !scheduled(op)->overlapped || !is_loop_carried(op)) return;
  schedule_of(id)->event = ((struct list *)taken)->n;
  for (int k = 0; k < event_slots(op); k++) add(taken, id);
}

static void number_event(void *taken, int id, int times)
{
  struct list *holder = taken;
  const struct op *op = &graph->op[id];
  (void)times;
  if (op->kind == OP_await) {
    for (const struct op *ended = &graph->op[op->awaits]; ended; ended = predecessor_of(ended)) {
      /* The predecessor may have been awaited before the collective that is chained to it. */
      int *held_by = &holder->at[scheduled(ended)->event];
      if (*held_by == (int)(ended - graph->op) && !is_loop_carried(ended)) *held_by = NONE;
    }
  }
  if (!is_collective(op->kind) || !scheduled(op)->overlapped || is_loop_carried(op)) return;
  int event = 0;
  while (event < holder->n && holder->at[event] != NONE) event++;
  if (event == holder->n) add(holder, NONE);
  holder->at[event] = id;
  schedule_of(id)->event = event;
}

void schedule(void)
{
  graph->schedule = new_schedule();
  struct liveness *live = open_liveness();
  /* The bodies of loops come before those that call them. */
  int64_t most_live = order_functions(live);
  struct overlap *o = open_overlap(live);
  for (int i = 0, n = graph->nfunction; i < n; i++)
    if (graph->function[i].count > 1) most_live = overlap_body(o, i, most_live);
  check_prefetch();
  for (int i = 0; i < graph->nfunction; i++) {
    if (!is_phase(&graph->function[i])) continue;
    issue_in_last_iterations(o, i, most_live);
    overlap_function(o, &graph->function[i], most_live);
  }
  /* Each other overlapped collective gets the first event that no collective in flight holds. */
  struct list taken = {0};
  each_op(number_carried, &taken);
  each_op(number_event, &taken);
  graph->schedule->nevent = taken.n;
}
