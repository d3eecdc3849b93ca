/* evaluate.c: the figures of a program for which no files are written: a candidate of --search. */
#include "driver/driver.h"

#include <string.h>

/* The least memory with whole sums: of the ranks of the last program. */
static int64_t least_with_whole_sums(void)
{
  const int64_t *held = memory_by_role();
  int64_t sums = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER || v->on_other_stages || v->unit == NONE) continue;
    const unsigned shards = graph->unit[v->unit].shards;
    struct layout whole = v->layout;
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (shards >> d & 1) whole.on[d] = (struct placement){0};
    int64_t n = elements(v->shape);
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (whole.on[d].kind == SHARD) n /= ranks_along(d);
    if (shards) sums += n * type_bytes(v->reduced_as);
  }
  return held[PARAMETER] + held[STATE] + sums;
}

static void note_figures(void)
{
  check_expectations();
  if (!options.estimates) prove();
  if (graph->stages) note_stage();
}

static int64_t samples(void)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == BATCH && graph->value[i].shape.ndim)
      return graph->value[i].shape.size[0];
  return 0;
}

static struct evaluated evaluated_now(void)
{
  const struct mesh *m = &graph->mesh;
  struct evaluated e = {.is_there = true,
                        .step = step_figures(),
                        .model = model_figures(),
                        .operations = graph->nop,
                        .samples = samples(),
                        .ranks = world_size(),
                        .has_stages = graph->stages != NULL,
                        .pieces = graph->stages ? graph->stages->npiece : 0,
                        .listed = graph->stages ? graph->stages->nmay_begin + 1 : 0,
                        .has_cluster = has_cluster(),
                        .node = m->cluster.devices,
                        .devices = m->cluster.nodes * m->cluster.devices,
                        .cards = m->cluster.cards,
                        .intra = m->cluster.intra,
                        .inter = m->cluster.inter,
                        .memory = memory_limit(),
                        .reserve = library_reserve(),
                        .least_with_whole_sums = least_with_whole_sums()};
  e.is_machine = m->cluster.name && !strcmp(m->cluster.name, THIS_MACHINE);
  e.is_usual = m->device.name && m->cluster.name && !strcmp(m->device.name, m->cluster.name);
  if (m->device.name) strncpy(e.device, m->device.name, sizeof e.device - 1);
  return e;
}

void evaluate_program(struct evaluated *to, void (*passes)(void (*finish)(void)))
{
  begin_ways(to);
  passes(note_figures);
  const struct evaluated e = evaluated_now();
  keep_better_way(&e);
}
