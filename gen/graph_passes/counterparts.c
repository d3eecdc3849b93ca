/* counterparts.c: finds counterparts, the operations at the same place of a phase in equal modules.
   Passes decide them together, so that outline.c can fold the modules afterwards. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* The place of an operation: in modules of this class of paths, as the place-th of its phase; class
   NONE: in no such module. */
struct spot {
  int class, phase, place;
};

/* By operation; returns the number of classes. */
static int find_spots(struct spot *spot)
{
  struct memo classes = {0};
  int *class = alloc((size_t)(graph->nmodule + 1) * sizeof *class);
  int *count = alloc((size_t)(graph->nmodule + 1) * PHASES * sizeof *count);
  for (int m = 0; m < graph->nmodule; m++) {
    /* The number of the path's class, such as "layers.*.attention". NONE if the path has no number.
     */
    const char *path = graph->module[m].path;
    static struct query q;
    bool numbered = false;
    begin_query(&q);
    for (const char *c = path; *c;) {
      size_t n = strcspn(c, ".");
      bool number = n && strspn(c, "0123456789") == n;
      ask_piece(&q, number ? "*" : c, number ? 1 : n);
      numbered |= number;
      c += n + (c[n] == '.');
    }
    class[m] = numbered ? number_of_query(&classes, &q) : NONE;
  }
  for (int i = 0; i < graph->nop; i++) spot[i].class = NONE;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->module == NONE || class[op->module] == NONE) continue;
    int *place = &count[op->module * PHASES + (int)op->phase];
    spot[graph->order[i]] = (struct spot){class[op->module], (int)op -> phase, (*place)++};
  }
  return classes.n;
}

int *find_counterparts(void)
{
  int *next_counterpart = alloc((size_t)(graph->nop + 1) * sizeof *next_counterpart);
  struct spot *spot = alloc((size_t)(graph->nop + 1) * sizeof *spot);
  for (int i = 0; i < graph->nop; i++) next_counterpart[i] = i;
  int classes = find_spots(spot);
  struct list *places = alloc((size_t)(classes + 1) * PHASES * sizeof *places);
  for (int i = 0; i < graph->nop; i++) {
    if (spot[i].class == NONE) continue;
    /* The last operation met in this spot: the counterpart of the next one, if they are equal. */
    const struct spot *s = &spot[i];
    struct list *list = &places[s->class * PHASES + s->phase];
    while (list->n <= s->place) add(list, NONE);
    int *last = &list->at[s->place];
    if (*last != NONE) {
      const struct op *a = &graph->op[*last];
      const struct op *b = &graph->op[i];
      bool are_counterparts = a->kind == b->kind && a->nin == b->nin && a->nout == b->nout &&
                              a->dim == b->dim && !a->equation == !b->equation &&
                              (!a->equation || !strcmp(a->equation, b->equation));
      for (int k = 0; k < operand_count(a) && are_counterparts; k++)
        are_counterparts = same_shape(graph->value[nth_operand(a, k)].shape,
                                      graph->value[nth_operand(b, k)].shape);
      if (are_counterparts) {
        next_counterpart[i] = next_counterpart[*last];
        next_counterpart[*last] = i;
      }
    }
    *last = i;
  }
  return next_counterpart;
}
