/* arena_offsets.c: the offsets of values in the arena. memory.c finds their sizes and lifetimes.

   Each value gets the lowest offset that does not conflict with values placed before. The orders
   are: largest first, longest-lived first, first-made first, or those at the peak before all
   others. A value that ends above the bound, the largest sum of live bytes, is placed earlier in
   the next try; if that does not help, orders near to these are tried. The more values, the fewer
   tries: the work is counted and bounded. */
#include "function_passes/function_passes.h"

#include <stdlib.h>
#include <string.h>

bool in_arena(int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  bool stands_for_itself = loop->stack == NONE || loop->stack == value;
  return v->stored && v->role == ACTIVATION && !v->is_output && v->op != NONE && stands_for_itself;
}

int64_t arena_size(const struct memory_plan *plan, int value)
{
  return arena_stride(value) * plan->of[value].depth;
}

/* A storage that is placed. */
struct item {
  int value, first, last;
  bool at_peak; /* it lives at the peak */
  int64_t size, offset;
  int64_t key; /* its place in a shuffled order */
};

/* The values that are placed, by offset: in arrays of their own, as each value that is placed scans
   them. */
struct lying {
  int64_t at, end;
  int first, last;
};

/* The largest number of placed values that a search may look at; it ends after that. The work grows
   with the number of values. One bound is for all trial placements together, one for a thorough
   placement. */
enum { MOST_IN_TRIALS = 200000000, MOST_IN_ONE = 150000000 };

void begin_placing(struct placing *p, struct memory_plan *plan, const struct list *storage)
{
  if (p->room < storage->n) {
    p->room = p->room ? storage->n + storage->n / 2 : storage->n;
    p->item = alloc((size_t)p->room * sizeof *p->item);
    p->order = alloc((size_t)p->room * sizeof(struct item *));
    p->late = alloc((size_t)p->room * sizeof(struct item *));
    p->lying = alloc((size_t)p->room * sizeof *p->lying);
  }
  p->plan = plan;
  p->n = storage->n;
  for (int i = 0; i < p->n; i++) {
    const struct allocation *a = &plan->of[storage->at[i]];
    p->item[i] = (struct item){.value = storage->at[i],
                               .first = a->first,
                               .last = a->last,
                               .size = arena_size(plan, storage->at[i])};
    p->order[i] = &p->item[i];
  }
}

/* --------------------------------------------------------------------------------------- orders */

static int by_size(const struct item *x, const struct item *y)
{
  if (x->size != y->size) return x->size > y->size ? -1 : 1;
  return x->value < y->value ? -1 : 1;
}

static int by_length(const struct item *x, const struct item *y)
{
  if (x->last - x->first != y->last - y->first)
    return x->last - x->first > y->last - y->first ? -1 : 1;
  return by_size(x, y);
}

static int by_start(const struct item *x, const struct item *y)
{
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return by_size(x, y);
}

/* The values that live at the peak are one pile, the longest-lived lowest; the rest goes into the
   free places before and after. */
static int by_peak(const struct item *x, const struct item *y)
{
  if (x->at_peak != y->at_peak) return x->at_peak ? -1 : 1;
  return x->at_peak ? by_length(x, y) : by_size(x, y);
}

static int by_peak_and_length(const struct item *x, const struct item *y)
{
  if (x->at_peak != y->at_peak) return x->at_peak ? -1 : 1;
  return by_length(x, y);
}

static int by_key(const struct item *x, const struct item *y)
{
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->value < y->value ? -1 : 1;
}

/* For qsort, of pointers to items: one for each order. */
#define COMPARE(by)                                                                                \
  static int compare_##by(const void *a, const void *b)                                            \
  {                                                                                                \
    return by(*(struct item *const *)a, *(struct item *const *)b);                                 \
  }
COMPARE(by_size)
COMPARE(by_length)
COMPARE(by_start)
COMPARE(by_peak)
COMPARE(by_peak_and_length)
COMPARE(by_key)

static void sort(struct placing *p, int (*compare)(const void *, const void *))
{
  if (p->n) qsort(p->order, (size_t)p->n, sizeof *p->order, compare);
}

/* Moves values above the bound to the front of the order, so that they are placed first. */
static void hurry(struct placing *p, int64_t bound)
{
  int nlate = 0, front = p->n;
  for (int k = p->n; k-- > 0;) {
    struct item *i = p->order[k];
    if (i->offset + i->size > bound)
      p->late[nlate++] = i;
    else
      p->order[--front] = i;
  }
  for (int k = 0; k < nlate; k++) p->order[nlate - 1 - k] = p->late[k];
}

/* --------------------------------------------------------------------------------------- places */

/* Places each value of the order at the lowest offset that does not conflict with those before.
   Returns the end of the last one. */
static int64_t place_in_order(struct placing *p)
{
  int64_t peak = 0;
  for (int k = 0; k < p->n; k++) {
    struct item *i = p->order[k];
    /* The lowest offset at which the item's bytes are free during its lifetime, given k placed
       values. */
    int64_t at = 0;
    const struct lying *lying = p->lying;
    /* Without branches within: which values meet in time is as good as random. */
    for (; lying < p->lying + k && lying->at < at + i->size; lying++) {
      const bool meets = (lying->end > at) & (i->first <= lying->last) & (lying->first <= i->last);
      at = meets ? lying->end : at;
    }
    p->looked_at += lying - p->lying;
    i->offset = at;
    int64_t end = i->offset + i->size;
    /* The number of the placed values that begin no later than it. */
    int below = 0;
    for (int high = k; below < high;) {
      int middle = below + (high - below) / 2;
      if (p->lying[middle].at > i->offset)
        high = middle;
      else
        below = middle + 1;
    }
    struct lying *l = p->lying + below;
    memmove(l + 1, l, (size_t)(k - below) * sizeof *l);
    *l = (struct lying){i->offset, end, i->first, i->last};
    if (end > peak) peak = end;
  }
  return peak;
}

/* ----------------------------------------------------------------------------------- live bytes */

/* The first time with the most live bytes; `most`: their number. */
static int find_peak(struct placing *p, int64_t *most)
{
  int first = 0, end;
  /* By time, the change of the live bytes: for all times until the last of these values. */
  end = 0;
  for (int i = 0; i < p->n; i++)
    if (p->item[i].last >= end) end = p->item[i].last + 1;
  while (p->change_room <= end) p->change = grow(p->change, 0, &p->change_room, sizeof *p->change);
  memset(p->change, 0, (size_t)(end + 1) * sizeof *p->change);
  for (int k = 0; k < p->n; k++) {
    const struct item *i = &p->item[k];
    if (i->first > i->last) continue;
    p->change[i->first] += i->size;
    p->change[i->last + 1] -= i->size;
  }
  const int64_t *change = p->change;
  int64_t now = 0;
  *most = 0;
  for (int time = 0; time < end; time++) {
    now += change[time];
    if (now > *most) *most = now, first = time;
  }
  return first;
}

int64_t most_live(struct placing *p)
{
  int64_t most;
  find_peak(p, &most);
  return most;
}

/* ---------------------------------------------------------------------------------------- tries */

/* Tries orders until one reaches the bound: the plain orders; then each with the values above the
   bound placed earlier; and, if `well`, orders near to these, fewer if there are more values. If
   not `well`, an end a little above the bound is enough. Leaves the best offsets, and returns their
   end: INT64_MAX if the work ended before the first try. */
static int64_t try_orders(struct placing *p, int64_t bound, bool well)
{
  static int (*const orders[])(const void *, const void *) = {compare_by_size, compare_by_length,
                                                              compare_by_start, compare_by_peak,
                                                              compare_by_peak_and_length};
  enum { ORDERS = sizeof orders / sizeof *orders, HURRIES = 8, HURRIED = ORDERS * (1 + HURRIES) };
  enum { STEPS = 4000000, FEW = 12 };
  if (well) p->looked_at = 0, p->random = HASH_START;
  int64_t best = INT64_MAX, enough = well ? bound : bound + bound / 256,
          many = STEPS / ((int64_t)p->n * p->n + 1), tries = well ? HURRIED + many : many;
  if (tries < FEW) tries = FEW;
  if (!well && tries > HURRIED) tries = HURRIED;
  for (int k = 0; k < tries && best > enough; k++) {
    if (well ? k && p->looked_at > MOST_IN_ONE : p->looked_at > MOST_IN_TRIALS) {
      if (well)
        ended_early("memory", "a smaller arena", MOST_IN_ONE, "places looked at");
      else
        ended_early("schedule", "room in the arena", MOST_IN_TRIALS, "places looked at");
      break;
    }
    bool plain = k < ORDERS, begins = plain || (k - ORDERS) % HURRIES == 0;
    int order = plain ? k : (k - ORDERS) / HURRIES % ORDERS;
    int64_t peak = best;
    if (plain && orders[order] == compare_by_peak) {
      int64_t most;
      int at = find_peak(p, &most);
      for (int i = 0; i < p->n; i++)
        p->item[i].at_peak = p->item[i].first <= at && at <= p->item[i].last;
    }
    if (begins) {
      sort(p, orders[order]);
      if (k >= HURRIED) {
        /* Moves each value forth or back by up to a third of its position; the same in every run of
         * tpgen.
         */
        for (int i = 0; i < p->n; i++) {
          p->random = p->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
          p->order[i]->key = i * (int64_t)(1000 + (p->random >> 33) % 1000);
        }
        sort(p, compare_by_key);
      }
      peak = place_in_order(p);
    }
    if (!plain) {
      hurry(p, bound);
      peak = place_in_order(p);
    }
    if (peak >= best) continue;
    best = peak;
    for (int i = 0; i < p->n; i++) p->plan->of[p->item[i].value].offset = p->item[i].offset;
  }
  return best;
}

static uint64_t hash_of_items(const struct placing *p, int64_t bound)
{
  uint64_t h = hash_bytes(HASH_START, &bound, sizeof bound);
  for (int i = 0; i < p->n; i++) {
    const struct item *of = &p->item[i];
    const int64_t facts[] = {of->value, of->first, of->last, of->size};
    h = hash_bytes(h, facts, sizeof facts);
  }
  return h;
}

/* Schedules ask about the same values again and again. An answer counts as the work that it took,
   so that the bound is reached where it was without answers. */
int64_t place_values(struct placing *p, int64_t bound, bool well)
{
  if (well) return try_orders(p, bound, true);
  const uint64_t hash = hash_of_items(p, bound);
  struct placed *known = &p->placed[hash % PLACED];
  if (known->hash == hash && p->looked_at + known->looked_at <= MOST_IN_TRIALS) {
    p->looked_at += known->looked_at;
    return known->end;
  }
  const int64_t before = p->looked_at, end = try_orders(p, bound, false);
  if (p->looked_at <= MOST_IN_TRIALS)
    *known = (struct placed){.hash = hash, .looked_at = p->looked_at - before, .end = end};
  return end;
}
