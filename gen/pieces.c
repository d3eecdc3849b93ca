/* pieces.c: a part of check.c: what is made in pieces is whole before it is read whole.

   Takes   functions in which pipeline.c has cut collectives and products.
   Holds   the pieces of a value are made in their order, from the first to the last, none of them
           left out, all in one function and for as many pieces as the value has; where products add
           to a piece, they do so before the next one begins. What touches one piece of a value
           stands behind what makes it, what reads all of it behind the last. */
#include "tpgen.h"

static int *made; /* by value: how many of its pieces are there */

static void hold_piece(bool ok, int op, const char *what)
{
  if (!ok) bug("pipeline", op, "%s", what);
}

static void check_read(int id, int value)
{
  const struct op *op = &graph->op[id];
  int piece = piece_touched(op, value);
  if (piece == NONE)
    hold_piece(made[value] == graph->value[value].pieces, id, "reads what is not whole yet");
  else
    hold_piece(made[value] > piece, id, "reads a piece that is not there yet");
}

static void check_made(int id)
{
  const struct op *op = &graph->op[id];
  int *there = &made[op->out];
  hold_piece(op->piece >= 0 && op->piece < op->pieces, id, "it is of a piece that there is not");
  hold_piece(!graph->value[op->out].pieces || graph->value[op->out].pieces == op->pieces, id,
             "its value is in other pieces");
  bool next = op->piece == *there, adds = op->kind == OP_matmul && op->piece == *there - 1;
  hold_piece(next || adds, id, "a piece is left out, or made twice");
  *there += next;
}

/* What one function makes in pieces: a body's values are made anew in every round. */
static void check_function(const struct function *f)
{
  int *list = NULL, room = 0;
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
    for (int n = op_reads(op, list); n--;) {
      bool in_pieces = graph->value[list[n]].pieces && list[n] != op->out;
      if (in_pieces) check_read(f->op[k], list[n]);
    }
    if (op->pieces && op->out != NONE) check_made(f->op[k]);
  }
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (op->pieces && op->out != NONE)
      hold_piece(made[op->out] == op->pieces, f->op[k], "a piece of what it makes is left out");
  }
}

void check_in_pieces(void)
{
  if (!graph->nasync) return;
  made = alloc((size_t)(graph->nvalue + 1) * sizeof *made);
  for (int i = 0; i < graph->nfunction; i++) check_function(&graph->function[i]);
}
