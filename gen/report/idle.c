/* idle.c: dimensions of the mesh along which nothing is cut: all ranks along one do the same work.
   That is correct but useless, and seldom intended. plan.txt says so, and so does tpgen at its end,
   after the notes of the front end.
 */
#include "report/report.h"

char *idle_text(int dim)
{
  if (graph->mesh.size[dim] == 1 || is_over_stages(dim) || graph->mesh.microbatch_axis[dim])
    return NULL;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->placed && v->layout.on[dim].kind != REPLICATE) return NULL;
  }
  return text("nothing is sharded along %s: its %d ranks all do the same work",
              printable(graph->mesh.name[dim]), graph->mesh.size[dim]);
}

void print_notes(void)
{
  if (plan_options->notes) fputs(plan_options->notes, stderr);
  for (int d = 0; d < graph->mesh.ndim; d++) {
    const char *idle = idle_text(d);
    if (idle)
      fprintf(stderr, "%s:%d: note: %s; a style, fully_shard or distribute cuts along it\n",
              file_of_line(plan_options->path, graph->mesh.line), graph->mesh.line % LINES_OF_FILE,
              idle);
  }
}
