/* functions.h: programs made by hand as the passes after outline find them: functions of
 * operations. */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include "unit.h"

/* The function of a phase, made when it is first asked for. */
__attribute__((unused)) static struct function *function_of_phase(enum phase phase)
{
  static const char *const name[PHASES] = {"forward", "backward", "update"};
  for (int i = 0; i < graph->nfunction; i++)
    if (graph->function[i].phase == phase) return &graph->function[i];
  if (!graph->function) graph->function = alloc(PHASES * sizeof *graph->function);
  struct function *f = &graph->function[graph->nfunction++];
  *f = (struct function){.name = name[phase], .phase = phase, .count = 1, .upward = true};
  f->op = alloc(1024 * sizeof *f->op);
  return f;
}

/* Adds an operation to the function of its phase; gives the value it makes, laid out as its first
   input. */
__attribute__((unused)) static int run_in_phase(struct op op)
{
  op.module = NONE;
  int i = make_op(op);
  struct value *out = &graph->value[graph->op[i].out];
  if (op.nin) out->layout = graph->value[op.in[0]].layout;
  out->placed = true;
  struct function *f = function_of_phase(op.phase);
  f->op[f->nop++] = i;
  return graph->op[i].out;
}

/* The i-th operation of a phase's function. */
__attribute__((unused)) static const struct op *nth_op(enum phase phase, int i)
{
  const struct function *f = function_of_phase(phase);
  must(i < f->nop, "%s has %d operations", f->name, f->nop);
  return &graph->op[f->op[i]];
}

#endif
