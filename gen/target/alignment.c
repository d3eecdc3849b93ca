/* alignment.c: how the places of values in a rank's memory are aligned.

   Takes   where memory.c put what lies in the arena; struct memory as names.c declares it, in which
           each struct and the arena begin at a multiple of 64 bytes in programs for a device.
   Leaves  of each value the largest power of two, up to 64, that its address is a multiple of, in
           every module that the value stands for.

   Within a struct members lie one after the other, in the order of the values: behind one whose
   bytes are odd all others are, until they happen to be even again. */
#include "target/target.h"

#include <string.h>

enum { MOST = 64 };

int known_rank = NONE;
static int64_t *begin; /* by value that is a member of a struct: its offset in it */

static int64_t power_in(int64_t bytes)
{
  return bytes % MOST ? bytes & -bytes : MOST;
}

/* A struct, as far as its members are known; where they are of one size no gaps are between. */
struct members {
  int64_t at, size;
};

static void add_member(struct members *m, int value)
{
  int64_t each = type_bytes(graph->value[value].type);
  if (m->size && m->size != each) m->at |= 1; /* so it is not known how they lie */
  m->size = each;
  begin[value] = m->at;
  m->at += elements(local_shape(value, known_rank)) * each;
}

/* Parameters, batch and outputs. */
static void find_members(enum role role)
{
  struct members m = {0};
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == role && (role != ACTIVATION || v->is_output)) add_member(&m, i);
  }
}

static void find_sums(void)
{
  struct members m = {0};
  const int *sums = sums_by_parameter();
  for (int i = 0; i < graph->nvalue; i++)
    if (sums[i] != NONE) add_member(&m, sums[i]);
}

void find_alignments(int rank)
{
  known_rank = rank;
  begin = alloc((size_t)(graph->nvalue + 1) * sizeof *begin);
  memset(begin, 0, (size_t)(graph->nvalue + 1) * sizeof *begin);
  find_members(PARAMETER);
  find_members(BATCH);
  find_members(ACTIVATION);
  find_sums();
}

static int64_t of_member(int value)
{
  const struct value *v = &graph->value[value];
  int64_t least = MOST, own = type_bytes(v->type);
  if (v->role == LOSS || v->role == NORM) return own;
  if (v->role == GRADIENT || v->role == STATE) return of_member(v->of);
  if (v->family == NONE) return begin[value] & 1 ? own : power_in(begin[value]);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *w = &graph->value[i];
    if (w->family != v->family || w->role != v->role) continue;
    int64_t here = begin[i] & 1 ? own : power_in(begin[i]);
    if (here < least) least = here;
  }
  return least;
}

int64_t alignment_of(int value)
{
  if (!begin) return MOST; /* not found yet */
  const struct value *v = &graph->value[value];
  if (v->step) {
    int64_t here = alignment_of(v->family), first = alignment_of(v->initial);
    return here < first ? here : first;
  }
  struct allocation a = allocation_of(value);
  const struct value *place = &graph->value[a.storage];
  bool in_arena = place->role == ACTIVATION && !place->is_output;
  return in_arena ? power_in(a.offset) : of_member(a.storage);
}
