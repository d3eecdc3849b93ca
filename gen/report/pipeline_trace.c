/* pipeline_trace.c: a step of a pipeline as trace.json, for Perfetto: a row for each rank along the
   pipeline, with the actions of its schedule, when they run by the times of plan.txt. */
#include "report/report.h"

void add_pipeline_trace(void)
{
  if (!options.trace || !graph->stages) return;
  const char *why;
  const struct pipeline *p = pipeline_here(&why);
  const struct stage_times *times = times_of_stages(p);
  const struct pipeline_cost cost = pipeline_cost_of(p, times);
  struct buffer b = {0};
  put(&b, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
  for (int r = 0; r < p->ranks; r++)
    put(&b,
        "%s{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"args\": "
        "{\"name\": \"%s %d\"}}",
        r ? ",\n" : "\n", r, printable(graph->mesh.name[graph->stages->mesh_dim]), r);
  for (int r = 0; r < p->ranks; r++) {
    const int64_t *begin = cost.begin[r];
    struct action part[ACTION_PARTS];
    for (int i = 0; i < p->order[r].n; i++) {
      int64_t now = begin[i];
      for (int k = 0, n = action_parts(&p->order[r].at[i], part); k < n; k++) {
        int64_t took = times[part[k].stage].takes[part[k].kind];
        const struct action *a = &part[k];
        put(&b,
            ",\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": 0, \"tid\": %d, "
            "\"ts\": "
            "%.3f, \"dur\": %.3f, \"args\": {\"stage\": %d, \"micro-batch\": %d}}",
            action_text(a), phase_name[a->kind == ACTION_F ? FORWARD : BACKWARD], r,
            (double)now * 1e-6, (double)took * 1e-6, a->stage, a->microbatch);
        now += took;
      }
    }
  }
  put(&b, "\n]}\n");
  add_file("trace.json", b.text, b.length, false);
}
