/* lists.c: questions about lists of modules (layers.0, layers.1, ...). */
#include "flat/flat.h"

#include <string.h>

int element_within(int module, int list)
{
  while (module != NONE && graph->module[module].parent != list)
    module = graph->module[module].parent;
  return module;
}

int leading_number(char ends, const char *s, const char **rest)
{
  int n = 0;
  if (*s == ends || (s[0] == '0' && s[1] != ends)) return NONE;
  for (; *s != ends; s++) {
    if (*s < '0' || *s > '9' || n > 100000) return NONE;
    n = 10 * n + *s - '0';
  }
  *rest = s + 1;
  return n;
}

int place_in_list(int module)
{
  const char *rest;
  return leading_number(0, graph->module[module].name, &rest);
}

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

/* The parameters in or under each of the list's modules, by the module's index. */
static struct list *by_place(const struct list *inner, int list, int count)
{
  struct list *of = alloc((size_t)count * sizeof *of);
  for (int k = 0; k < inner->n; k++) {
    int value = inner->at[k];
    add(&of[place_in_list(element_within(graph->value[value].module, list))], value);
  }
  return of;
}

const char *behind_number(const char *list, const char *name)
{
  size_t before = *list ? strlen(list) + 1 : 0;
  if (strlen(name) < before) return "";
  return name + before + strspn(name + before, "0123456789");
}

const struct list *equal_parameters(const struct list *inner, int list, int count)
{
  const struct list *of = by_place(inner, list, count);
  const char *path = graph->module[list].path;
  for (int m = 1; m < count; m++) {
    if (of[m].n != of[0].n) return NULL;
    for (int k = 0; k < of[0].n; k++) {
      const char *x = behind_number(path, graph->value[of[0].at[k]].name);
      const char *y = behind_number(path, graph->value[of[m].at[k]].name);
      if (strcmp(x, y) || !same_value_kind(of[0].at[k], of[m].at[k])) return NULL;
    }
  }
  return of;
}
