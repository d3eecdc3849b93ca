/* streams.c: what runs on which stream of the CUDA target, for those that write it.

   Takes   functions with collectives that run beside others, and their awaits. */
#include "tpgen.h"

static const struct function *function_with(const struct op *op)
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      if (&graph->op[graph->function[i].op[k]] == op) return &graph->function[i];
  bug("emit", (int)(op - graph->op), "no function runs it");
}

/* What runs between the collective and its await, but what is no work. */
static struct list found_beside(const struct op *op)
{
  struct list found = {0};
  if (!op->beside) return found;
  const struct function *f = function_with(op);
  int k = 0;
  while (&graph->op[f->op[k]] != op) k++;
  for (k++; k < f->nop; k++) {
    const struct op *other = &graph->op[f->op[k]];
    if (other->kind == OP_await && &graph->op[other->begun] == op) break;
    if (other->kind != OP_await && other->kind != OP_view && !is_collective(other->kind))
      add(&found, f->op[k]);
  }
  return found;
}

/* What an operation is called: a loop by its function, all others by what they make. */
static const char *called(const struct op *op, const char *(*name)(int value))
{
  if (op->kind == OP_loop) return graph->function[op->function].name;
  if (op->kind != OP_fused) return name(op->out == NONE ? op->in[0] : op->out);
  const struct op *inner = NULL;
  for (int k = 0; k < op->nbody; k++)
    if (graph->value[graph->op[op->body[k]].out].stored) inner = &graph->op[op->body[k]];
  return name(inner ? inner->out : graph->op[op->body[0]].out);
}

char *beside_text(const struct op *op, const char *(*name)(int value))
{
  enum { TOLD = 4 };
  struct list found = found_beside(op);
  struct buffer b = {0};
  if (!found.n) return copy_text("nothing");
  int told = found.n > TOLD + 1 ? TOLD : found.n;
  for (int i = 0; i < told; i++)
    put(&b, "%s%s", i ? ", " : "", called(&graph->op[found.at[i]], name));
  if (told < found.n) put(&b, " and %d more", found.n - told);
  return b.text;
}

bool has_stream(int group)
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (is_collective(op->kind) && op->beside && op->group == group) return true;
    }
  return false;
}
