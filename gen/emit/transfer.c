/* transfer.c: what moves from a stage of a pipeline to another one.

   The ranks of the two stages are a group: those with the same other coordinates. A sender does not
   wait: its value stays where it is until the slot of the micro-batch is taken anew, or the step
   ends. */
#include "emit/emit.h"

#include <inttypes.h>

char *transfer_text(const struct op *op, int rank)
{
  bool sends = op->kind == OP_send;
  int value = sends ? op->in[0] : op->out;
  int64_t n = elements(local_shape(value, rank));
  int peer = coordinate_of_stage((int)op->number[sends ? 2 : 1]);
  if (!n) return "";
  check_count(op->line, n);
  return text("COLLECTIVE(%s, %s(%s, %" PRId64 ", %s, /* %s */ %d, /* tag */ %d, %s));",
              plan_line_text(op->line), sends ? "send_to" : "receive_from", c_name(value), n,
              library_type(graph->value[value].type), sends ? "to" : "from", peer,
              (int)op->number[0], group_name(add_group(1u << graph->stages->mesh_dim)));
}

char *awaits_sent_text(const struct function *f)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (op->kind == OP_send && op->phase == BACKWARD)
      put(&b, "  COLLECTIVE(%s, await_sent(%s)); // of the micro-batch before\n",
          plan_line_text(op->line), arena_pointer(op->in[0], NULL, f->name));
  }
  return b.text;
}
