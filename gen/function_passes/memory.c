/* memory.c: the pass `memory`: the place of every value in memory.

   Takes   functions in their final order, each value marked if it is stored; the forms of kernels,
           for the scratch that they need outside the arena.
   Leaves  graph->memory: for each stored activation a range of bytes in the arena, such that no two
           with overlapping lifetimes overlap; the same on every rank (sizes are those of the
           largest shard, on rank 0). Values that alias share bytes (alias.c): a result those of an
           input that it overwrites, a view those of its input. Parameters, gradients, states,
           batch, loss and outputs have places of their own. A stack of equal modules' values has
           one place for all, two if a neighbour reads it, or one for each if the backward does.
           arena_offsets.c finds the ranges.

   Other passes query the live bytes of their candidates. Such a query has a memory plan of its own,
   and does not change the graph. */
#include "function_passes/function_passes.h"

static void find_storages(struct lifetimes *l)
{
  find_lifetimes(l);
  find_aliases(l);
  l->storage.n = 0;
  for (int k = 0; k < l->value.n; k++) {
    int i = l->value.at[k];
    const struct allocation *a = &l->plan->of[i];
    if (in_arena(i) && a->storage == i && a->first != NONE) add(&l->storage, i);
  }
}

/* ------------------------------------------------------------------------------------------ trials
 */

/* The last query; its tables serve the next one. */
struct trial {
  const struct graph *of;
  struct lifetimes lifetimes;
  struct placing placing;
  struct list sums; /* gradients and losses among the values up to nvalue */
  int nvalue;
};

static void touch(struct lifetimes *l, int value)
{
  const struct in_loop *loop = in_loop(value);
  int wide = concat_slice(value)->buffer;
  l->note[value].touched = true;
  if (loop->stack != NONE) l->note[loop->stack].touched = true;
  if (wide != NONE) l->note[wide].touched = true;
  if (loop->step) touch(l, loop->initial);
}

static void touch_values_of(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  (void)times;
  for (int i = 0; i < op->nin; i++) touch(to, op->in[i]);
  for (int k = 0; k < op->nout; k++) touch(to, op->out + k);
  for (int k = 0; k < op->nbody; k++) touch_values_of(to, op->body[k], 1);
  if (op->packed) touch(to, op->buffer);
}

/* The values that the program touches: few in a list of modules except the first one's.
   Accumulators have one place, whether or not the program touches all of them. */
static void list_touched(struct trial *t)
{
  struct lifetimes *l = &t->lifetimes;
  for (; t->nvalue < graph->nvalue; t->nvalue++)
    if (is_gradient(t->nvalue) || graph->value[t->nvalue].role == LOSS) add(&t->sums, t->nvalue);
  each_op(touch_values_of, l);
  for (int k = 0; k < t->sums.n; k++) l->note[t->sums.at[k]].touched = true;
  l->value.n = 0;
  for (int i = 0; i < graph->nvalue; i++)
    if (l->note[i].touched) add(&l->value, i);
}

static struct trial *begin_trial(void)
{
  static struct trial trial;
  if (trial.of != graph) trial = (struct trial){.of = graph};
  find_program_points(&trial.lifetimes);
  return &trial;
}

/* The storages of the current program, ready to be placed. */
static struct trial *run_trial(void)
{
  struct trial *t = begin_trial();
  list_touched(t);
  find_storages(&t->lifetimes);
  begin_placing(&t->placing, t->lifetimes.plan, &t->lifetimes.storage);
  return t;
}

int64_t live_bytes(void)
{
  return most_live(&run_trial()->placing);
}

bool can_live_in(int64_t bytes)
{
  struct placing *p = &run_trial()->placing;
  int64_t most = most_live(p);
  return most <= bytes && place_values(p, most, false) <= most + most / 256;
}

/* ---------------------------------------------------------------------------------------- the pass
 */

/* By stack: the gradients in it, by index. */
static int **gradients_of_stacks(void)
{
  int *count = alloc((size_t)(graph->nvalue + 1) * sizeof *count);
  int **gradient = alloc((size_t)(graph->nvalue + 1) * sizeof *gradient);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < graph->nvalue; i++) {
      const struct value *v = &graph->value[i];
      const struct in_loop *loop = in_loop(i);
      if (v->role != GRADIENT || loop->stack == NONE) continue;
      if (!pass && loop->index >= count[loop->stack]) count[loop->stack] = loop->index + 1;
      if (pass && !gradient[loop->stack])
        gradient[loop->stack] = alloc((size_t)count[loop->stack] * sizeof **gradient);
      if (pass) gradient[loop->stack][loop->index] = i;
    }
  return gradient;
}

/* The final place of a value; the offset of its storage is known. */
static void find_place(struct lifetimes *l, int value, int *const *gradient)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  struct allocation *a = &l->plan->of[value];
  bool is_one = loop->stack != NONE && !loop->step && v->role == ACTIVATION;
  int storage = stack_representative(l->plan, value),
      slot = is_one ? loop->index : l->note[value].slot;
  const struct value *place = &graph->value[storage];
  if (is_one && place->role == GRADIENT && in_loop(storage)->stack == storage) {
    a->storage = gradient[storage][loop->index];
    a->offset = 0;
    a->depth = 1;
    return;
  }
  if (l->note[value].sums_up) {
    find_place(l, loop->stack, gradient);
    *a = l->plan->of[loop->stack];
    return;
  }
  int64_t inside = offset_within(l, is_one ? loop->stack : value);
  a->slice = l->plan->of[is_one ? loop->stack : value].slice;
  l->note[value].within = inside;
  a->storage = storage;
  a->in_flight = l->plan->of[storage].in_flight;
  a->depth = l->plan->of[storage].depth;
  a->offset = l->plan->of[storage].offset + inside +
              (a->slice ? slot * a->slice : slot % a->depth * arena_stride(storage));
}

/* The storages of all values. */
static struct trial *find_all_storages(void)
{
  struct trial *t = begin_trial();
  struct lifetimes *l = &t->lifetimes;
  l->value.n = 0;
  for (int i = 0; i < graph->nvalue; i++) add(&l->value, i);
  find_storages(l);
  return t;
}

/* The plan of these storages, with the place of every value. */
static struct memory_plan *finished_plan(struct lifetimes *l)
{
  struct memory_plan *plan = l->plan;
  int *const *gradient = gradients_of_stacks();
  for (int i = 0; i < graph->nvalue; i++) find_place(l, i, gradient);
  l->plan = NULL; /* the next query makes one of its own */
  return plan;
}

struct memory_plan *find_shared_bytes(void)
{
  struct trial *t = begin_trial();
  list_touched(t);
  find_storages(&t->lifetimes);
  return finished_plan(&t->lifetimes);
}

/* ------------------------------------------------------------------------ micro-batches in flight
 */

/* The functions that touch a storage. */
struct touched {
  bool by_batch, by_others; /* functions of micro-batches; others */
  int function, stage;      /* the first of those, and the lowest stage of them */
  bool by_several, is_sent;
};

static bool is_same_function(int a, int b)
{
  const struct function *f = &graph->function[a], *g = &graph->function[b];
  return f->phase == g->phase && f->stage == g->stage && f->of_weights == g->of_weights;
}

static void touch_storage(struct touched *t, int function, bool is_sent)
{
  const struct function *f = &graph->function[function];
  if (!is_of_batch(f->phase)) {
    t->by_others = true;
    return;
  }
  t->is_sent |= is_sent;
  if (!t->by_batch) {
    t->by_batch = true;
    t->function = function;
    t->stage = f->stage;
    return;
  }
  t->by_several |= !is_same_function(t->function, function);
  if (f->stage < t->stage) t->stage = f->stage;
}

/* A carried value is another one in each iteration. */
static void touch_place(const struct lifetimes *l, struct touched *touched, int value, int at)
{
  const struct in_loop *loop = in_loop(value);
  if (loop->step) {
    touch_place(l, touched, loop->initial, at);
    value = loop->stack;
  }
  touch_storage(&touched[stack_representative(l->plan, value)], function_running_at(l, at),
                op_at(l, at)->kind == OP_send);
}

/* In a pipeline a rank runs functions of its stages for other micro-batches between those of one. A
   value that one function leaves for another, and a value that is sent, is in a slot of its
   micro-batch: in that of the lowest stage, which has its slot first and needs it last. */
static void find_in_flight(struct lifetimes *l)
{
  struct touched *touched = alloc((size_t)(graph->nvalue + 1) * sizeof *touched);
  for (int at = 0; at < l->op.n; at++) {
    for (int n = op_writes(op_at(l, at), l->accessed); n--;)
      touch_place(l, touched, l->accessed[n], at);
    for (int n = reads_at(l, at, l->accessed); n--;) touch_place(l, touched, l->accessed[n], at);
  }
  for (int k = 0; k < l->storage.n; k++) {
    const struct touched *t = &touched[l->storage.at[k]];
    if (!t->by_others && (t->by_several || t->is_sent))
      l->plan->of[l->storage.at[k]].in_flight = t->stage;
  }
}

/* Whether it is a receive's place, to which another rank may write before the action begins. */
static bool is_posted_place(int value)
{
  const int maker = graph->value[value].op;
  return maker != NONE && is_posted(&graph->op[maker]);
}

enum in_part { ALL, POSTED, OTHERS };

/* The storages that are in flight with the stage; NONE: those that are not in flight. */
static int64_t place_some(struct trial *t, int in_flight, enum in_part part, int64_t *live)
{
  struct memory_plan *plan = t->lifetimes.plan;
  struct list some = {0};
  for (int i = 0; i < t->lifetimes.storage.n; i++) {
    const int value = t->lifetimes.storage.at[i];
    if (plan->of[value].in_flight == in_flight &&
        (part == ALL || is_posted_place(value) == (part == POSTED)))
      add(&some, value);
  }
  begin_placing(&t->placing, plan, &some);
  *live = most_live(&t->placing);
  return place_values(&t->placing, *live, true);
}

static int64_t aligned(int64_t bytes)
{
  enum { ALIGNMENT = 256 };
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Of several stages: the places of receives come before the rest, at the same offset for all of
   them. A receive is posted as soon as the slot is free. Another rank may still read what was sent
   from the slot, which has other bytes. */
static void place_of_several_stages(struct trial *t, int64_t *live)
{
  struct memory_plan *plan = t->lifetimes.plan;
  int64_t received = 0;
  for (int s = 0; s < graph->stages->n; s++) {
    if (!is_stage_here(s)) continue;
    int64_t bytes = aligned(place_some(t, s, POSTED, &live[s]));
    if (received < bytes) received = bytes;
  }
  for (int s = 0; s < graph->stages->n; s++) {
    if (!is_stage_here(s)) continue;
    int64_t rest;
    plan->slots[s].bytes = received + aligned(place_some(t, s, OTHERS, &rest));
    live[s] += rest;
    for (int i = 0; i < t->lifetimes.storage.n; i++) {
      const int value = t->lifetimes.storage.at[i];
      if (plan->of[value].in_flight == s && !is_posted_place(value))
        plan->of[value].offset += received;
    }
  }
}

/* The slots come after the values that live within a function, or for all micro-batches. */
static void place_slots(struct trial *t)
{
  struct memory_plan *plan = t->lifetimes.plan;
  const struct actions actions = actions_here();
  const struct rank_slots slots = slots_of_rank(&actions);
  int64_t *live = alloc((size_t)graph->stages->n * sizeof *live), at = 0;
  plan->slots = alloc((size_t)graph->stages->n * sizeof *plan->slots);
  plan->arena_bytes = aligned(plan->arena_bytes);
  if (slots.stages.n == 1) {
    const int s = slots.stages.at[0];
    plan->slots[s].bytes = aligned(place_some(t, s, ALL, &live[s]));
  } else {
    place_of_several_stages(t, live);
  }
  for (int s = 0; s < graph->stages->n; s++) {
    if (!is_stage_here(s)) continue;
    plan->slots[s].n = slots.stages.n == 1 ? slots.n : slots.most[s];
    for (int i = 0; i < t->lifetimes.storage.n; i++) {
      struct allocation *a = &plan->of[t->lifetimes.storage.at[i]];
      if (a->in_flight == s) a->offset += plan->arena_bytes + at;
    }
    at += plan->slots[s].bytes;
  }
  plan->arena_bytes += slot_begins(&slots, plan->slots)[slots.n];
  plan->live_bytes += most_in_flight(&slots, &actions, live);
}

void memory(void)
{
  struct trial *t = find_all_storages();
  struct memory_plan *plan = t->lifetimes.plan;
  if (graph->stages) find_in_flight(&t->lifetimes);
  plan->arena_bytes = place_some(t, NONE, ALL, &plan->live_bytes);
  if (graph->stages) place_slots(t);
  plan->placed = true;
  plan->scratch_bytes = kernel_scratch(0) * type_bytes(F32);
  graph->memory = finished_plan(&t->lifetimes);
}
