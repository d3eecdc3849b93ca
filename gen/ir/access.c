/* access.c: which values an operation reads and writes in memory. */
#include "ir/ir.h"

/* The values that one call of op_reads or op_writes has met. An update of all parameters has
   many. */
static int *met_in, met_room, call_now; /* by value: the last call that met it */

/* A list that serves from call to call, with room for n numbers. */
struct kept_list {
  const struct graph *of;
  int room, *at;
};

static int *kept_room(struct kept_list *list, int n)
{
  if (is_other_graph(&list->of)) list->room = 0;
  if (list->room < n) list->at = alloc((size_t)(list->room = 2 * n) * sizeof *list->at);
  return list->at;
}

static void meet_none_yet(void)
{
  static const struct graph *of;
  if (is_other_graph(&of)) met_room = 0;
  while (met_room < graph->nvalue) met_in = grow(met_in, met_room, &met_room, sizeof *met_in);
  call_now++;
}

/* Whether the value is met for the first time in this call. */
static bool access_meet(int value)
{
  bool first = met_in[value] != call_now;
  met_in[value] = call_now;
  return first;
}

int op_width(const struct op *op)
{
  if (op->kind == OP_await) {
    int width = 0;
    for (const struct op *c = &graph->op[op->awaits]; c; c = predecessor_of(c))
      width += 2 * op_width(c);
    return width;
  }
  return MAX_INPUTS * (op->nbody + 1) + 1;
}

bool copies_late(const struct op *op)
{
  return runs_beside(op) && op->packed && moves_shards(op->kind);
}

int pending_reads(const struct op *op, int *list)
{
  return copies_late(op) && scatters_sum(op->kind) ? 0 : op_reads(op, list);
}

int pending_writes(const struct op *op, int *list)
{
  if (!copies_late(op) || scheduled(op)->has_chained) return op_makes(op, list);
  int n = scatters_sum(op->kind) ? op_makes(op, list) : 0;
  if (!n) list[n++] = op->buffer;
  return n;
}

/* An await completes the collective that it waits for, and those chained to it: it depends on all
   values that must exist until then. */
static int await_reads(const struct op *op, int *list)
{
  int n = pending_reads(op, list);
  n += pending_writes(op, list + n);
  return predecessor_of(op) ? n + await_reads(predecessor_of(op), list + n) : n;
}

int op_reads(const struct op *op, int *list)
{
  int n = 0;
  if (op->kind == OP_await) return await_reads(&graph->op[op->awaits], list);
  meet_none_yet();
  if (counts_of_kernel(op) != NONE && access_meet(counts_of_kernel(op)))
    list[n++] = counts_of_kernel(op);
  for (int i = 0; i < op->nin && !op->nbody; i++)
    if (access_meet(op->in[i])) list[n++] = op->in[i];
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    for (int i = 0; i < inner->nin; i++)
      if (access_meet(inner->in[i])) list[n++] = inner->in[i];
    if (inner->out != NONE) access_meet(inner->out);
  }
  return n;
}

int op_writes(const struct op *op, int *list)
{
  if (op->kind != OP_await) return copies_late(op) ? pending_writes(op, list) : op_makes(op, list);
  const struct op *awaited = &graph->op[op->awaits];
  bool copies = copies_late(awaited) && !scheduled(awaited)->has_chained;
  int n = 0;
  for (int k = 0; k < awaited->nbody && copies; k++) list[n++] = graph->op[awaited->body[k]].out;
  return n;
}

/* adamw's and sgd's first input and the states are written in place. */
int op_makes(const struct op *op, int *list)
{
  int n = 0;
  meet_none_yet();
  bool alone = !op->nbody || op->kind == OP_squares;
  for (int k = 0; k < op->nout && alone; k++) list[n++] = op->out + k;
  for (int k = 0; k < op->nbody && !alone; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (inner->out != NONE && graph->value[inner->out].stored && access_meet(inner->out))
      list[n++] = inner->out;
    if (inner->out == NONE && access_meet(inner->in[0])) list[n++] = inner->in[0];
  }
  if (op_row[op->kind].updates && !op->nbody && op->nin) list[n++] = op->in[0];
  if (op->packed) list[n++] = op->buffer;
  return n;
}

struct list values_read(const struct op *op)
{
  static struct kept_list kept;
  int *list = kept_room(&kept, op_width(op));
  return (struct list){.n = op_reads(op, list), .at = list};
}

struct list values_written(const struct op *op)
{
  static struct kept_list kept;
  int *list = kept_room(&kept, op_width(op));
  return (struct list){.n = op_writes(op, list), .at = list};
}

struct list values_made(const struct op *op)
{
  static struct kept_list kept;
  int *list = kept_room(&kept, op_width(op));
  return (struct list){.n = op_makes(op, list), .at = list};
}

bool reads_value(const struct op *op, int value)
{
  const struct list read = values_read(op);
  return lists_number(read.at, read.n, value);
}

const int *sums_by_parameter(void)
{
  int *sums = alloc((size_t)(graph->nvalue + 1) * sizeof *sums);
  for (int i = 0; i < graph->nvalue; i++) sums[i] = NONE;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == SUMS && v->op == NONE && !v->on_other_stages) sums[v->of] = i;
  }
  return sums;
}

int piece_touched(const struct op *op, int value)
{
  const struct value *v = &graph->value[value];
  if (op->kind == OP_await) op = &graph->op[op->awaits];
  if (!op->pieces || v->pieces != op->pieces) return NONE;
  bool gathered = v->op != NONE && gathers_shards(graph->op[v->op].kind);
  /* The operation itself makes the value, or an operation of its body does. */
  bool makes = op->out == value;
  for (int k = 0; k < op->nbody && !makes; k++) makes = graph->op[op->body[k]].out == value;
  bool its_own = makes || scatters_sum(op->kind);
  return its_own || gathered ? op->piece : NONE;
}

bool holds_pieces(int value)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE) return false;
  const struct op *op = &graph->op[v->op];
  return op->kind == OP_pack_pieces ||
         (op->kind == OP_exchange && !same_shape(v->shape, graph->exchange[op->exchange].whole));
}

const struct axis *operand_axes(const struct op *op, const struct letters *l, int i)
{
  return i < op->nin ? l->in[i] : l->out[i - op->nin];
}
