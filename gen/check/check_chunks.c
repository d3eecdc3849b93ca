/* check_chunks.c: a part of check.c: a chunked value is complete before it is read whole.

   Takes   functions in which async_tp.c has decomposed collectives and products.
   Holds   each piece of a value is made exactly once, all pieces in one function, and as many as
           the value has. If products add to a piece, it is made before. An operation that touches
           one piece comes after the operation that makes it; one that reads the whole value comes
           after all of them. The order of the pieces is the schedule's. */
#include "check/check.h"

static uint64_t *made; /* by value: a bit for each of its pieces that is made */

static void hold_piece(bool ok, int op, const char *what)
{
  if (!ok) bug_at("async_tp", op, "%s", what);
}

static uint64_t bit(int piece)
{
  return UINT64_C(1) << piece;
}

static bool is_whole(int value, int pieces)
{
  return made[value] == (bit(pieces - 1) | (bit(pieces - 1) - 1));
}

static void check_made(int id, int value)
{
  const struct op *op = &graph->op[id];
  hold_piece(op->piece >= 0 && op->piece < op->pieces, id, "it is of a piece that there is not");
  hold_piece(!graph->value[value].pieces || graph->value[value].pieces == op->pieces, id,
             "its value is in other pieces");
  bool there = made[value] & bit(op->piece), adds = op->nin && op->in[op->nin - 1] == value;
  hold_piece(there == adds, id, adds ? "it adds to nothing" : "a piece is made twice");
  made[value] |= bit(op->piece);
}

/* The values that the operation makes a piece of. */
static int pieces_made(const struct op *op, int *list)
{
  return op->pieces ? op_makes(op, list) : 0;
}

/* The pieces that one function makes: a body makes its values anew in every round. */
static void check_function(const struct function *f)
{
  int *list = NULL, room = 0;
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
    for (int n = op_reads(op, list); n--;) {
      bool in_pieces = graph->value[list[n]].pieces && list[n] != op->out;
      if (in_pieces) {
        int id = f->op[k];
        int value = list[n];
        int piece = piece_touched(&graph->op[id], value);
        if (piece == NONE)
          hold_piece(is_whole(value, graph->value[value].pieces), id,
                     "reads what is not whole yet");
        else
          hold_piece(made[value] & bit(piece), id, "reads a piece that is not there yet");
      }
    }
    for (int n = pieces_made(op, list); n--;) check_made(f->op[k], list[n]);
  }
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    for (int n = pieces_made(op, list); n--;)
      hold_piece(is_whole(list[n], op->pieces), f->op[k], "a piece of what it makes is left out");
  }
}

void check_in_pieces(void)
{
  if (!plan_options->nasync) return;
  made = alloc((size_t)(graph->nvalue + 1) * sizeof *made);
  for (int i = 0; i < graph->nfunction; i++) check_function(&graph->function[i]);
}
