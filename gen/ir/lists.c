/* lists.c: questions about lists of modules: layers.0, layers.1, ... */
#include "ir/ir.h"

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

int first_of_loop(int stack)
{
  const struct in_loop *loop = in_loop(stack);
  int next = loop->sibling == NONE ? NONE : graph->value[loop->sibling].module;
  int element = next == NONE ? NONE : element_within(next, loop->list);
  return element == NONE ? 0 : place_in_list(element) - 1;
}

/* A module comes after the one that contains it. */
const int *list_elements(void)
{
  int *of = alloc((size_t)(graph->nmodule + 1) * sizeof *of);
  for (int m = 0; m < graph->nmodule; m++) {
    int parent = graph->module[m].parent;
    of[m] = parent == NONE ? NONE
            : (*graph->module[m].name &&
               graph->module[m].name[strspn(graph->module[m].name, "0123456789")] == 0)
                ? m
                : of[parent];
  }
  return of;
}

const int *outermost_elements(void)
{
  int *of = alloc((size_t)(graph->nmodule + 1) * sizeof *of);
  for (int m = 0; m < graph->nmodule; m++) {
    int parent = graph->module[m].parent;
    of[m] = parent == NONE ? NONE : of[parent];
    if (parent == NONE || of[m] != NONE) continue;
    if (!strcmp(graph->module[parent].class_name, "ModuleList")) of[m] = m;
  }
  return of;
}
