/* alignment.c: how values are aligned in a rank's memory.

   Takes   which values share bytes, and their offsets in the arena or in the storage that they
           share: storages in the arena begin at multiples of 64 bytes; struct memory as names.c
           declares it: in programs for a device each struct and the arena begin at a multiple of
           64 bytes.
   Leaves for each value the largest power of two, up to 64, that divides its address in every
   module that the value represents.

   Within a struct members are contiguous, in the order of the values: after a member with an odd
   number of bytes all others are misaligned, until the sum happens to be even again. */
#include "target/target.h"

#include <string.h>

/* The known facts about a rank's memory. */
struct places {
  const struct memory_plan *plan;
  int rank;
  int64_t *begin; /* by value that is a member of a struct: its offset in it; odd: not known */
  unsigned char *least[NORM + 1]; /* by role and stack: the smallest alignment of its members */
};

static int64_t power_in(int64_t bytes)
{
  return bytes % MOST_ALIGNED ? bytes & -bytes : MOST_ALIGNED;
}

/* A struct, as far as its members are known; members of one size have no gaps between them. */
struct members {
  int64_t at, size;
};

static void add_member(struct places *p, struct members *m, int value)
{
  int64_t each = type_bytes(graph->value[value].type);
  if (m->size && m->size != each) m->at |= 1; /* their offsets are not known */
  m->size = each;
  p->begin[value] = m->at;
  m->at += elements(local_shape(value, p->rank)) * each;
}

/* Parameters, batch and outputs. Frozen parameters have a struct of their own. */
static void find_members(struct places *p, enum role role)
{
  struct members m = {0}, frozen = {0};
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == role && (role != ACTIVATION || v->is_output))
      add_member(p, v->frozen ? &frozen : &m, i);
  }
}

/* A sum, and what adds to it in its place. */
static void find_sums(struct places *p)
{
  struct members m = {0};
  const int *sums = sums_by_parameter();
  for (int i = 0; i < graph->nvalue; i++)
    if (sums[i] != NONE) add_member(p, &m, sums[i]);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == SUMS && sums[v->of] != NONE) p->begin[i] = p->begin[sums[v->of]];
  }
}

static void find_states_apart(struct places *p)
{
  for (int i = 0; i < graph->nvalue; i++) {
    if (graph->value[i].role != STATE || !is_apart(i)) continue;
    struct members m = {0};
    struct list like = states_like(i);
    for (int k = 0; k < like.n && like.at[0] == i; k++) add_member(p, &m, like.at[k]);
  }
}

static int64_t own_alignment(const struct places *p, int value)
{
  int64_t begin = p->begin[value];
  return begin & 1 ? type_bytes(graph->value[value].type) : power_in(begin);
}

static void find_least(struct places *p)
{
  size_t n = (size_t)graph->nvalue + 1;
  for (int role = 0; role <= NORM; role++) p->least[role] = memset(alloc(n), MOST_ALIGNED, n);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    const struct in_loop *loop = in_loop(i);
    if (loop->stack == NONE) continue;
    unsigned char *least = &p->least[v->role][loop->stack];
    int64_t own = own_alignment(p, i);
    if (own < *least) *least = (unsigned char)own;
  }
}

static int64_t of_member(const struct places *p, int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (v->role == LOSS || v->role == NORM) return type_bytes(v->type);
  if (v->role == GRADIENT || (v->role == STATE && !is_apart(value))) return of_member(p, v->of);
  return loop->stack == NONE ? own_alignment(p, value) : p->least[v->role][loop->stack];
}

static int64_t alignment_at(const struct places *p, int value)
{
  const struct in_loop *loop = in_loop(value);
  if (loop->step) {
    int64_t here = alignment_at(p, loop->stack), first = alignment_at(p, loop->initial);
    return here < first ? here : first;
  }
  const struct allocation *a = &p->plan->of[value];
  const struct value *place = &graph->value[a->storage];
  bool in_arena = place->role == ACTIVATION && !place->is_output;
  return in_arena ? power_in(a->offset) : of_member(p, a->storage);
}

unsigned char *find_alignments(const struct memory_plan *plan, int rank)
{
  size_t n = (size_t)graph->nvalue + 1;
  struct places p = {.plan = plan, .rank = rank, .begin = alloc(n * sizeof *p.begin)};
  unsigned char *alignment = alloc(n);
  for (size_t i = 0; i < n; i++) p.begin[i] = 1;
  find_members(&p, PARAMETER);
  find_members(&p, BATCH);
  find_members(&p, CACHE);
  find_members(&p, ACTIVATION);
  find_sums(&p);
  find_states_apart(&p);
  find_least(&p);
  for (int i = 0; i < graph->nvalue; i++) alignment[i] = (unsigned char)alignment_at(&p, i);
  return alignment;
}
