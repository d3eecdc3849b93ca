/* row_room.c: for how many rows by expert (rows.c) a rank has room. */
#include "ir/ir.h"

#include <math.h>

double bound_of_count(int made)
{
  int maker = graph->value[made].op;
  return maker != NONE && graph->op[maker].kind == OP_count_places ? graph->op[maker].scalar : 0;
}

double bound_of_rows(int value)
{
  return graph->value[value].counts == NONE ? 0 : bound_of_count(graph->value[value].counts);
}

int64_t rows_within(double bound, int64_t places, int64_t experts, int64_t all)
{
  double room = ceil(bound * (double)places * (double)experts / (double)all);
  return bound > 0 && room < (double)places ? (int64_t)room : places;
}

int64_t places_of_part(struct shape part)
{
  int64_t n = 1;
  for (int d = 1; d < ROW_DIMS; d++) n *= part.size[d];
  return n;
}

struct shape room_by_rows(int value, struct shape part)
{
  int64_t experts = part.size[0], all = graph->value[value].shape.size[0];
  int64_t places = places_of_part(part), room = places;
  if (experts > 0) room = rows_within(bound_of_rows(value), places, experts, all);
  if (experts > 1) part.size[0] = 1;
  if (room < places) part.size[1] = part.size[2] = 1, part.size[3] = room;
  return part;
}
