/* explain.c: --explain: the layouts and moves of a value, with reasons.

   Recorded from the flat program, where each module has values of its own, and printed after all
   passes have run as usual. */
#include "report/report.h"

#include <string.h>

static struct buffer explanation;
static bool is_gathered;

/* Whether the value is the program's own: an operation that still exists makes it, and it is no
   buffer of pieces. */
static bool is_there(int value)
{
  if (graph->value[value].op == NONE) return true;
  if (holds_pieces(value)) return false;
  for (int i = 0; i < graph->norder; i++)
    if (graph->order[i] == graph->value[value].op) return true;
  return false;
}

static void explain_value(int value)
{
  const struct value *v = &graph->value[value];
  put(&explanation, "%s  %s%s  %s  (%s)\n", printable(value_name(value)), type_name(v->type),
      shape_text(v->shape), layout_text(v->layout), place_shown(v->line));
  if (v->role == PARAMETER) put(&explanation, "  placed by %s\n", asked_by(value));
  if (v->op != NONE) {
    const struct op *maker = &graph->op[v->op];
    bool has_reason = maker->why && maker->kind != OP_view;
    put(&explanation, "  made by %s\n", has_reason ? comment_text(maker) : formula_text(maker));
  }
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    /* "line 14", or the place in another file than the plan. */
    const char *at = op->line < LINES_OF_FILE ? text("line %d", op->line) : place_shown(op->line);
    for (int k = 0; k < op->nin; k++)
      if (op->in[k] == value)
        put(&explanation, "  %s: read by %s at %s, %s%s%s\n", phase_name[op->phase],
            op_row[op->kind].name, at, layouts_text(op), op->why ? ": " : "",
            op->why ? printable(op->why) : "");
  }
}

void gather_explained(void)
{
  is_gathered = true;
  for (int i = 0; i < graph->nvalue; i++)
    if (!strcmp(value_name(i), options.explain) && is_there(i)) explain_value(i);
}

void run_explain(void)
{
  if (!options.explain) return;
  if (!is_gathered)
    usage_error(2, "--explain: it describes the program before %s, and this dump is of later",
                pass_name[PASS_OUTLINE]);
  if (!explanation.length) plan_error(0, "no value is called %s", printable(options.explain));
  fputs(explanation.text, stdout);
  end_printing();
}
