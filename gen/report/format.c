/* format.c: the notation of kinds, bytes, times and layouts in reports. */
#include "report/report.h"

int64_t bytes_brought(const struct op *op)
{
  return op->kind == OP_exchange ? max_volume_of(op).sent : collective_bytes(op, 0);
}

char *seconds_text(double seconds)
{
  if (seconds < 1e-6) return text("%.1f ns", seconds * 1e9);
  return seconds < 1e-3 ? text("%.1f us", seconds * 1e6) : text("%.3f ms", seconds * 1e3);
}

char *over_text(const struct op *op)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (is_collective(op->kind)) return printable(graph->group[op->group].name);
  struct layout from = graph->value[op->in[0]].layout, to = graph->value[op->out].layout;
  for (int d = 0; d < graph->mesh.ndim && op_row[op->kind].step == LOCAL_STEP; d++)
    if (!same_placement(from.on[d], to.on[d]))
      put(&b, "%s%s", b.length ? "_" : "", printable(graph->mesh.name[d]));
  return b.text;
}

char *step_layouts(const struct op *op)
{
  int in = op->nbody ? graph->op[op->body[0]].in[0] : op->in[0];
  struct layout from = graph->value[in].layout, to = graph->value[op->out].layout;
  if (op->kind == OP_exchange) {
    from = graph->exchange[op->exchange].move.from;
    to = graph->exchange[op->exchange].move.to;
  } else if (!is_collective(op->kind) && op_row[op->kind].step != LOCAL_STEP) {
    return "";
  }
  return text("%s -> %s", layout_text(from), layout_text(to));
}

const char *kind_of(const struct op *op)
{
  if (op->kind != OP_exchange) return op_row[op->kind].name;
  const struct exchange *x = &graph->exchange[op->exchange];
  return transfer_traits(x)->permutes ? "permute" : "exchange";
}

const char *shown_name(int value)
{
  return printable(value_name(value));
}

void add_file_of(json_t *object, int line)
{
  if (line >= LINES_OF_FILE) json_member(object, "file", json_string(file_shown(line)));
}

json_t *json_layout(struct layout layout)
{
  json_t *object = json_object();
  for (int d = 0; d < graph->mesh.ndim; d++)
    json_member(object, printable(graph->mesh.name[d]), json_string(placement_over(layout, d)));
  return object;
}

json_t *json_shape(struct shape s)
{
  json_t *list = json_array();
  for (int d = 0; d < s.ndim; d++) json_append(list, json_integer(s.size[d]));
  return list;
}
