/* check_slots.c: a part of check.c: in a pipeline, the slots of the micro-batches in flight.

   Takes   the program of the ranks at one place, with storage for every value.
   Holds   a value that a function leaves for another one, or sends, is in a slot. The slot belongs
           to the micro-batch from the stage's forward to the last action that touches it; no other
           one, of any stage, takes it in between. Within a slot, check_memory.c finds values. The
           actions do the work of a stage once for each micro-batch. */
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

/* What a slot has: a micro-batch of a stage. */
struct held {
  int stage, microbatch;
};

/* Whether an action from `from` on touches the values in flight of a stage's micro-batch. */
static bool is_touched_from(const struct actions *actions, int from, struct held h)
{
  for (int i = from; i < actions->n; i++)
    if (actions->at[i].microbatch == h.microbatch && *touches_of(actions->at[i].stage, h.stage))
      return true;
  return false;
}

/* The largest number of micro-batches of the stage in flight at once: from its forward to the last
   action that touches their values. */
static int largest_in_flight(const struct actions *actions, int stage)
{
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
  return most;
}

/* Each value in flight is within its stage's slot: the slots are the end of the arena. */
static void check_within_slots(int64_t all)
{
  for (int i = 0; i < graph->nvalue; i++) {
    const struct allocation a = allocation_of(i);
    if (a.in_flight == NONE || a.storage != i || !graph->value[i].stored) continue;
    const int64_t from = a.offset - (arena_bytes() - all) - bytes_before_stage(a.in_flight);
    require(from >= 0 && from + largest_bytes(i) <= graph->memory->slots[a.in_flight].bytes,
            graph->value[i].op, "it is outside its slot");
  }
}

/* Each action finds its micro-batch in the slots of all stages whose values it touches: no other
   one, of any stage of the rank, has taken these slots since. */
static void check_slots_of_rank(const struct actions *actions)
{
  const struct rank_slots slots = slots_of_rank(actions);
  const int64_t *begin = slot_begins(&slots, graph->memory->slots);
  struct held *has = alloc((size_t)(slots.n + 1) * sizeof *has); /* by slot */
  for (int k = 0; k < slots.n; k++) has[k].stage = NONE;
  for (int i = 0; i < actions->n; i++) {
    const struct action *a = &actions->at[i];
    for (int s = 0; s < graph->stages->n; s++) {
      if (!is_stage_here(s) || !*touches_of(a->stage, s)) continue;
      const int slot = slots.of[s][a->microbatch];
      const bool takes = a->kind == ACTION_F && a->stage == s;
      require(slot >= 0 && slot < slots.n, NONE, "an action has no slot");
      require(begin[slot + 1] - begin[slot] >= graph->memory->slots[s].bytes, NONE,
              "a slot is smaller than what it has");
      require(!takes || has[slot].stage == NONE || !is_touched_from(actions, i, has[slot]), NONE,
              "two micro-batches in flight have one slot");
      if (takes) has[slot] = (struct held){s, a->microbatch};
      require(has[slot].stage == s && has[slot].microbatch == a->microbatch, NONE,
              "an action takes the slot of another micro-batch");
    }
  }
  check_within_slots(begin[slots.n]);
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
    require(!is_stage_here(s) || largest_in_flight(&actions, s) <= graph->memory->slots[s].n, NONE,
            "more micro-batches are in flight than slots");
  check_slots_of_rank(&actions);
}
