/* lifetimes.c: the lifetimes of values, and the number of a stack's values that are kept.

   A program point is the index of an operation in the order of each_op. A value lives from the
   point that makes it to the last one that reads it. A value that a loop reads but does not make
   lives until the loop ends. An asynchronous collective reads and writes until its await. */
#include "function_passes/function_passes.h"

#include <string.h>

/* ------------------------------------------------------------------------------- program points */

static void add_point(void *to, int op, int times)
{
  struct lifetimes *l = to;
  (void)times;
  add(&l->op, op);
}

/* All-zero tables with room for the current graph. */
static void clear_tables(struct lifetimes *l)
{
  size_t values = (size_t)graph->nvalue + 1, ops = (size_t)graph->nop + 1,
         functions = (size_t)graph->nfunction + 1;
  if (l->values < values) {
    l->values = l->values ? values + values / 2 : values;
    l->plan = NULL;
    l->note = alloc(l->values * sizeof *l->note);
  }
  if (!l->plan) {
    l->plan = alloc(sizeof *l->plan);
    l->plan->of = alloc(l->values * sizeof *l->plan->of);
  }
  if (l->ops < ops) {
    l->ops = l->ops ? ops + ops / 2 : ops;
    l->function_of = alloc(l->ops * sizeof *l->function_of);
    l->await_at = alloc(l->ops * sizeof *l->await_at);
  }
  if (l->functions < functions) {
    l->functions = l->functions ? functions + functions / 2 : functions;
    l->loop_first = alloc(l->functions * sizeof *l->loop_first);
    l->loop_last = alloc(l->functions * sizeof *l->loop_last);
  }
  clear_memory_plan(l->plan);
  for (size_t i = 0; i < values; i++)
    l->note[i] = (struct value_note){.gradient = NONE, .sum = NONE};
}

void find_program_points(struct lifetimes *l)
{
  clear_tables(l);
  l->op.n = 0;
  each_op(add_point, l);
  int widest = 0;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      int width = op_width(&graph->op[graph->function[i].op[k]]);
      if (widest < width) widest = width;
    }
  if (l->width < widest) {
    l->width = l->width ? 2 * widest : widest;
    l->accessed = alloc((size_t)l->width * sizeof *l->accessed);
    l->in = alloc((size_t)l->width * sizeof *l->in);
    l->out = alloc((size_t)l->width * sizeof *l->out);
  }
  l->end_of_batches = 0;
  for (int i = 0; i < graph->nfunction; i++) l->loop_first[i] = NONE;
  functions_of_ops(l->function_of);
  for (int at = 0; at < l->op.n; at++) l->await_at[l->op.at[at]] = NONE;
  for (int at = 0; at < l->op.n; at++) {
    const struct op *op = op_at(l, at);
    int f = function_running_at(l, at);
    if (op->kind == OP_await) l->await_at[op->awaits] = at;
    if (l->loop_first[f] == NONE) l->loop_first[f] = at;
    l->loop_last[f] = at;
    if (is_of_batch(graph->function[f].phase)) l->end_of_batches = at + 1;
  }
}

const struct op *op_at(const struct lifetimes *l, int at)
{
  return &graph->op[l->op.at[at]];
}

int function_running_at(const struct lifetimes *l, int at)
{
  return l->function_of[l->op.at[at]];
}

bool is_loop_body(int function)
{
  return graph->function[function].count > 1;
}

/* -------------------------------------------------------------- the values that a point touches */

/* An await is the end of its collective, and of that one's predecessors that have not been awaited
   before. */
int reads_at(const struct lifetimes *l, int at, int *list)
{
  const struct op *op = op_at(l, at);
  int n = 0;
  if (op->kind != OP_await) return op_reads(op, list);
  for (const struct op *c = &graph->op[op->awaits]; c; c = predecessor_of(c)) {
    int await = l->await_at[c - graph->op];
    if (await != NONE && await < at) continue;
    n += pending_reads(c, list + n);
    n += pending_writes(c, list + n);
  }
  return n;
}

typedef void visit_access(struct lifetimes *l, int value, int at);

static void each_read(struct lifetimes *l, visit_access *visit)
{
  for (int at = 0; at < l->op.n; at++)
    for (int n = reads_at(l, at, l->accessed); n--;) visit(l, l->accessed[n], at);
}

static void make_at(struct lifetimes *l, int value, int at)
{
  struct allocation *a = &l->plan->of[value];
  a->last = at;
  if (graph->value[value].pieces && a->first != NONE) return;
  a->made = a->first = at;
  a->made_by = function_running_at(l, at);
  if (!is_posted(op_at(l, at))) return;
  a->first = 0;
  a->last = l->end_of_batches;
}

static void note_reader(struct lifetimes *l, int value, int at)
{
  l->note[value].reads++;
  l->note[value].read_at = at;
  int stack = in_loop(value)->stack;
  if (stack == NONE) return;
  if (stack != value || !is_loop_body(function_running_at(l, at)))
    l->note[stack].by_own_name = true;
}

/* ------------------------------------------------------------ the number of values kept at once */

static bool is_part_of(int function, int body)
{
  if (function == NONE) return false;
  return graph->function[function].is_part && graph->function[function].body == body;
}

/* The number of a stack's values that a reader needs: only this module's, the neighbour's too, or
   all. Outside the loop the last module's value exists without keeping more. */
static int depth_for(int value, int maker, int reader, bool sums_up)
{
  const struct in_loop *loop = in_loop(value);
  if (maker == NONE) return 1;
  int count = graph->function[maker].count;
  if (loop->step) return reader != maker ? count : sums_up ? 1 : 2;
  if (reader == maker || is_part_of(reader, maker)) return 1;
  /* A value issued for later iterations is written while this iteration's is read. */
  if (is_part_of(maker, reader)) {
    /* The number of iterations by which the part of a loop's body is called ahead. */
    const struct function *f = &graph->function[maker];
    return 1 + scheduled(&graph->op[f->op[f->nop - 1]])->prefetch_distance;
  }
  int last = graph->function[maker].upward ? count - 1 : 0;
  return !is_loop_body(reader) && loop->index == last ? 1 : count;
}

static void lifetimes_widen(struct lifetimes *l, int value, int reader)
{
  const struct in_loop *loop = in_loop(value);
  if (loop->stack == NONE) return;
  struct allocation *stack = &l->plan->of[loop->stack];
  l->plan->of[value].made_by = stack->made_by;
  int depth = depth_for(value, stack->made_by, reader, l->note[value].sums_up);
  if (stack->depth < depth) stack->depth = depth;
  if (loop->step) lifetimes_widen(l, loop->initial, reader);
}

/* A collective may be issued for a later iteration, and awaited there. Its input needs no second
   place: the previous iteration's is dead when it is made. Its result needs one for each iteration
   of its prefetch distance. */
static void widen_at(struct lifetimes *l, int value, int at)
{
  const struct op *op = op_at(l, at);
  int ahead = op->kind == OP_await ? scheduled(&graph->op[op->awaits])->prefetch_distance : 0;
  struct allocation *a = &l->plan->of[value];
  if (!ahead)
    lifetimes_widen(l, value, function_running_at(l, at));
  else if (in_loop(value)->stack == value && is_part_of(a->made_by, function_running_at(l, at)) &&
           a->depth < ahead)
    a->depth = ahead;
}

/* ------------------------------------------------------------------------------------ lifetimes */

/* Whether a stage of a pipeline takes the value from another stage of the same ranks: split
   backwards of the two have no fixed order. */
static bool is_of_two_stages(const struct lifetimes *l, int kept, int reader)
{
  int maker = l->plan->of[kept].made_by;
  if (!graph->stages || maker == NONE) return false;
  int made = graph->function[maker].stage, read = graph->function[reader].stage;
  return made != NONE && read != NONE && made != read;
}

/* A value gathered for all batches of a step lives until the last batch has read it. A value that
   is computed before the first step, and read later, lives until after the last operation: it ends
   in no step. A send may end while others compute. */
static int until_end(const struct lifetimes *l, int kept, int reader, bool is_sent)
{
  int op = graph->value[kept].op;
  enum phase made = op == NONE ? FORWARD : graph->op[op].phase,
             read = graph->function[reader].phase;
  if (made == CONSTANTS && read != CONSTANTS) return l->op.n;
  if (is_sent || is_of_two_stages(l, kept, reader)) return l->end_of_batches;
  return made == GATHER && is_of_batch(read) ? l->end_of_batches : 0;
}

/* Each iteration of a loop reads a value that the loop did not make: it lives until the last
   one. */
static void read_at(struct lifetimes *l, int value, int at)
{
  const struct in_loop *loop = in_loop(value);
  int reader = function_running_at(l, at), kept = loop->stack == NONE ? value : loop->stack;
  if (loop->step) read_at(l, loop->initial, at);
  struct allocation *a = &l->plan->of[kept];
  bool own = graph->value[kept].op != NONE && a->made_by == reader && !loop->step;
  int until = is_loop_body(reader) && !own ? l->loop_last[reader] : at;
  int end = until_end(l, kept, reader, op_at(l, at)->kind == OP_send);
  if (until < end) until = end;
  if (a->last < until) a->last = until;
}

/* A carried value is a sum over the steps of a scan if only the operation that adds to it, in
   place, reads it, and if it begins with zeros that nothing else reads. */
static bool sums_up(const struct lifetimes *l, int value)
{
  const struct in_loop *loop = in_loop(value);
  if (!loop->step || l->note[value].reads != 1) return false;
  const struct value *initial = &graph->value[loop->initial];
  const struct op *adds = op_at(l, l->note[value].read_at);
  if (l->plan->of[loop->stack].made != l->note[value].read_at) return false;
  if (initial->op == NONE || graph->op[initial->op].kind != OP_full || !in_arena(loop->initial))
    return false;
  return in_loop(loop->initial)->stack == NONE && !l->note[loop->initial].reads &&
         may_overwrite(NULL, adds, value, loop->stack);
}

void find_lifetimes(struct lifetimes *l)
{
  visit_access *visit = make_at;
  for (int at = 0; at < l->op.n; at++)
    for (int n = op_writes(op_at(l, at), l->accessed); n--;) visit(l, l->accessed[n], at);
  each_read(l, note_reader);
  for (int k = 0; k < l->value.n; k++) l->note[l->value.at[k]].sums_up = sums_up(l, l->value.at[k]);
  each_read(l, widen_at);
  each_read(l, read_at);
  for (int at = 0; at < l->op.n; at++)
    if (op_at(l, at)->kind == OP_iteration) {
      /* each_op meets a part of a loop's body once, but each call of it runs the part for another
         iteration. Values that the part itself makes and reads live as long as it runs. */
      int part = op_at(l, at)->function;
      const struct function *f = &graph->function[part];
      for (int k = 0; k < f->nop; k++) {
        const struct op *op = &graph->op[f->op[k]];
        for (int n = op_writes(op, l->accessed); n--;) {
          struct allocation *a = &l->plan->of[l->accessed[n]];
          if (a->first > at) a->first = at;
          if (a->last < at) a->last = at;
        }
        for (int n = op_reads(op, l->accessed); n--;) {
          int value = l->accessed[n];
          struct allocation *a = &l->plan->of[value];
          if (graph->value[value].op == NONE || a->made_by != part) read_at(l, value, at);
          if (a->last < at) a->last = at;
        }
      }
    }
}

/* ------------------------------------------------------------------------- across a loop's
 * iterations
 */

static void hold_from_loop(struct lifetimes *l, int value, int body)
{
  int storage = representative(l->plan, value);
  struct allocation *a = &l->plan->of[storage];
  l->note[storage].loop_carried = true;
  if (a->first != NONE && a->first > l->loop_first[body]) a->first = l->loop_first[body];
}

void hold_loop_carried(struct lifetimes *l)
{
  for (int at = 0; at < l->op.n; at++) {
    const struct op *op = op_at(l, at);
    if (!is_collective(op->kind) || !scheduled(op)->awaited_next_iteration) continue;
    int body = function_running_at(l, at);
    for (int n = pending_reads(op, l->accessed); n--;) hold_from_loop(l, l->accessed[n], body);
    for (int n = pending_writes(op, l->accessed); n--;) hold_from_loop(l, l->accessed[n], body);
  }
}

void widen_lifetimes(struct lifetimes *l)
{
  for (int k = 0; k < l->value.n; k++) {
    struct allocation *a = &l->plan->of[l->value.at[k]];
    if (a->depth == 1) continue;
    if (a->first > l->loop_first[a->made_by]) a->first = l->loop_first[a->made_by];
    if (a->last < l->loop_last[a->made_by]) a->last = l->loop_last[a->made_by];
  }
}

/* An asynchronous operation at `at` ends at its await. */
bool ends_at(const struct lifetimes *l, int value, int at)
{
  int last = l->plan->of[value].last, await = l->await_at[l->op.at[at]];
  if (last == at) return true;
  if (await == NONE || last != await) return false;
  int predecessor = scheduled(op_at(l, at))->chained_to; /* it ends before this one starts */
  int storage = representative(l->plan, value);
  for (int k = at + 1; k < await; k++) {
    if (op_at(l, k)->kind == OP_await && op_at(l, k)->awaits == predecessor) continue;
    for (int n = reads_at(l, k, l->accessed); n--;)
      if (representative(l->plan, l->accessed[n]) == storage) return false;
  }
  return true;
}
