/* check_rows.c: rows by expert stay within the capacity that a rank has for them. Wherever a rank
   can get more rows, an operation that goes over them by their count takes a count that is clamped
   to this capacity. The rows that an operation reads and writes by one count have one capacity. */
#include "check/check.h"

static void check_rows_of_value(int id, int value, int counts)
{
  if (graph->value[value].counts == NONE) return;
  const int ends[] = {0, world_size() - 1};
  for (int i = 0; i < 2; i++) {
    int64_t room, most;
    int rank = ends[i];
    /* The number of rows of the value for which the rank has capacity, and the largest number that
       it can get. */
    struct shape here = local_shape(value, rank), part = shape_of_part(value, rank);
    room = part.size[0] > 0 ? places_of_part(here) : 0;
    most = part.size[0] > 0 ? places_here(value, rank, part) : 0;
    if (room == most) continue;
    int maker = graph->value[counts].op;
    require(maker != NONE && graph->op[maker].kind == OP_clamp_to_capacity, id,
            "it goes over rows that there may be no room for");
    require(room_of_count(&graph->op[maker], rank) == room, id,
            "its rows are held to another room than they have");
  }
}

static void check_one_room(int id)
{
  const struct op *op = &graph->op[id];
  const int ends[] = {0, world_size() - 1};
  for (int k = 0; k < op->nbody; k++) check_one_room(op->body[k]);
  /* Collectives move rows to other ranks; a view, an exchange's packing and the like change their
     form. */
  for (int i = 0; i < 2 && (counted_operand(op) != NONE || *op_row[op->kind].element); i++) {
    int first = NONE;
    for (int k = 0; k < operand_count(op); k++) {
      int value = nth_operand(op, k);
      if (graph->value[value].counts == NONE) continue;
      if (first == NONE) first = value;
      struct shape a = local_shape(first, ends[i]), b = local_shape(value, ends[i]);
      require(a.size[0] * places_of_part(a) == b.size[0] * places_of_part(b), id,
              "what it reads and writes has room for other numbers of rows");
    }
  }
}

static void check_op_of_rows(int id)
{
  const struct op *op = &graph->op[id];
  int counted = counted_operand(op), counts = counts_of_kernel(op);
  if (counted != NONE) counts = op->in[counted];
  if (counts == NONE) return;
  if (op->kind == OP_fused) check_rows_of_value(id, op->stages->space, counts);
  for (int i = 0; i < operand_count(op) && op->kind != OP_fused; i++)
    check_rows_of_value(id, nth_operand(op, i), counts);
}

static void check_one_room_in_program(void *unused, int id, int times)
{
  (void)unused, (void)times;
  check_one_room(id);
}

void check_rows(void)
{
  bool has_rows_by_expert = false;
  for (int i = 0; i < graph->nvalue && !has_rows_by_expert; i++)
    has_rows_by_expert = graph->value[i].counts != NONE;
  if (has_rows_by_expert) {
    for (int at = 0; at < graph->norder; at++) check_one_room(graph->order[at]);
    each_op(check_one_room_in_program, NULL);
  }
  if (!has_row_bounds()) return;
  for (int at = 0; at < graph->norder; at++) check_op_of_rows(graph->order[at]);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) check_op_of_rows(graph->function[i].op[k]);
}
