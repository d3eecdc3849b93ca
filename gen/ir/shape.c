/* shape.c: infers shapes and types as operations are added.

   Takes   an operation and its inputs.
   Leaves  the shapes and types of the values that it makes, by the operation's rule. A misfit is
           the plan's error, which shows both sides (rule.c). */
#include "ir/ir.h"

#include <string.h>

const char *value_name(int value)
{
  const struct value *v = &graph->value[value];
  if (*v->name || v->op == NONE) return v->name;
  return op_name(&graph->op[v->op]);
}

int shapes(const struct op *op, struct shape shape[MAX_OUTPUTS])
{
  if (op->nin == 0) bug("shape", "%s has no input and no shape", op_row[op->kind].name);
  if (!*rule_of(op)) {
    shape[0] = graph->value[op->in[0]].shape;
    return 1;
  }
  struct letters l;
  op_letters(op, &l);
  for (int k = 0; k < l.nout; k++) {
    shape[k] = (struct shape){.ndim = l.ndim_out[k]};
    for (int d = 0; d < l.ndim_out[k]; d++) {
      const struct axis *axis = &l.out[k][d];
      shape[k].size[d] = 1;
      for (int i = 0; i < axis->n; i++) {
        int64_t size = l.size[axis->letter[i]];
        if (size == 0)
          plan_error(op->line,
                     "%s: the rule %s says no size for the output's dimension %c: write it after "
                     "the letter, as in %c16",
                     op_name(op), printable(rule_of(op)), l.name[axis->letter[i]],
                     l.name[axis->letter[i]]);
        shape[k].size[d] *= size;
      }
    }
  }
  return l.nout;
}

bool is_floating(enum type t)
{
  return t == F32 || t == BF16 || t == E4M3 || t == E5M2;
}

/* The type by the row, where the rule gives none; NONE: the row gives none either. */
static int row_type(const struct op *op)
{
  const char *how = op_row[op->kind].type;
  if (!how) return NONE;
  if (!strcmp(how, "given")) return (int)op->type;
  bool floating = is_floating(graph->value[op->in[0]].type);
  if (!strcmp(how, "counts")) return graph->value[op->in[0]].type == BOOL ? (int)I32 : NONE;
  if (!strcmp(how, "given f32")) return floating ? (int)op->type : NONE;
  if (!strncmp(how, "f32", 3)) {
    if (floating) return F32;
    how += strlen("f32") + (how[3] == ' ');
  }
  return *how ? (int)graph->value[op->in[*how - 'a']].type : NONE;
}

enum type type_of(const struct op *op, int k)
{
  if (*rule_of(op)) {
    int named = rule_type(op, k);
    if (named != NONE) return (enum type)named;
  }
  if (op->typed || op->nin == 0) return op->type;
  int of_row = row_type(op);
  if (of_row != NONE) return (enum type)of_row;
  for (int i = 0; i < op->nin; i++)
    if (is_floating(graph->value[op->in[i]].type)) return graph->value[op->in[i]].type;
  return graph->value[op->in[0]].type;
}
