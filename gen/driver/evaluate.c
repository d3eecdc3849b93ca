/* evaluate.c: the figures of a program for which no files are written: a candidate of --search. */
#include "driver/driver.h"

#include <string.h>

static void note_figures(void)
{
  check_expectations();
  if (!options.estimates) prove();
  if (graph->stages) note_stage();
}

void evaluate_program(struct evaluated *to)
{
  run_all(note_figures);
  const struct mesh *m = &graph->mesh;
  to->step = step_figures();
  to->model = model_figures();
  to->ranks = world_size();
  to->has_stages = graph->stages != NULL;
  to->has_cluster = has_cluster();
  to->is_usual = m->device.name && m->cluster.name && !strcmp(m->device.name, m->cluster.name);
  to->node = m->cluster.devices;
  to->devices = m->cluster.nodes * m->cluster.devices;
  to->cards = m->cluster.cards;
  to->intra = m->cluster.intra;
  to->inter = m->cluster.inter;
  to->memory = memory_limit();
  to->reserve = library_reserve();
  if (m->device.name) strncpy(to->device, m->device.name, sizeof to->device - 1);
}
