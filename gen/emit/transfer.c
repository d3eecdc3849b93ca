/* transfer.c: what moves from a stage of a pipeline to another one.

   The ranks of the two stages are a group: those with the same other coordinates. A sender does not
   wait: its value stays where it is until the slot of the micro-batch is taken anew, or the step
   ends. */
#include "emit/emit.h"

#include <inttypes.h>

/* Each micro-batch has its own: stages may send and receive them in different orders. */
static char *tag_text(const struct op *op)
{
  int first = (int)op->number[0] * microbatches();
  return text(is_of_batch(op->phase) ? "%d + microbatch" : "%d", first);
}

char *transfer_text(const struct op *op, int rank)
{
  bool sends = op->kind == OP_send;
  int value = sends ? op->in[0] : op->out;
  int64_t n = elements(local_shape(value, rank));
  int peer = coordinate_of_stage((int)op->number[sends ? 2 : 1]);
  if (!n) return "";
  check_count(op->line, n);
  return text("COLLECTIVE(%s, %s(%s, %" PRId64 ", %s, /* %s */ %d, /* tag */ %s, %s));",
              plan_line_text(op->line), sends ? "send_to" : "receive_from", c_name(value), n,
              library_type(graph->value[value].type), sends ? "to" : "from", peer, tag_text(op),
              group_name(add_group(1u << graph->stages->mesh_dim)));
}

/* The forward takes a slot anew: what the stage has sent from there of an earlier micro-batch is
   awaited. */
char *awaits_sent_text(const struct function *f)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (!graph->stages || !is_phase(f) || f->phase != FORWARD) return b.text;
  if (graph->memory->slots[f->stage].n == microbatches()) return b.text;
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *other = &graph->function[i];
    for (int k = 0; k < other->nop && other->stage == f->stage; k++) {
      const struct op *op = &graph->op[other->op[k]];
      if (op->kind == OP_send)
        put(&b, "  COLLECTIVE(%s, await_sent(%s)); // of the slot's last micro-batch\n",
            plan_line_text(op->line), arena_pointer(op->in[0], NULL, other->name));
    }
  }
  return b.text;
}
