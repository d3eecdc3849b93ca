// SPDX-License-Identifier: MIT
#include "metrics/own_metrics.h"

#include <stdlib.h>
#include <string.h>
#include "base/target.h"

static struct own_metric *list;
static int count;

static const struct validated *row_of(const char *name)
{
  const struct validated *v = program->validated;
  while (v && v->metric && strcmp(v->metric, name) != 0) v++;
  return v && v->metric ? v : NULL;
}

static bool make(struct own_metric *m, const struct tensor *t)
{
  *m = (struct own_metric){.name = t->name.name, .tensor = t, .count = 1};
  for (int d = 0; d < t->ndim; d++) m->count *= t->of[d];
  const size_t n = (size_t)(m->count > 0 ? m->count : 1);
  m->row = row_of(m->name);
  m->of_step = calloc(n, sizeof *m->of_step);
  m->sums = calloc(n, sizeof *m->sums);
  m->validated = calloc(n, sizeof *m->validated);
  return m->of_step && m->sums && m->validated;
}

static bool make_all(void)
{
  list = calloc((size_t)program->ntensors + 1, sizeof *list);
  bool ok = list != NULL;
  for (int i = 0; ok && program->loss >= 0 && i < program->ntensors; i++)
    if (program->tensors[i].role == OUTPUT) ok = make(&list[count++], &program->tensors[i]);
  return ok;
}

const struct own_metric *own_metrics(int *n)
{
  if (!list && !make_all()) return NULL;
  *n = count;
  return list;
}

void own_metrics_read(void)
{
  for (int i = 0; i < count; i++)
    target_get(list[i].of_step, (const char *)rank_memory + list[i].tensor->offset,
               (size_t)list[i].count * sizeof *list[i].of_step);
}
