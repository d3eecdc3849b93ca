/* communication.c: plan.txt's totals of the collectives' traffic: by kind and group, and by
   function of the program, where a function of layers counts once for each call. */
#include "report/report.h"

#include <string.h>

struct sum {
  const char *name; /* "all_gather dp", "layers_forward" */
  int layers;       /* for which a function is called; 1: no loop */
  int count;
  int64_t bytes, picoseconds;
};

struct sums {
  int n, room;
  struct sum *at;
};

static struct sum *sum_called(struct sums *s, const char *name, int layers)
{
  for (int i = 0; i < s->n; i++)
    if (!strcmp(s->at[i].name, name)) return &s->at[i];
  GROW(s->at, s->n, s->room);
  s->at[s->n] = (struct sum){.name = name, .layers = layers};
  return &s->at[s->n++];
}

static void add_to(struct sum *sum, int op, int times)
{
  int64_t takes = 0, waited;
  if (device()) simulated_mean(op, &takes, &waited);
  sum->count += times;
  sum->bytes = plus_times(sum->bytes, times, bytes_brought(&graph->op[op]));
  sum->picoseconds = plus_times(sum->picoseconds, times, takes);
}

struct both {
  int *of; /* by operation: the function that runs it */
  struct sums kinds, functions;
};

static void communication_add_collective(void *to, int id, int times)
{
  struct both *both = to;
  const struct op *op = &graph->op[id];
  if (!is_collective(op->kind)) return;
  const char *kind = text("%s %s", kind_of(op), printable(graph->group[op->group].name));
  const struct function *f = &graph->function[both->of[id]];
  if (f->is_part) f = &graph->function[f->body];
  add_to(sum_called(&both->kinds, kind, 1), id, times);
  add_to(sum_called(&both->functions, f->name, f->count), id, times);
}

static void put_sums(struct buffer *b, const char *title, const struct sums *s)
{
  put(b, "\n%-32s %11s %17s%s\n", title, "collectives", "bytes", device() ? "          time" : "");
  for (int i = 0; i < s->n; i++) {
    const struct sum *sum = &s->at[i];
    const char *name = sum->layers > 1 ? text("%s, %d layers", sum->name, sum->layers) : sum->name;
    put(b, "  %-30s %11d %17s", name, sum->count, grouped(sum->bytes));
    if (device()) put(b, " %13s", seconds_text((double)sum->picoseconds * 1e-12));
    put(b, "\n");
  }
}

void put_communication(struct buffer *b)
{
  struct both both = {.of = alloc((size_t)(graph->nop + 1) * sizeof *both.of)};
  functions_of_ops(both.of);
  each_op(communication_add_collective, &both);
  if (!both.kinds.n) return;
  put_sums(b, "communication by kind", &both.kinds);
  put_sums(b, "communication by function", &both.functions);
}
