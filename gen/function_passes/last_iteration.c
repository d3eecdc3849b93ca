/* last_iteration.c: part of the pass `schedule`: gathers after a loop are issued in its last
   iteration.

   Takes   a phase's function, whose loops' bodies are ordered (overlap.c, loop_carried.c).
   Leaves  each gather of a unit's parameters after a loop, which needs nothing of the loop, issued
           in the loop's last iteration, like the gathers of the modules in the iterations before.
           It is awaited at its place, and issued by a part of the body that uses no module's
           values:

             body     ...  await v12;  body_ahead for the next iteration;
                           forward_ahead in the last iteration;  ...
             part     forward_ahead { v40 = all_gather(weight) }
             forward  the loop;  await v40;  readers of v40  ...

   So it overlaps with the arithmetic of the last module, and its memory lives no longer than that.
   A gather that takes longer than an iteration is left to overlap.c, which may issue it before the
   loop, if memory has room for it all the time. */
#include "function_passes/function_passes.h"

/* The operations that move with the gather: before the loop, and into the part; in their order. */
struct along {
  struct list before, part;
};

/* The place in the function of the operation that makes the value, or NONE. */
static int last_iteration_maker_of(const struct function *f, int value)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    int *list = alloc((size_t)op_width(op) * sizeof *list);
    bool last_iteration_makes = false;
    for (int n = op_makes(op, list); n-- && !last_iteration_makes;)
      last_iteration_makes = list[n] == value;
    if (last_iteration_makes) return k;
  }
  return NONE;
}

/* Whether all inputs of the operation exist before the loop, or are made after it from such.
   Collectives among the makers, and the operations that these need, move before the loop; the
   others move into the part. */
static bool needs_no_loop(const struct function *f, int loop, const struct op *op, bool before,
                          struct along *along)
{
  enum { FEW = 8 };
  int *read = alloc((size_t)op_width(op) * sizeof *read), n = op_reads(op, read);
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[read[i]];
    const struct in_loop *own = in_loop(read[i]);
    if (is_of_module(v) || v->role == BATCH) continue;
    if (own->step || own->stack != NONE || v->role != ACTIVATION || v->is_output) return false;
    int at = last_iteration_maker_of(f, read[i]);
    if (at == NONE) return false;
    if (at < loop) continue;
    const struct op *maker = &graph->op[f->op[at]];
    bool first = before || is_collective(maker->kind);
    if (maker->kind == OP_await || scheduled(maker)->overlapped) return false;
    if (along->before.n + along->part.n >= FEW) return false;
    if (!needs_no_loop(f, loop, maker, first, along)) return false;
    add_once(first ? &along->before : &along->part, f->op[at]);
  }
  return true;
}

static void last_iteration_apply(int function, int loop, int id, const struct along *along)
{
  int body = graph->op[graph->function[function].op[loop]].function;
  struct list part = {0};
  for (int i = 0; i < along->part.n; i++) add(&part, along->part.at[i]);
  add(&part, id);
  int made = add_part(body, text("%s_ahead", graph->function[function].name), &part);
  graph->function[made].count = 1;
  graph->function[made].phase = graph->function[function].phase;
  schedule_of(id)->overlapped = schedule_of(id)->issued_in_last_iteration = true;
  int await = await_of(id), call = call_for(made, IN_LAST_ITERATION, 0, &graph->op[id]);
  struct function *f = &graph->function[function], *b = &graph->function[body];
  insert(f, runs_at(f, id), await);
  for (int i = 0; i < part.n; i++) leave_out_of(f, part.at[i]);
  for (int i = 0; i < along->before.n; i++) {
    leave_out_of(f, along->before.at[i]);
    insert(f, loop + i, along->before.at[i]);
  }
  /* The place in the body's last iteration for the issue: after the group's collectives among the
     arithmetic, and after the issues for later iterations. */
  int group = graph->op[id].group;
  int place = 0;
  for (int k = 0; k < b->nop; k++) {
    const struct op *op = &graph->op[b->op[k]];
    bool among = is_collective(op->kind) && op->group == group && !scheduled(op)->overlapped;
    bool next = op->kind == OP_iteration && op->iteration == NEXT_ITERATION && op->group == group;
    if (among || next) place = k + 1;
  }
  insert(b, place, call);
}

/* Issues the gather in the last iteration, if it has enough time and memory. */
static bool try_in_last_iteration(struct overlap *o, int function, int loop, int id,
                                  int64_t most_live)
{
  enum { MOST_ASKED = 1000000 };
  static const struct graph *of;
  static int64_t asked;
  struct along along = {0};
  const struct op *op = &graph->op[id];
  int body = graph->op[graph->function[function].op[loop]].function;
  int64_t iteration = o->time[body], takes = time_taken(op);
  if (!gathers_shards(op->kind) || unit_of(op) == NONE || !is_worth_it(op)) return false;
  if (takes > iteration) return false;
  if (!needs_no_loop(&graph->function[function], loop, op, false, &along)) return false;
  if (is_other_graph(&of)) asked = 0;
  if (!within_budget(&asked, MOST_ASKED)) {
    ended_early("schedule", "gathers in a loop's last iteration", MOST_ASKED,
                "operations looked at");
    return false;
  }
  struct edit_state before = remember_program();
  last_iteration_apply(function, loop, id, &along);
  if (live_bytes() <= most_live + most_live / 32) {
    leave_in_flight(o, id, body, 0);
    return true;
  }
  go_back(&before);
  return false;
}

/* The operations after the loop, up to the next one. */
static void issue_in_last_iteration(struct overlap *o, int function, int loop, int64_t most_live)
{
  const struct function *f = &graph->function[function];
  for (int k = runs_at(f, loop) + 1; k < f->nop && graph->op[f->op[k]].kind != OP_loop; k++)
    if (try_in_last_iteration(o, function, runs_at(f, loop), f->op[k], most_live)) {
      f = &graph->function[function];
      k = runs_at(f, loop);
    }
}

void issue_in_last_iterations(struct overlap *o, int function, int64_t most_live)
{
  const struct function *f = &graph->function[function];
  struct list loops = {0};
  if (!collectives_overlap() || !is_of_batch(f->phase) ||
      plan_options->prefetch == PREFETCH_NOTHING)
    return;
  for (int k = 0; k < f->nop; k++)
    if (graph->op[f->op[k]].kind == OP_loop) add(&loops, f->op[k]);
  for (int i = 0; i < loops.n; i++) issue_in_last_iteration(o, function, loops.at[i], most_live);
}
