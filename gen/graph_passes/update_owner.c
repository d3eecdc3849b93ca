/* update_owner.c: the part of updates that runs on owner ranks: the matrices of equal modules are
   stacked, [modules, rows, columns], and the stack is cut along its first dimension over all ranks.
   So each matrix is whole on one rank, its owner. The operations on the matrices are those of the
   stack. After them the stack is cut as the parameters are, and each module takes its slice. */
#include "graph_passes/graph_passes.h"

/* By parameter: those that are updated together with it, in the order of their modules; and their
   list of modules. n is 0 where the parameter is updated by itself. */
struct together {
  struct list parameter;
  int list;
};

/* --------------------------------------------------------------------------------- on the owner */

/* The time at which a step runs: for each parameter; then once for the stack; then, for the steps
   that need its results, again for each parameter. */
enum when { BEFORE, ON_OWNER, BEHIND };

static enum when when_made(const struct optimizer *o, const enum when *of_step, int operand)
{
  return operand < first_step_operand(o) ? BEFORE : of_step[operand - first_step_operand(o)];
}

static const enum when *find_when(const struct optimizer *o)
{
  enum when *when = alloc(((size_t)o->nstep + 1) * sizeof *when);
  for (int s = 0; s < o->noperation; s++) {
    bool goes = o->step[s].kind == OP_scan_stack, any = goes;
    bool all = o->step[s].kind != OP_scan_take;
    for (int i = 0; i < inputs_of_step(o->step[s].kind) && !goes; i++)
      if (!is_number_operand(o, o->step[s].in[i]))
        all &= when_made(o, when, o->step[s].in[i]) == ON_OWNER;
    for (int i = 0; i < inputs_of_step(o->step[s].kind); i++)
      any |= when_made(o, when, o->step[s].in[i]) != BEFORE;
    when[s] = !any ? BEFORE : all ? ON_OWNER : BEHIND;
  }
  return when;
}

/* The layout of a stack with each matrix whole on one rank; in a pipeline, on one of its stage. */
static struct layout owner_layout(void)
{
  struct layout l = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (ranks_along(d) > 1 && !is_over_stages(d)) l.on[d] = (struct placement){.kind = SHARD};
  return usual_cut_order(l);
}

/* Operations have a bound of inputs: operations without work hold the inputs beyond it. */
static void hold(const struct operands *of, const struct operands *each, int n, int operand)
{
  for (int i = MAX_INPUTS; i < n;) {
    struct op op = op_of_update(OP_scan_hold, of);
    while (op.nin < MAX_INPUTS && i < n) op.in[op.nin++] = each[i++].value[operand];
    if (op.nin == 1) op.in[op.nin++] = op.in[0];
    append_update(op);
  }
}

/* Stacks the slices of that step, and moves the stack to the matrices' owners. */
static int moved_to_owners(const struct operands *of, const struct operands *each, int n, int step)
{
  int operand = first_step_operand(of->o) + step;
  struct op op = op_of_update(OP_scan_stack, of);
  struct shape shape = {.ndim = 3, .size = {n}};
  for (int d = 0; d < 2; d++) shape.size[1 + d] = graph->value[each->value[operand]].shape.size[d];
  op.dims = 1;
  while (op.nin < n && op.nin < MAX_INPUTS) {
    op.in[op.nin] = each[op.nin].value[operand];
    op.nin++;
  }
  int whole = name_of_update(append_op_shaped(op, shape), of, "stack");
  hold(of, each, n, operand);
  return append_of_update(
      move_of_update(owner_layout(), whole, of, text("%s's owner ranks", of->o->name)), whole, of,
      "on_owner");
}

/* Whether an operand that is on the owner is needed after that. */
static bool leaves_owner(const struct optimizer *o, const enum when *when, int operand)
{
  if (when_made(o, when, operand) != ON_OWNER) return false;
  for (int s = 0; s < o->noperation; s++)
    for (int i = 0; i < inputs_of_step(o->step[s].kind) && when[s] == BEHIND; i++)
      if (o->step[s].in[i] == operand) return true;
  return update_takes(o, operand);
}

/* ---------------------------------------------------------------------------- updated together */

/* The number of ranks of the job, or of a stage of its pipeline. */
static int ranks_together(void)
{
  return graph->stages ? world_size() / graph->mesh.size[graph->stages->mesh_dim] : world_size();
}

static bool works_on_owners(const struct optimizer *o)
{
  for (int s = 0; s < o->noperation; s++)
    if (o->step[s].kind == OP_scan_stack) return ranks_together() > 1;
  return false;
}

/* The largest number of loops in an update: other matrices are whole on every rank. */
enum { MOST_TOGETHER = 128 };

/* The parameters of one name in the modules of a list, if all are updated alike, and none is
   together with others. */
static void join(struct updating *u, int list, int count, const struct list *of, int k,
                 const int *gradient)
{
  int first = of[0].at[k], optimizer = graph->value[first].optimizer;
  for (int m = 0; m < count; m++) {
    int p = of[m].at[k];
    if (gradient[p] == NONE || graph->value[p].optimizer != optimizer || u->together[p].parameter.n)
      return;
  }
  if (!works_on_owners(&plan_options->optimizer[optimizer])) return;
  /* Whether collectives can count the size of the stack of n of them, in the parameters' layout and
     on one owner. */
  enum { MOST = 1 << 30 };
  int64_t whole = elements(graph->value[first].shape);
  int ranks = ranks_together(), on_owner = (count + ranks - 1) / ranks;
  bool can_be_stacked = elements(local_shape(first, 0)) <= MOST / count && whole <= MOST / on_owner;
  if (!can_be_stacked) return;
  if (u->nstack == MOST_TOGETHER) {
    ended_early("optimize", "matrices updated on their owner", MOST_TOGETHER, "stacks");
    return;
  }
  u->nstack++;
  struct together all = {.list = list};
  for (int m = 0; m < count; m++) add(&all.parameter, of[m].at[k]);
  for (int m = 0; m < count; m++) u->together[of[m].at[k]] = all;
}

/* The number of the list's modules, from that one on, that its stage has: without a pipeline,
   all. */
static int of_one_stage(const struct list *inner, int list, int first, int all, const int *stage)
{
  int of_first = NONE, end = all;
  for (int k = 0; k < inner->n && stage; k++) {
    int place = place_in_list(element_within(graph->value[inner->at[k]].module, list));
    if (place == first) of_first = stage[inner->at[k]];
    if (place > first && place < end && stage[inner->at[k]] != of_first) end = place;
  }
  return end - first;
}

void find_updates_on_owners(struct updating *u, const int *gradient)
{
  const int *counts = count_elements();
  const struct list *inner = parameters_of_lists(counts);
  u->together = alloc((size_t)(graph->nvalue + 1) * sizeof *u->together);
  const int *stage = graph->stages ? stages_of_parameters() : NULL;
  for (int list = 0; list < graph->nmodule; list++) {
    if (counts[list] < 2 || graph->module[list].steps) continue;
    for (int first = 0, count; first < counts[list]; first += count) {
      count = of_one_stage(&inner[list], list, first, counts[list], stage);
      count = count_equal(&inner[list], list, first, count);
      const struct list *of = equal_parameters(&inner[list], list, first, count);
      for (int k = 0; count > 1 && of && k < of->n; k++) join(u, list, count, of, k, gradient);
    }
  }
}

struct list updated_on_owners_with(const struct updating *u, int parameter)
{
  return u->together[parameter].parameter;
}

/* --------------------------------------------------------------------------------- the updates */

/* Runs the steps of that time. */
static void run(const struct operands *of, const enum when *when, enum when now)
{
  for (int s = 0; s < of->o->noperation; s++)
    if (when[s] == now)
      of->value[first_step_operand(of->o) + s] = append_step_of_update(of, &of->o->step[s]);
}

/* The operands of the stack of these. */
static struct operands operands_of_stack(const struct updating *u, const struct operands *each)
{
  struct operands of = *each;
  int list = u->together[of.parameter].list;
  const char *path = graph->module[list].path;
  of.stacked = true;
  of.module = list;
  of.name = text("%s%s", path, behind_number(path, of.name) + !*path);
  of.value = alloc((size_t)(first_step_operand(of.o) + of.o->nstep) * sizeof(int));
  return of;
}

static void work_on_owners(const struct updating *u, const struct operands *each, int n,
                           const enum when *when)
{
  const struct optimizer *o = each->o;
  struct operands of = operands_of_stack(u, each);
  int first = first_step_operand(o);
  for (int s = 0; s < o->noperation; s++) {
    if (when[s] != ON_OWNER) continue;
    bool goes = o->step[s].kind == OP_scan_stack;
    of.value[first + s] =
        goes ? moved_to_owners(&of, each, n, s) : append_step_of_update(&of, &o->step[s]);
  }
  for (int k = first; k < first + o->noperation; k++) {
    if (!leaves_owner(o, when, k)) continue;
    /* The stack of an operand, cut as the update takes it. */
    int value = of.value[k];
    /* The shape of one matrix of a stack. */
    struct shape shape = graph->value[of.value[k]].shape;
    for (int d = 0; d < shape.ndim - 1; d++) shape.size[d] = shape.size[d + 1];
    shape.ndim--;
    struct layout to = layout_in_update(each, k, shape);
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (to.on[d].kind == SHARD) to.on[d].dim++;
    int back = append_of_update(move_of_update(to, value, &of, text("the update of %s", of.name)),
                                value, &of, "new");
    for (int i = 0; i < n; i++) each[i].value[k] = back;
  }
}

void append_updates_on_owners(const struct updating *u, struct op *update, int n)
{
  const struct optimizer *o = optimizer_of(update);
  const enum when *when = find_when(o);
  struct operands *each = alloc((size_t)n * sizeof *each);
  int first = first_step_operand(o);
  for (int i = 0; i < n; i++) {
    each[i] = operands_of_update(u, &update[i]);
    if (i == 0) {
      /* Makes the numbers of the step, so that the operations of equal modules are equal. */
      for (int s = 0; s < each->o->noperation; s++)
        for (int k = 0; k < inputs_of_step(each->o->step[s].kind); k++)
          if (is_number_operand(each->o, each->o->step[s].in[k]))
            value_of_operand(each, each->o->step[s].in[k], F32);
    }
    run(&each[i], when, BEFORE);
    for (int s = 0; s < o->noperation; s++)
      if (o->step[s].kind == OP_scan_stack)
        each[i].value[first + s] = append_of_update(
            op_of_update(OP_scan_put, &each[i]), each[i].value[o->step[s].in[0]], &each[i], "part");
  }
  work_on_owners(u, each, n, when);
  for (int i = 0; i < n; i++) {
    for (int k = first; k < first + o->noperation; k++)
      if (leaves_owner(o, when, k)) {
        /* A module's slice of a stack. */
        const struct operands *of = &each[i];
        int stack = each[i].value[k];
        struct op op = op_of_update(OP_scan_take, of);
        op.dims = 1;
        each[i].value[k] = append_of_update(op, stack, of, "slice");
      }
    run(&each[i], when, BEHIND);
    append_update_taking(&update[i], &each[i]);
  }
}
