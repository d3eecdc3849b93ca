/* function_head.c: the name and the parameters of a step's function. */
#include "emit/emit.h"

/* The function's name: where micro-batches have several sizes, each size has a function. */
const char *function_name(const struct function *f)
{
  const int from = graph->mesh.now;
  return from && is_of_batch(f->phase) ? text("%s_from_%d", f->name, from) : f->name;
}

/* The comment above a part of a loop's body that runs for another iteration. */
const char *part_comment(const struct function *f)
{
  if (!f->is_part) return "";
  return graph->op[f->op[0]].kind == OP_await
             ? "// Awaits a collective that another iteration has issued.\n"
             : "// Issues a collective that another iteration, or what follows the loop, awaits.\n";
}

bool takes_numbers(const struct op *op)
{
  return is_update(op) || op->kind == OP_step_number;
}

/* The learning rate depends on the number of the step, and so do random numbers: with several
   batches in a step, on the batch's number. On a GPU both are in memory. */
bool takes_step(const struct function *f)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    bool of_step = knows_step(op) || (takes_numbers(op) && !target->steps_in_memory);
    if (op_row[op->kind].calls ? takes_step(&graph->function[op->function]) : of_step) return true;
  }
  return false;
}
