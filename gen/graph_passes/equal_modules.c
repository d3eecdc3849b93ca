/* equal_modules.c: finds the modules of a list that have the same parameters. */
#include "graph_passes/graph_passes.h"

#include <string.h>

int *count_elements(void)
{
  enum { OTHERS = -1 };
  int *count = alloc((size_t)(graph->nmodule + 1) * sizeof *count);
  for (int m = 0; m < graph->nmodule; m++) {
    int list = graph->module[m].parent;
    if (list == NONE || count[list] == OTHERS) continue;
    count[list] = place_in_list(m) == count[list] ? count[list] + 1 : OTHERS;
  }
  for (int m = 0; m < graph->nmodule; m++)
    if (count[m] == OTHERS) count[m] = 0;
  return count;
}

void add_to_lists(struct list *of, const int *counts, int module, int what)
{
  for (; module != NONE && graph->module[module].parent != NONE;
       module = graph->module[module].parent)
    if (counts[graph->module[module].parent] > 1) add(&of[graph->module[module].parent], what);
}

bool same_value_kind(int a, int b)
{
  const struct value *v = &graph->value[a], *w = &graph->value[b];
  return v->type == w->type && v->role == w->role && same_shape(v->shape, w->shape) &&
         same_layout(v->layout, w->layout) && v->order == w->order && v->frozen == w->frozen &&
         !v->is_output && !w->is_output && v->role != LOSS;
}

struct list *parameters_of_lists(const int *counts)
{
  struct list *inner = alloc((size_t)(graph->nmodule + 1) * sizeof *inner);
  for (int i = 0; i < graph->nvalue; i++)
    if (is_of_module(&graph->value[i])) add_to_lists(inner, counts, graph->value[i].module, i);
  return inner;
}

/* The parameters in or under each of `count` of the list's modules. */
static struct list *by_place(const struct list *inner, int list, int first, int count)
{
  struct list *of = alloc((size_t)count * sizeof *of);
  for (int k = 0; k < inner->n; k++) {
    int value = inner->at[k];
    int place = place_in_list(element_within(graph->value[value].module, list)) - first;
    if (place >= 0 && place < count) add(&of[place], value);
  }
  return of;
}

const char *behind_number(const char *list, const char *name)
{
  size_t before = *list ? strlen(list) + 1 : 0;
  if (strlen(name) < before) return "";
  return name + before + strspn(name + before, "0123456789");
}

static bool are_equal(const char *path, const struct list *a, const struct list *b)
{
  if (a->n != b->n) return false;
  for (int k = 0; k < a->n; k++) {
    const char *x = behind_number(path, graph->value[a->at[k]].name);
    const char *y = behind_number(path, graph->value[b->at[k]].name);
    if (strcmp(x, y) || !same_value_kind(a->at[k], b->at[k])) return false;
  }
  return true;
}

const struct list *equal_parameters(const struct list *inner, int list, int first, int count)
{
  const struct list *of = by_place(inner, list, first, count);
  const char *path = graph->module[list].path;
  for (int m = 1; m < count; m++)
    if (!are_equal(path, &of[0], &of[m])) return NULL;
  return of;
}

bool have_equal_states(int state, int list, int first, int count)
{
  if (!is_apart(state)) return true;
  struct list like = states_like(state), inner = {0};
  for (int k = 0; k < like.n; k++)
    if (element_within(graph->value[like.at[k]].module, list) != NONE) add(&inner, like.at[k]);
  const struct list *of = by_place(&inner, list, first, count);
  const char *path = graph->module[list].path;
  for (int m = 1; m < count; m++) {
    if (of[m].n != of[0].n) return false;
    for (int k = 0; k < of[0].n; k++) {
      int a = of[0].at[k], b = of[m].at[k];
      const char *x = behind_number(path, graph->value[graph->value[a].of].name);
      const char *y = behind_number(path, graph->value[graph->value[b].of].name);
      if (strcmp(x, y) || !same_value_kind(a, b)) return false;
    }
  }
  return true;
}

int count_equal(const struct list *inner, int list, int first, int count)
{
  const struct list *of = by_place(inner, list, first, count);
  const char *path = graph->module[list].path;
  int n = 1;
  while (n < count && are_equal(path, &of[0], &of[n])) n++;
  return n;
}
