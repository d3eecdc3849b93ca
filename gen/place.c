/* place.c: where in the arena values lie, of which memory.c says how large they are and from when
   to when they live.

   Each is placed as low as it fits beside those that live with it: from the largest to the
   smallest, the longest living or the first made, or what lives where most does before all else;
   what then lies beyond the bound, the largest sum of what lives at once, is placed earlier in the
   next try, and where that does not help orders near to these are tried. */
#include "tpgen.h"

#include <stdlib.h>

/* By value: how large it is, where it lies, where it is to stand in the order, and whether it lives
   where most does. */
static int64_t *size, *offset, *key;
static bool *at_peak;

static void make_room(void)
{
  static const struct graph *of;
  static int room;
  if (of == graph && room > graph->nvalue) return;
  of = graph;
  room = graph->nvalue + graph->nvalue / 2 + 1;
  size = alloc((size_t)room * sizeof *size);
  offset = alloc((size_t)room * sizeof *offset);
  key = alloc((size_t)room * sizeof *key);
  at_peak = alloc((size_t)room * sizeof *at_peak);
}

/* Asked once for all of a placing. */
static void find_sizes(const int *value, int n)
{
  make_room();
  for (int i = 0; i < n; i++) size[value[i]] = arena_size(value[i]);
}

static bool meet(const struct value *a, const struct value *b)
{
  return a->first <= b->last && b->first <= a->last;
}

static int by_size(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  if (size[x] != size[y]) return size[x] > size[y] ? -1 : 1;
  return x < y ? -1 : 1;
}

static int by_length(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  const struct value *v = &graph->value[x], *w = &graph->value[y];
  if (v->last - v->first != w->last - w->first)
    return v->last - v->first > w->last - w->first ? -1 : 1;
  return by_size(a, b);
}

static int by_start(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  if (graph->value[x].first != graph->value[y].first)
    return graph->value[x].first < graph->value[y].first ? -1 : 1;
  return by_size(a, b);
}

/* What lives where most does is one pile, the longest living below; the rest finds its place in
   what that leaves free before and after. */
static int by_peak(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  if (at_peak[x] != at_peak[y]) return at_peak[x] ? -1 : 1;
  return at_peak[x] ? by_length(a, b) : by_size(a, b);
}

static int by_peak_and_length(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  if (at_peak[x] != at_peak[y]) return at_peak[x] ? -1 : 1;
  return by_length(a, b);
}

/* Places each value of the order as low as it fits beside those before it that live with it;
   `lying` has room for all. Gives where the last one ends. */
static int64_t place_in_order(const int *value, int n, int *lying)
{
  int64_t peak = 0;
  for (int k = 0; k < n; k++) {
    const struct value *v = &graph->value[value[k]];
    int64_t at = 0, bytes = size[value[k]];
    for (int i = 0; i < k && offset[lying[i]] < at + bytes; i++) {
      int64_t end = offset[lying[i]] + size[lying[i]];
      if (end > at && meet(v, &graph->value[lying[i]])) at = end;
    }
    int i = k; /* they stand in the order in which they lie */
    for (; i > 0 && offset[lying[i - 1]] > at; i--) lying[i] = lying[i - 1];
    lying[i] = value[k];
    offset[value[k]] = at;
    if (at + bytes > peak) peak = at + bytes;
  }
  return peak;
}

/* Moves what lies beyond the bound to the front of the order, so that it is placed first; `late`
   has room for all. */
static void hurry(int *value, int n, int *late, int64_t bound)
{
  int nlate = 0, front = n;
  for (int k = n; k-- > 0;) {
    if (offset[value[k]] + size[value[k]] > bound)
      late[nlate++] = value[k];
    else
      value[--front] = value[k];
  }
  for (int k = 0; k < nlate; k++) value[nlate - 1 - k] = late[k];
}

/* The bytes that live when the value begins to. */
static int64_t live_with(int first, const int *value, int n)
{
  int64_t sum = 0;
  for (int k = 0; k < n; k++) {
    const struct value *v = &graph->value[value[k]];
    if (v->first <= graph->value[first].first && graph->value[first].first <= v->last)
      sum += size[value[k]];
  }
  return sum;
}

/* When most lives; `most`: how much, in bytes. */
static int find_peak(const int *value, int n, int64_t *most)
{
  int first = 0;
  *most = 0;
  for (int i = 0; i < n; i++) {
    int64_t sum = live_with(value[i], value, n);
    if (sum > *most) *most = sum, first = graph->value[value[i]].first;
  }
  return first;
}

int64_t most_live(const int *value, int n)
{
  int64_t most;
  find_sizes(value, n);
  find_peak(value, n, &most);
  return most;
}

static void mark_peak(const int *value, int n)
{
  int64_t most;
  int at = find_peak(value, n, &most);
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[value[i]];
    at_peak[value[i]] = v->first <= at && at <= v->last;
  }
}

static int by_key(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  if (key[x] != key[y]) return key[x] < key[y] ? -1 : 1;
  return x < y ? -1 : 1;
}

/* Moves each value forth or back by up to a third of its place; the same in every run of tpgen. */
static void shuffle(int *value, int n)
{
  static uint64_t random = HASH_START;
  for (int k = 0; k < n; k++) {
    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    key[value[k]] = k * (int64_t)(1000 + (random >> 33) % 1000);
  }
  qsort(value, (size_t)n, sizeof *value, by_key);
}

/* Tries orders until one comes to the bound: as they are, then each with what does not fit below
   the bound placed earlier, and, if it is to be done well, orders near to them: the fewer the more
   there is to place. Leaves the best places, and gives where they end. */
int64_t place_values(int *value, int n, int64_t bound, bool well)
{
  static int (*const orders[])(const void *, const void *) = {by_size, by_length, by_start, by_peak,
                                                              by_peak_and_length};
  enum { ORDERS = sizeof orders / sizeof *orders, HURRIES = 8, HURRIED = ORDERS * (1 + HURRIES) };
  enum { STEPS = 4000000, FEW = 12 };
  int *lying = alloc((size_t)(n + 1) * sizeof *lying);
  find_sizes(value, n);
  int64_t best = INT64_MAX, many = STEPS / ((int64_t)n * n + 1),
          tries = well ? HURRIED + many : many;
  if (tries < FEW) tries = FEW;
  if (!well && tries > HURRIED) tries = HURRIED;
  for (int k = 0; k < tries && best > bound; k++) {
    bool plain = k < ORDERS, begins = plain || (k - ORDERS) % HURRIES == 0;
    int order = plain ? k : (k - ORDERS) / HURRIES % ORDERS;
    int64_t peak = best;
    if (plain && orders[order] == by_peak) mark_peak(value, n);
    if (begins) {
      qsort(value, (size_t)n, sizeof *value, orders[order]);
      if (k >= HURRIED) shuffle(value, n);
      peak = place_in_order(value, n, lying);
    }
    if (!plain) {
      hurry(value, n, lying, bound);
      peak = place_in_order(value, n, lying);
    }
    if (peak >= best) continue;
    best = peak;
    for (int i = 0; i < n; i++) graph->value[value[i]].offset = offset[value[i]];
  }
  return best;
}
