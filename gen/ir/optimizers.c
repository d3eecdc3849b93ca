/* optimizers.c: questions about optimizers. The operands of an update are numbered: 0 is the
   parameter, 1 its gradient; then come the states, the numbers, and the results of the steps. */
#include "ir/ir.h"

#include <string.h>

const struct optimizer *optimizer_of(const struct op *op)
{
  return &plan_options->optimizer[op->number[0]];
}

int first_number_operand(const struct optimizer *o)
{
  return 2 + o->nstate;
}

int first_step_operand(const struct optimizer *o)
{
  return first_number_operand(o) + o->nnumber;
}

int inputs_of_row(enum op_kind kind)
{
  static const char *const rules[] = {"...->...", "...,...->...", "...,...,...->..."};
  const struct op_row *row = &op_row[kind];
  if (!*row->element || *row->numbers || strstr(row->element, "$s") || kind == OP_running) return 0;
  if (row->type && !strncmp(row->type, "given", 5)) return 0;
  for (int n = 0; n < 3; n++)
    if (!strncmp(row->rule, rules[n], strlen(rules[n]))) return n + 1;
  return 0;
}
