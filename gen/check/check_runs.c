/* check_runs.c: a part of check_moves.c: whether the pieces of an exchange are contiguous for their
   sender, and for their receiver: otherwise they are packed, or unpacked.

   A piece is the intersection of a member's part before and another's part after. exchange.c finds
   the pieces by lists; here each pair of ranks is compared, or some of many. */
#include "check/check.h"

struct part part_on(const struct cut_tensor *t, int rank)
{
  int coordinate[MAX_MESH] = {0};
  coordinate_of(rank, coordinate);
  return local_part(&graph->mesh, t->whole, t->layout, coordinate);
}

/* Along a dimension that is cut in strides both have the same cuts: check_moves.c. */
int64_t common_along(const struct cut_tensor *t, const struct part *a, const struct part *b, int d)
{
  int64_t first = a->first[d], end = first + a->shape.size[d];
  int64_t other = b->first[d], other_end = other + b->shape.size[d];
  if (is_strided(&graph->mesh, t->layout, d)) return a->shape.size[d];
  if (first < other) first = other;
  if (end > other_end) end = other_end;
  return end > first ? end - first : 0;
}

int64_t common_part(const struct cut_tensor *t, int rank, const struct cut_tensor *u, int other)
{
  struct part a = part_on(t, rank), b = part_on(u, other);
  int64_t n = 1;
  for (int d = 0; d < t->whole.ndim; d++) n *= common_along(t, &a, &b, d);
  return n;
}

/* A piece of the size `n` by dimension is contiguous in a part if it has all of the part within the
   outermost dimension in which it has more than one index. */
static bool is_run(const int64_t *n, const struct part *part)
{
  int d = 0, ndim = part->shape.ndim;
  while (d < ndim && n[d] == 1) d++;
  for (d++; d < ndim; d++)
    if (n[d] != part->shape.size[d]) return false;
  return true;
}

static void look_at_pair(const struct exchange *e, int from, int to, struct piece_runs *runs)
{
  const struct cut_tensor has = {e->whole, e->move.from}, gets = {e->whole, e->move.to};
  struct part a = part_on(&has, from), b = part_on(&gets, to);
  int64_t n[MAX_DIMS];
  for (int d = 0; d < e->whole.ndim; d++)
    if (!(n[d] = common_along(&has, &a, &b, d))) return;
  runs->given &= is_run(n, &a);
  runs->got &= is_run(n, &b);
}

struct piece_runs piece_runs_of(const struct exchange *e)
{
  enum { MOST_PAIRS = 1024, FEW = 8 };
  static int *member, room;
  const int n = group_size(e->group), world = world_size();
  struct piece_runs runs = {.given = true, .got = true, .all = (int64_t)n * world <= MOST_PAIRS};
  while (room < n) member = grow(member, 0, &room, sizeof *member);
  for (int rank = 0; rank < world; rank++) {
    if (!runs.all && rank >= FEW && rank < world - 1) continue;
    group_members(e->group, rank, member);
    for (int m = e->move.idle_first; m < n - e->move.idle_last; m++)
      if (runs.all || m < FEW || m == n - 1) look_at_pair(e, rank, member[m], &runs);
  }
  return runs;
}
