/* transfer.c: the transfers from a stage of a pipeline to another one.

   A sender does not wait: its value stays in place until the slot of the micro-batch is taken
   again, or the step ends. By MPI, the receive of a micro-batch is posted ahead, and awaited here;
   the ranks of the stages, those with the same other coordinates, are a group, and a tag identifies
   the value and the micro-batch. By NCCL, two stages have a group and a stream for each direction
   (an edge), whose members are 0, the sender, and 1; calls match by their order. An event ends each
   call: a send has one for each slot. */
#include "emit/emit.h"

#include <inttypes.h>

/* By library: $call$ begins COLLECTIVE or TRANSFER. */
static const struct {
  const char *send, *post, *posted, *receive, *sent, *all_sent;
  const char *all_of_slot; /* NULL: each send by itself */
} transfer_row[LIBRARIES] = {
    [LIBRARY_MPI] =
        {
            .send = "$call$, send_to($value$, $n$, $type$, /* to */ $peer$, /* tag */ $tag$, "
                    "$group$));",
            .post = "$call$, post_receive($value$, $n$, $type$, /* from */ $peer$, /* tag */ "
                    "$tag$, $group$));",
            .posted = "$call$, await_received($value$));",
            .receive = "$call$, receive_from($value$, $n$, $type$, /* from */ $peer$, /* tag */ "
                       "$tag$, $group$));",
            .sent = "COLLECTIVE($line$, await_sent($value$));",
            .all_of_slot = "  // What an earlier micro-batch has sent from the slot.\n"
                           "  COLLECTIVE($line$,\n"
                           "      await_sent_within($value$,\n"
                           "          $n$));\n",
            .all_sent = "  COLLECTIVE($line$, await_all_sent());\n",
        },
    [LIBRARY_NCCL] =
        {
            .send = "begin_on($stream$);\n"
                    "  $call$, $stream$, ncclSend($value$, $n$, $type$, 1, $group$, $stream$));\n"
                    "  end_on($stream$, $event$);",
            .receive = "begin_on($stream$);\n"
                       "  $call$, $stream$, ncclRecv($value$, $n$, $type$, 0, $group$, "
                       "$stream$));\n"
                       "  end_on($stream$, $event$);\n"
                       "  await($event$);",
            .sent = "await_sent($event$);",
            .all_sent = "  await_all_sent();\n",
        },
};

/* --------------------------------------------------------------------------------------- events */

/* The stage whose micro-batches in flight each have the value in a slot, or NONE. */
static int stage_of_slots(const struct op *op)
{
  return op->kind == OP_send ? allocation_of(op->in[0]).in_flight : NONE;
}

/* The events of the program before those of this operation; NULL: all. */
static int events_before(const struct op *end)
{
  int n = graph->schedule->nevent;
  for (int i = 0; i < graph->nfunction && target->edge_groups; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (op == end) return n;
      if (!is_transfer(op->kind)) continue;
      n += stage_of_slots(op) == NONE ? 1 : slots_here().n;
    }
  return n;
}

int program_events(void)
{
  return events_before(NULL);
}

/* The event of a transfer; of a send from the slot that the stage's micro-batch has. */
static const char *transfer_event(const struct op *op, int stage)
{
  const int first = events_before(op);
  if (stage_of_slots(op) == NONE) return text("done[%d]", first);
  return text("done[%d + %s]", first, slot_number(stage));
}

/* ---------------------------------------------------------------------------------------- calls */

/* The text of a row for this transfer; "" where the rank has no part of it. */
static char *transfer_call(const struct op *op, int rank, const char *row)
{
  bool sends = op->kind == OP_send;
  int value = sends ? op->in[0] : op->out, edge = edge_of(op);
  int64_t n = elements(local_shape(value, rank));
  if (!n) return "";
  check_count(op->line, n);
  /* The tag has the action's name, as in a schedule; a value that is sent once in a step is in no
     action. Each micro-batch has a tag of its own: stages may send and receive them in different
     orders. */
  bool of_batch = is_of_batch(op->phase);
  const char *line = plan_line_text(op->line), *call = text("COLLECTIVE(%s", line);
  if (of_batch)
    call = text("TRANSFER(\"%d%s_%c\", microbatch, %s", (int)op->number[sends ? 1 : 2],
                sends ? "SEND" : "RECV", op->phase == FORWARD ? 'F' : 'B', line);
  const char *tag = text(of_batch ? "%d + microbatch" : "%d", (int)op->number[0] * microbatches());
  int group = edge == NONE ? add_group(1u << graph->stages->mesh_dim) : edge;
  return fill(row, "call", call, "value", c_name(value), "n", text("%" PRId64, n), "type",
              library_type(graph->value[value].type), "peer",
              text("%d", coordinate_of_stage((int)op->number[sends ? 2 : 1])), "tag", tag, "group",
              group_name(group), "stream", edge == NONE ? "" : stream_name(edge), "event",
              edge == NONE ? "" : transfer_event(op, stage_of_slots(op)), NULL);
}

char *transfer_text(const struct op *op, int rank)
{
  if (op->kind == OP_send) return transfer_call(op, rank, transfer_row[target->library].send);
  return transfer_call(op, rank,
                       is_posted(op) ? transfer_row[target->library].posted
                                     : transfer_row[target->library].receive);
}

char *post_text(const struct op *op, int rank)
{
  return transfer_call(op, rank, transfer_row[target->library].post);
}

/* Whether the rank sends some of the value in micro-batches of any size. */
static bool is_sent(int value, int rank)
{
  const int now = graph->mesh.now;
  bool is = false;
  for (int size = NONE; next_size(sizes_of_step(), &size);)
    is |= elements(local_shape(value, rank)) > 0;
  graph->mesh.now = now;
  return is;
}

/* Awaits the send, in a forward of that stage. */
static const char *await_sent_text(const struct op *send, const struct function *in, int stage)
{
  return fill(transfer_row[target->library].sent, "line", plan_line_text(send->line), "value",
              target->edge_groups ? "" : arena_pointer(send->in[0], NULL, in->name), "event",
              target->edge_groups ? transfer_event(send, stage) : "", NULL);
}

/* All that a micro-batch of any stage has sent from the slot that the stage's micro-batch takes. */
static const char *await_all_of_slot_text(const struct op *send, int stage)
{
  const struct rank_slots slots = slots_here();
  const int64_t first = arena_bytes() - slot_begins(&slots, graph->memory->slots)[slots.n];
  const char *slot = slot_number(stage);
  return fill(transfer_row[target->library].all_of_slot, "line", plan_line_text(send->line),
              "value", text("m->arena + %lld + slot_begins[%s]", (long long)first, slot), "n",
              text("slot_begins[%s + 1] - slot_begins[%s]", slot, slot), NULL);
}

/* Before the forward takes a slot again, it awaits the sends from there of an earlier micro-batch,
   which may be of another size, and of another stage. */
char *awaits_sent_text(const struct function *f, int rank)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (!graph->stages || !is_phase(f) || f->phase != FORWARD) return b.text;
  const int of_rank = stages_here(), slots = slots_here().n;
  const bool at_once = of_rank > 1 && transfer_row[target->library].all_of_slot;
  if (slots == microbatches() * of_rank) return b.text;
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *other = &graph->function[i];
    for (int k = 0; k < other->nop; k++) {
      const struct op *op = &graph->op[other->op[k]];
      if (stage_of_slots(op) == NONE || !is_sent(op->in[0], rank)) continue;
      if (at_once) return text("%s", await_all_of_slot_text(op, f->stage));
      put(&b, "  %s // of the slot's last micro-batch\n", await_sent_text(op, other, f->stage));
    }
  }
  return b.text;
}

char *awaits_all_sent_text(void)
{
  return fill(transfer_row[target->library].all_sent, "line", plan_line_text(graph->stages->line),
              NULL);
}
