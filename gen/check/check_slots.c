/* check_slots.c: a part of check.c: in a pipeline, the slots of the micro-batches in flight.

   Takes   the program of the ranks at one place, with storage for every value.
   Holds   a value that a function leaves for another one, or sends, is in a slot. The slot belongs
           to the micro-batch from the stage's forward to the last action that touches it; no other
           micro-batch takes it in between. Within a slot, check_memory.c finds values. The actions
           do the work of a stage once for each micro-batch. */
#include "check/check.h"

/* Whether functions of stage `by` touch values in flight of stage `of`: by * n + of. */
static bool *touches;

static bool *touches_of(int by, int of)
{
  return &touches[(size_t)by * (size_t)graph->stages->n + (size_t)of];
}

/* The function of a stage that touched the value first, or NONE. */
static int *first_touched;

/* Whether each micro-batch has its own value, as a function of the batch makes it. A view of a
   value that is gathered before the first micro-batch has the same bytes for all of them. */
static bool is_made_each_time(int value)
{
  int maker = graph->value[value].op;
  if (maker == NONE || !is_of_batch(graph->op[maker].phase)) return false;
  const struct op *op = &graph->op[maker];
  if (op->nin != 1 || op->nout != 1 || !shows_bytes(op)) return true;
  return allocation_of(value).storage != allocation_of(op->in[0]).storage ||
         is_made_each_time(op->in[0]);
}

static void check_slots_touch(int function, int id, int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (loop->step) {
    check_slots_touch(function, id, loop->initial);
    value = loop->stack;
  }
  const struct allocation a = allocation_of(value);
  const struct value *place = &graph->value[a.storage];
  if (!v->stored || place->role != ACTIVATION || place->is_output) return;
  if (a.in_flight != NONE) *touches_of(graph->function[function].stage, a.in_flight) = true;
  int *first = &first_touched[value];
  if (*first == NONE) *first = function;
  const struct function *f = &graph->function[*first], *g = &graph->function[function];
  bool is_of_same_work =
      f->phase == g->phase && f->stage == g->stage && f->of_weights == g->of_weights;
  bool leaves = !is_of_same_work || graph->op[id].kind == OP_send;
  require(!leaves || a.in_flight != NONE || !is_made_each_time(value), id,
          "a function leaves it for another one, and it is in no slot");
}

static void touch_all(void)
{
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    for (int k = 0; k < f->nop && is_of_batch(f->phase); k++) {
      const struct op *op = &graph->op[f->op[k]];
      int *list = alloc((size_t)op_width(op) * sizeof *list);
      for (int n = op_writes(op, list); n--;) check_slots_touch(i, f->op[k], list[n]);
      for (int n = op_reads(op, list); n--;) check_slots_touch(i, f->op[k], list[n]);
    }
  }
}

/* Whether an action from `from` on touches the micro-batch's values in flight of the stage. */
static bool is_touched_from(const struct actions *actions, int from, int stage, int microbatch)
{
  for (int i = from; i < actions->n; i++)
    if (actions->at[i].microbatch == microbatch && *touches_of(actions->at[i].stage, stage))
      return true;
  return false;
}

static void check_slots_of(const struct actions *actions, int stage)
{
  const struct slots *of = &graph->memory->slots[stage];
  int *slot = alloc((size_t)(actions->n + 1) * sizeof *slot);
  int *has = alloc((size_t)(of->n + 1) * sizeof *has); /* by slot: the micro-batch in it */
  /* The largest number of micro-batches in flight at once: from the stage's forward to the last
     action that touches their values. */
  int *last = alloc((size_t)(microbatches() + 1) * sizeof *last), now = 0, most = 0;
  for (int i = 0; i < actions->n; i++)
    if (*touches_of(actions->at[i].stage, stage)) last[actions->at[i].microbatch] = i;
  for (int i = 0; i < actions->n; i++) {
    const struct action *a = &actions->at[i];
    if (!*touches_of(a->stage, stage)) continue;
    now += a->kind == ACTION_F && a->stage == stage;
    if (now > most) most = now;
    now -= last[a->microbatch] == i;
  }
  require(most <= of->n, NONE, "more micro-batches are in flight than slots");
  slots_of_stage(actions, stage, slot);
  for (int k = 0; k < of->n; k++) has[k] = NONE;
  for (int i = 0; i < actions->n; i++) {
    const struct action *a = &actions->at[i];
    if (!*touches_of(a->stage, stage)) continue;
    require(slot[i] >= 0 && slot[i] < of->n, NONE, "an action has no slot");
    if (a->kind == ACTION_F && a->stage == stage) {
      require(has[slot[i]] == NONE || !is_touched_from(actions, i, stage, has[slot[i]]), NONE,
              "two micro-batches in flight have one slot");
      has[slot[i]] = a->microbatch;
    }
    require(has[slot[i]] == a->microbatch, NONE, "an action takes the slot of another micro-batch");
  }
}

void check_slots(void)
{
  if (!graph->stages) return;
  const struct actions actions = actions_here();
  int n = graph->stages->n;
  touches = alloc((size_t)n * (size_t)n);
  first_touched = alloc((size_t)(graph->nvalue + 1) * sizeof *first_touched);
  for (int i = 0; i < graph->nvalue; i++) first_touched[i] = NONE;
  touch_all();
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (is_phase(f) && is_of_batch(f->phase) && is_stage_here(f->stage)) {
      /* Each function of a stage runs once for each micro-batch, according to the program's
       * actions. */
      int k = microbatches(), *runs = alloc((size_t)(k + 1) * sizeof *runs);
      enum stage_work work = work_of_function(f);
      for (int j = 0; j < actions.n; j++)
        if (actions.at[j].stage == f->stage && does_work(actions.at[j].kind, work))
          runs[actions.at[j].microbatch]++;
      for (int m = 0; m < k; m++)
        require(runs[m] == 1, NONE, "a stage does not do its work once for each micro-batch");
    }
  }
  for (int s = 0; s < n; s++)
    if (is_stage_here(s)) check_slots_of(&actions, s);
}
