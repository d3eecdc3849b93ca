/* optimize.c: the pass `optimize`: the update of every parameter.

   Takes   the graph with its gradients.
   Leaves  for each parameter that has one, the optimizer's state, laid out as the parameter is, and
           an operation that writes parameter and state in place. */
#include "tpgen.h"

#include <string.h>

static int state_of(int parameter, const char *what)
{
  struct value p = graph->value[parameter];
  int s = add_value(STATE, text("optim.%s.%s", what, p.name), p.type, p.shape, p.module, p.line);
  graph->value[s].of = parameter;
  graph->value[s].layout = p.layout;
  graph->value[s].placed = true;
  return s;
}

static void update(int parameter, int gradient)
{
  struct op op = {
      .phase = UPDATE, .module = graph->value[parameter].module, .line = graph->optimizer.line};
  op.in[op.nin++] = parameter;
  op.in[op.nin++] = gradient;
  if (!strcmp(graph->optimizer.name, "AdamW")) {
    op.kind = OP_adamw;
    op.in[op.nin++] = state_of(parameter, "exp_avg");
    op.in[op.nin++] = state_of(parameter, "exp_avg_sq");
  } else {
    op.kind = OP_sgd;
  }
  append_update(op);
}

void optimize(void)
{
  if (graph->loss == NONE) return;
  int known = graph->nvalue;
  int *gradient = alloc((size_t)known * sizeof *gradient);
  for (int i = 0; i < known; i++) gradient[i] = NONE;
  for (int i = 0; i < known; i++)
    if (graph->value[i].role == GRADIENT) gradient[graph->value[i].of] = i;
  for (int i = 0; i < known; i++)
    if (gradient[i] != NONE) update(i, gradient[i]);
}
