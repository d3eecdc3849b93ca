/* optimizers_text.c: the groups of parameters in plan.txt: their optimizer's settings, its
   schedule, their number, and the bytes of its state. */
#include "report/report.h"

#include <string.h>

struct trained_group {
  const struct optimizer *o; /* the first, where several shapes have one each */
  int parameters;
  int64_t here, of, bytes;
};

static bool same_text(const char *a, const char *b)
{
  return a == b || (a && b && !strcmp(a, b));
}

/* The place in the groups of the parameter's optimizer. */
static int group_of(int parameter, const struct trained_group *group, int n)
{
  const struct optimizer *o = &plan_options->optimizer[graph->value[parameter].optimizer];
  for (int i = 0; i < n; i++) {
    /* A group is of one optimizer, traced for several shapes. */
    const struct optimizer *of = group[i].o;
    if (same_text(of->match, o->match) && same_text(of->name, o->name) &&
        same_text(of->settings, o->settings) && same_text(of->rate, o->rate))
      return i;
  }
  return n;
}

/* By value: whether an update of the step writes the parameter. In a loop the one of module 0
   represents all. */
static bool *find_updated(void)
{
  bool *updated = alloc((size_t)graph->nvalue + 1);
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_update && !graph->op[i].nbody) updated[graph->op[i].in[0]] = true;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    const struct in_loop *loop = in_loop(i);
    if (v->role == PARAMETER && loop->stack != NONE) updated[i] |= updated[loop->stack];
  }
  return updated;
}

/* The groups in the order of their first parameters; returns their number. */
static int find_groups(struct trained_group *group)
{
  const bool *updated = find_updated();
  int n = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    int parameter = v->role == PARAMETER ? i : v->role == STATE ? v->of : NONE;
    if (parameter == NONE || !updated[parameter]) continue;
    int at = group_of(parameter, group, n);
    if (at == n) group[n++].o = &plan_options->optimizer[graph->value[parameter].optimizer];
    int64_t here = elements(local_shape(i, 0));
    if (v->role == STATE) {
      group[at].bytes += here * type_bytes(v->type);
      continue;
    }
    group[at].parameters++;
    group[at].here += here;
    group[at].of += elements(v->shape);
  }
  return n;
}

void put_optimizers_of_plan(struct buffer *b)
{
  struct trained_group *group = alloc((size_t)(plan_options->noptimizer + 1) * sizeof *group);
  int n = find_groups(group);
  if (n)
    put(b, "\n%-28s %-14s %-14s %-14s %s\n", "optimizers", "parameters", "elements here", "of",
        "state here");
  for (int i = 0; i < n; i++) {
    const struct trained_group *g = &group[i];
    put(b, "  %-26s %-14d %-14s %-14s %s B\n", g->o->name, g->parameters, grouped(g->here),
        grouped(g->of), grouped(g->bytes));
    if (g->o->match) put(b, "      %s\n", printable(g->o->match));
    put(b, "      %s\n", wrapped(optimizer_text(g->o), " ", "      "));
    put(b, "      %s\n", wrapped(text("the learning rate%s", g->o->schedule), " ", "      "));
  }
}
