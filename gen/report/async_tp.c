/* async_tp.c: the outcome for the collectives that async_tp asks for, for the reports.

   Takes   graph->async_tp_result, which the pass async_tp leaves. */
#include "report/report.h"

static const struct op *op_of(const struct async_tp_result *p)
{
  return &graph->op[p->op];
}

/* Those that one line of the plan asks for over one dimension of the mesh. */
static bool same_request(const struct async *a, const struct async *b)
{
  return a->line == b->line && a->mesh_dim == b->mesh_dim;
}

static bool async_tp_is_of(const struct async_tp_result *p, const struct async *asked)
{
  return same_request(&plan_options->async[p->async], asked);
}

static char *model_time(int64_t picoseconds)
{
  return seconds_text((double)picoseconds * 1e-12);
}

/* The time of only the collective and its products, as it is and as it could be; or why it is
   whole. */
static char *reason(const struct async_tp_result *p)
{
  if (p->why_not) return printable(p->why_not);
  if (!p->tried) return copy_text("");
  if (p->pieces) return text("%s, whole %s", model_time(p->in_pieces), model_time(p->whole));
  return text("%s, in %d pieces %s", model_time(p->whole), p->tried, model_time(p->in_pieces));
}

/* Whether any is cut, and the reason. */
static char *outcome_text(const struct async *asked, int cut, int of)
{
  if (!cut && !asked->pieces)
    return text("none of %d collectives is in chunks: by the model that would be slower", of);
  return text("%d of %d collectives %s in chunks, %s", cut, of, cut == 1 ? "is" : "are",
              asked->pieces ? "as the plan says" : "as many as the model finds quickest");
}

static void put_asked(struct buffer *b, const struct async *asked)
{
  int n = 0, cut = 0;
  for (int i = 0; i < graph->nasync_tp_result; i++) {
    if (!async_tp_is_of(&graph->async_tp_result[i], asked)) continue;
    n++;
    cut += graph->async_tp_result[i].pieces > 0;
  }
  put(b, "\nasync_tp over %s, %s: %s\n", printable(graph->mesh.name[asked->mesh_dim]),
      place_shown(asked->line), outcome_text(asked, cut, n));
  for (int i = 0; i < graph->nasync_tp_result; i++)
    if (async_tp_is_of(&graph->async_tp_result[i], asked)) {
      const struct async_tp_result *p = &graph->async_tp_result[i];
      const struct op *op = op_of(p);
      put(b, "  %-8s %-15s %-6s %-13s %-34s %s%s\n", phase_name[op->phase], op_row[op->kind].name,
          printable(graph->group[op->group].name),
          p->pieces ? text("in %d pieces", p->pieces) : "whole", reason(p),
          printable(value_name(op->in[0])), p->times > 1 ? text(", %d times", p->times) : "");
    }
}

void put_async_tp(struct buffer *b)
{
  for (int i = 0; i < plan_options->nasync; i++) {
    bool is_shown = false;
    for (int k = 0; k < i; k++)
      is_shown |= same_request(&plan_options->async[k], &plan_options->async[i]);
    if (!is_shown) put_asked(b, &plan_options->async[i]);
  }
}

json_t *json_async_tp(void)
{
  json_t *list = json_array();
  for (int i = 0; i < graph->nasync_tp_result; i++) {
    const struct async_tp_result *p = &graph->async_tp_result[i];
    const struct op *op = op_of(p);
    json_t *one = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i}", "kind", op_row[op->kind].name,
                            "group", printable(graph->group[op->group].name), "value",
                            printable(value_name(op->in[0])), "phase", phase_name[op->phase],
                            "line", plan_options->async[p->async].line % LINES_OF_FILE, "times",
                            p->times, "pieces", p->pieces ? p->pieces : 1);
    add_file_of(one, plan_options->async[p->async].line);
    if (p->tried) {
      json_member(one, "whole_ns", json_integer(p->whole / 1000));
      json_member(one, "quickest_pieces", json_integer(p->tried));
      json_member(one, "in_pieces_ns", json_integer(p->in_pieces / 1000));
    }
    if (p->why_not) json_member(one, "why_whole", json_string(printable(p->why_not)));
    json_append(list, one);
  }
  return list;
}
