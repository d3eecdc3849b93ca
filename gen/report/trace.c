/* trace.c: the simulated step as trace.json, for Perfetto or chrome://tracing, if --trace asks for
   it: a process with a thread for each stream, in microseconds.

   Takes   what simulate.c has found. */
#include "report/report.h"

/* The text between quotes in JSON. */
static char *quoted(const char *s)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (; *s; s++) put(&b, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
  return b.text;
}

static void put_thread(struct buffer *b, int id, const char *name)
{
  put(b,
      "%s{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"args\": {\"name\": "
      "\"%s\"}}",
      id ? ",\n" : "\n", id, quoted(name));
}

void add_trace(void)
{
  if (!options.trace) return;
  if (!device())
    plan_error(graph->mesh.line, "--trace: say what a rank computes with, as in "
                                 "device_mesh{ ..., device = \"H100\" }");
  const struct simulated *s = simulated();
  struct buffer b = {0};
  put(&b, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
  put_thread(&b, 0, "arithmetic");
  for (int g = 0; g < graph->ngroup; g++)
    if (has_stream(g)) put_thread(&b, g + 1, printable(graph->group[g].name));
  for (int i = 0; i < s->n; i++) {
    const struct ran *r = &s->ran[i];
    const struct op *op = &graph->op[r->op];
    const char *path = op->module == NONE ? "" : graph->module[op->module].path;
    bool copies = r->what == COPIES;
    const char *name = is_collective(op->kind) ? text("%s%s", copies ? "copies: " : "", kind_of(op))
                                               : called(op, shown_name);
    put(&b,
        ",\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": 0, \"tid\": %d, "
        "\"ts\": %.3f, \"dur\": %.3f, \"args\": {\"module\": \"%s\", \"line\": %d",
        quoted(name), phase_name[op->phase], r->stream + 1, (double)r->begin * 1e-6,
        (double)(r->end - r->begin) * 1e-6, quoted(printable(path)), op->line % LINES_OF_FILE);
    if (op->line >= LINES_OF_FILE) put(&b, ", \"file\": \"%s\"", quoted(file_shown(op->line)));
    if (r->module != NONE) put(&b, ", \"of the list\": %d", r->module);
    if (r->what == MOVES) put(&b, ", \"waited for, us\": %.3f", (double)r->waited * 1e-6);
    put(&b, "}}");
  }
  put(&b, "\n]}\n");
  const char *stage = graph->stages ? text("_stage%d", graph->stages->here) : "";
  add_file(text("trace%s.json", stage), b.text, b.length, false);
}
