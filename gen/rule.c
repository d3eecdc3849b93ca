/* rule.c: the rule engine. Reads an operation's row as letters, one for each dimension of each
   operand, and derives from them every way in which the operation may run on sharded inputs.

   The reasoning for one dimension of the mesh, following DTensor's einop_rule: an operation whose
   operands are all replicated runs as it is. Cut along one letter, every operand that has the
   letter is sharded there and the others are whole, and each rank makes its part of the output,
   or, where the output lacks the letter, one summand of it. Where the operation is linear, summands
   go in and a summand comes out. The dimensions of a mesh are independent of each other. */
#include "tpgen.h"

#include <string.h>

static void letters_of_equation(const struct op *op, struct letters *l)
{
  char seen[128];
  memset(seen, NONE, sizeof seen);
  const char *c = op->equation;
  signed char *to = l->in[0];
  int input = 0;
  for (; *c; c++) {
    if (*c == ',')
      to = l->in[++input];
    else if (*c == '-') {
      to = l->out;
      c++;
    } else {
      char *letter = &seen[*c & 127];
      if (*letter == NONE) *letter = (char)l->n++;
      *to++ = (signed char)*letter;
    }
  }
}

/* Aligned at the last dimension; a dimension of size 1 is stretched and has no letter. */
static void align(const struct shape whole, struct shape part, signed char *letter)
{
  for (int d = 0; d < part.ndim; d++) {
    int at = whole.ndim - part.ndim + d;
    letter[d] = (signed char)(part.size[d] == 1 ? NONE : at);
  }
}

/* The dimensions of `whole` but those in `dims`, which have vanished or keep a size of 1. */
static void without(struct shape whole, unsigned dims, bool keep, signed char *letter)
{
  int n = 0;
  for (int d = 0; d < whole.ndim; d++) {
    bool gone = dims >> d & 1;
    if (gone && !keep) continue;
    letter[n++] = (signed char)(gone || whole.size[d] == 1 ? NONE : d);
  }
}

void op_letters(const struct op *op, struct letters *l)
{
  memset(l, 0, sizeof *l);
  memset(l->in, NONE, sizeof l->in);
  memset(l->out, NONE, sizeof l->out);
  if (!strcmp(op_row[op->kind].dimensions, "equation")) {
    letters_of_equation(op, l);
    return;
  }
  bool reduce = is_reduce(op->kind);
  l->space = graph->value[reduce ? op->in[0] : op->out].shape;
  l->n = l->space.ndim;
  align(l->space, l->space, reduce ? l->in[0] : l->out);
  if (reduce) without(l->space, op->dims, op->keep, l->out);
  for (int i = reduce; i < op->nin; i++) {
    if (op->kind == OP_expand)
      without(l->space, op->dims, op->keep, l->in[i]);
    else
      align(l->space, graph->value[op->in[i]].shape, l->in[i]);
  }
}

static struct placement shard_of(const signed char *letter, int ndim, int wanted)
{
  for (int d = 0; d < ndim; d++)
    if (letter[d] == wanted) return (struct placement){.kind = SHARD, .dim = d};
  return (struct placement){.kind = REPLICATE};
}

static bool has_letter(const struct op *op, const struct letters *l, int letter)
{
  if (op->nin == 0) return letter < l->space.ndim && l->space.size[letter] > 1;
  for (int i = 0; i < op->nin; i++)
    for (int d = 0; d < MAX_DIMS; d++)
      if (l->in[i][d] == letter) return true;
  return false;
}

static struct choice cut_along(const struct op *op, const struct letters *l, int letter)
{
  struct choice c = {0};
  for (int i = 0; i < op->nin; i++)
    c.in[i] = shard_of(l->in[i], graph->value[op->in[i]].shape.ndim, letter);
  c.out = shard_of(l->out, graph->value[op->out].shape.ndim, letter);
  if (c.out.kind == REPLICATE) c.out = (struct placement){.kind = PARTIAL, .reduction = SUM};
  return c;
}

static struct choice sum_through(unsigned inputs, int nin)
{
  struct choice c = {.out = {.kind = PARTIAL, .reduction = SUM}};
  for (int i = 0; i < nin; i++)
    if (inputs >> i & 1) c.in[i] = c.out;
  return c;
}

int choices(const struct op *op, struct choice *list)
{
  int n = 0;
  list[n++] = (struct choice){0};
  struct letters l;
  op_letters(op, &l);
  for (int letter = 0; letter < l.n; letter++)
    if (has_letter(op, &l, letter)) list[n++] = cut_along(op, &l, letter);
  switch (op_row[op->kind].linear) {
  case NEVER:
    break;
  case EACH:
    for (int i = 0; i < op->nin; i++) list[n++] = sum_through(1u << i, op->nin);
    break;
  case TOGETHER:
    list[n++] = sum_through((1u << op->nin) - 1, op->nin);
    break;
  case FIRST:
    list[n++] = sum_through(1, op->nin);
    break;
  }
  return n;
}
