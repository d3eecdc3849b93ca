/* walk.c: walks the program in the order in which it runs: phases, loops, parts of loop bodies; and
   questions about all operations. */
#include "ir/ir.h"

#include <math.h>
#include <string.h>

int runs_in_step(void)
{
  return plan_options->accumulate * microbatches();
}

bool adds_up_loss(void)
{
  return runs_in_step() > 1 || graph->stages;
}

static bool gathers_inputs(const int *ops, int n)
{
  for (int k = 0; k < n; k++) {
    const struct op *op = &graph->op[ops[k]];
    for (int i = 0; i < op->nin && op->phase == GATHER; i++)
      if (graph->value[op->in[i]].role == BATCH) return true;
    if (op->phase == GATHER && gathers_inputs(op->body, op->nbody)) return true;
  }
  return false;
}

/* The answer is the same for all stages: one of them gathers the values that another one sends. */
bool gathers_each_batch(void)
{
  if (all_stages()) return all_stages()->gathers_each_batch;
  if (plan_options->accumulate == 1) return false;
  if (gathers_inputs(graph->order, graph->norder)) return true;
  for (int i = 0; i < graph->nfunction; i++)
    if (gathers_inputs(graph->function[i].op, graph->function[i].nop)) return true;
  return false;
}

bool is_of_batch(enum phase phase)
{
  return phase == FORWARD || phase == BACKWARD || phase == DECODE;
}

static void count_reads(const struct op *op, int *readers)
{
  for (int i = 0; i < op->nin && !op->nbody; i++) {
    readers[op->in[i]]++;
    if (!graph->nfunction) continue; /* there are no stacks yet */
    int stack = in_loop(op->in[i])->stack;
    if (stack != NONE && stack != op->in[i]) readers[stack]++;
  }
  for (int k = 0; k < op->nbody; k++) count_reads(&graph->op[op->body[k]], readers);
}

int *count_readers(void)
{
  int *readers = alloc((size_t)(graph->nvalue + 1) * sizeof *readers);
  for (int i = 0; i < graph->norder; i++) count_reads(&graph->op[graph->order[i]], readers);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      count_reads(&graph->op[graph->function[i].op[k]], readers);
  return readers;
}

void functions_of_ops(int *function_of)
{
  for (int i = 0; i < graph->nop; i++) function_of[i] = NONE;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) function_of[graph->function[i].op[k]] = i;
}

int loop_of(int function)
{
  const struct function *f = function == NONE ? NULL : &graph->function[function];
  return !f || f->count == 1 ? NONE : f->is_part ? f->body : function;
}

int runs_at(const struct function *f, int op)
{
  for (int k = 0; k < f->nop; k++)
    if (f->op[k] == op) return k;
  return NONE;
}

bool is_phase(const struct function *f)
{
  return f->count == 1 && !f->is_part;
}

int module_of_iteration(const struct function *f, int iteration)
{
  return f->upward ? iteration : f->count - 1 - iteration;
}

int iteration_called(const struct op *op, int from)
{
  int count = graph->function[op->function].count;
  switch (op->iteration) {
  case FIRST_ITERATION:
    return op->first;
  case LAST_ITERATION:
    return count - 1;
  case IN_LAST_ITERATION:
    return from + 1 < graph->function[graph->function[op->function].body].count ? NONE : 0;
  case NEXT_ITERATION:
    return from + op->ahead < count ? from + op->ahead : NONE;
  default:
    return from - 1;
  }
}

static void run_function(const struct function *f, int iteration,
                         void (*visit)(void *to, int op, int module), void *to)
{
  int module = f->count > 1 ? module_of_iteration(f, iteration) : NONE;
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    visit(to, f->op[k], module);
    int first = op->kind == OP_loop        ? 0
                : op->kind == OP_iteration ? iteration_called(op, iteration)
                                           : NONE;
    int last = op->kind == OP_loop ? graph->function[op->function].count - 1 : first;
    for (int r = first; first != NONE && r <= last; r++)
      run_function(&graph->function[op->function], r, visit, to);
  }
}

void each_run_of(const struct function *f, void (*visit)(void *to, int op, int module), void *to)
{
  run_function(f, 0, visit, to);
}

static void visit_function(const struct function *f, int runs,
                           void (*visit)(void *to, int op, int times), void *to)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    visit(to, f->op[k], (op->last_batch ? 1 : runs) * f->count);
    /* Whether the callee is visited here. A part that iterations run for each other is visited
       where it runs outside the loop. */
    bool is_visited = true;
    if (op->kind != OP_loop) {
      is_visited = false;
      if (op->kind == OP_iteration) {
        bool first = op->iteration == FIRST_ITERATION && !op->first;
        is_visited = first || op->iteration == LAST_ITERATION || op->iteration == IN_LAST_ITERATION;
      }
    }
    if (is_visited) visit_function(&graph->function[op->function], runs, visit, to);
  }
}

int runs_of_phase(enum phase phase)
{
  if (is_of_batch(phase)) return runs_in_step();
  const bool is_each_batch = phase == COUNT || (phase == GATHER && gathers_each_batch());
  return is_each_batch ? plan_options->accumulate : 1;
}

void each_op_of(const struct function *f, void (*visit)(void *to, int op, int times), void *to)
{
  if (is_phase(f)) visit_function(f, runs_of_phase(f->phase), visit, to);
}

void each_op(void (*visit)(void *to, int op, int times), void *to)
{
  for (int i = 0; i < graph->nfunction; i++) each_op_of(&graph->function[i], visit, to);
}

struct list kept_constants(void)
{
  struct list kept = {0};
  bool *met = alloc((size_t)graph->nvalue + 1);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop && graph->function[i].phase != CONSTANTS; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      int *read = alloc((size_t)op_width(op) * sizeof *read);
      for (int n = op_reads(op, read); n--;) {
        int maker = graph->value[read[n]].op;
        if (maker == NONE || graph->op[maker].phase != CONSTANTS || met[read[n]]) continue;
        met[read[n]] = true;
        add(&kept, read[n]);
      }
    }
  return kept;
}

bool notes_indices(void)
{
  for (int i = 0; i < graph->nindex_use; i++)
    if (graph->index_use[i].input == NONE) return true;
  return false;
}

int labels_output(void)
{
  for (int i = 0; i < graph->nvalue && graph->loss != NONE; i++)
    if (graph->value[i].is_output && !strcmp(graph->value[i].name, LABELS_OUTPUT)) return i;
  return NONE;
}

bool reads_tokens(void)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == BATCH && graph->value[i].init.kind == INIT_TOKENS) return true;
  return false;
}

bool takes_batches(void)
{
  bool has_inputs = false;
  for (int i = 0; i < graph->nvalue; i++) has_inputs |= graph->value[i].role == BATCH;
  return reads_tokens() || (has_inputs && graph->loss != NONE);
}

bool keeps_batches(void)
{
  return target->steps_in_memory && plan_options->accumulate > 1 && takes_batches();
}

const char *const phase_name[] = {"forward", "backward",          "update", "gather",
                                  "decode",  "prepare_constants", "count"};
