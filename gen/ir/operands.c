/* operands.c: how an operation reads its operands: element by element, at other places, or by an
   index. */
#include "ir/ir.h"

#include <ctype.h>
#include <string.h>

int space_of(const struct op *op)
{
  return is_reduce(op->kind) ? op->in[0] : op->out;
}

const struct axis *space_axes(const struct op *op, const struct letters *l)
{
  return is_reduce(op->kind) ? l->in[0] : l->out[0];
}

int indexed_dimension(const struct op *op, int i)
{
  const char *c = rule_of(op);
  for (int k = 0; k < i; k++) c += strcspn(c, ",") + 1; /* "...D@" of "...D@,...I->...I" */
  bool behind_rest = !strncmp(c, "...", 3);
  c += strspn(c, ".");
  if (isupper((unsigned char)*c)) return __builtin_ctz(op->dims);
  int behind = 0; /* letters from this one on */
  for (; *c && *c != ',' && *c != '-'; c++) behind += isalpha((unsigned char)*c) != 0;
  return behind_rest ? graph->value[op->in[i]].shape.ndim - behind : 0;
}

bool reads_by_index(const struct op *op, int i)
{
  const char asks[] = {'$', (char)('a' + i), '(', 0};
  return strstr(op_row[op->kind].element, asks) != NULL;
}

bool reads_elsewhere(const struct op *op, int i)
{
  struct letters l;
  op_letters(op, &l);
  const struct axis *space = space_axes(op, &l);
  int ndim = graph->value[space_of(op)].shape.ndim;
  if (reads_by_index(op, i) || l.ndim_in[i] != ndim) return true;
  for (int d = 0; d < ndim; d++) {
    const struct axis *axis = &l.in[i][d];
    if (axis->n != space[d].n || (axis->n && axis->letter[0] != space[d].letter[0])) return true;
  }
  return false;
}
