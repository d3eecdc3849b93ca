/* place.c: where in the arena values lie, of which memory.c says how large they are and from when
   to when they live.

   Each is placed as low as it fits beside those that live with it: from the largest to the
   smallest, the longest living or the first made, or what lives where most does before all else;
   what then lies beyond the bound, the largest sum of what lives at once, is placed earlier in the
   next try, and where that does not help orders near to these are tried. The more there is to place
   the fewer are tried: what is done for it is counted, and bounded. */
#include "tpgen.h"

#include <stdlib.h>
#include <string.h>

/* By value: how large it is, where it lies, where it is to stand in the order, and whether it lives
   where most does. */
static int64_t *size, *offset, *key;
static bool *at_peak;

/* What is placed already, in the order in which it lies: all that is asked of it, side by side, as
   each value that is placed goes through them. */
struct lying {
  int64_t at, end;
  int first, last;
};
static struct lying *lying;
static int *late; /* see hurry */

/* How many lying values have been looked at. What is looked for takes the longer the more there is
   to place: it ends after so many, for all placings that are tried out together, and for one that
   is done well. */
static int64_t looked_at;
enum { MOST_IN_TRIALS = 200000000, MOST_IN_ONE = 150000000 };

static void make_room(void)
{
  static const struct graph *of;
  static int room;
  if (of == graph && room > graph->nvalue) return;
  if (of != graph) looked_at = 0;
  of = graph;
  room = graph->nvalue + graph->nvalue / 2 + 1;
  size = alloc((size_t)room * sizeof *size);
  offset = alloc((size_t)room * sizeof *offset);
  key = alloc((size_t)room * sizeof *key);
  at_peak = alloc((size_t)room * sizeof *at_peak);
  lying = alloc((size_t)room * sizeof *lying);
  late = alloc((size_t)room * sizeof *late);
}

/* Asked once for all of a placing. */
static void find_sizes(const int *value, int n)
{
  make_room();
  for (int i = 0; i < n; i++) size[value[i]] = arena_size(value[i]);
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

/* The lowest place at which so many bytes are free as long as the value lives. */
static int64_t lowest_place(int n, const struct value *v, int64_t bytes)
{
  int64_t at = 0;
  const struct lying *l = lying;
  for (; l < lying + n && l->at < at + bytes; l++)
    if (l->end > at && v->first <= l->last && l->first <= v->last) at = l->end;
  looked_at += l - lying;
  return at;
}

/* How many of them begin no later. */
static int count_below(int n, int64_t at)
{
  int low = 0;
  while (low < n) {
    int middle = low + (n - low) / 2;
    if (lying[middle].at > at)
      n = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Places each value of the order as low as it fits beside those before it that live with it. Gives
   where the last one ends. */
static int64_t place_in_order(const int *value, int n)
{
  int64_t peak = 0;
  for (int k = 0; k < n; k++) {
    const struct value *v = &graph->value[value[k]];
    int64_t bytes = size[value[k]], at = lowest_place(k, v, bytes);
    int below = count_below(k, at);
    memmove(lying + below + 1, lying + below, (size_t)(k - below) * sizeof *lying);
    lying[below] = (struct lying){at, at + bytes, v->first, v->last};
    offset[value[k]] = at;
    if (at + bytes > peak) peak = at + bytes;
  }
  return peak;
}

/* Moves what lies beyond the bound to the front of the order, so that it is placed first. */
static void hurry(int *value, int n, int64_t bound)
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

/* By time, how many bytes more live then than before it: for all times until the last of these
   values. */
static int64_t *changes(const int *value, int n, int *end)
{
  static const struct graph *of;
  static int room;
  static int64_t *change;
  *end = 0;
  for (int i = 0; i < n; i++)
    if (graph->value[value[i]].last >= *end) *end = graph->value[value[i]].last + 1;
  if (of != graph) room = 0;
  of = graph;
  while (room <= *end) change = grow(change, 0, &room, sizeof *change);
  memset(change, 0, (size_t)(*end + 1) * sizeof *change);
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[value[i]];
    if (v->first > v->last) continue;
    change[v->first] += size[value[i]];
    change[v->last + 1] -= size[value[i]];
  }
  return change;
}

/* When most lives, the first time; `most`: how much, in bytes. */
static int find_peak(const int *value, int n, int64_t *most)
{
  int first = 0, end;
  const int64_t *change = changes(value, n, &end);
  int64_t now = 0;
  *most = 0;
  for (int time = 0; time < end; time++) {
    now += change[time];
    if (now > *most) *most = now, first = time;
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
   there is to place. If not, what lies a little beyond the bound will do. Leaves the best places,
   and gives where they end: INT64_MAX where it was not to look any more. */
int64_t place_values(int *value, int n, int64_t bound, bool well)
{
  static int (*const orders[])(const void *, const void *) = {by_size, by_length, by_start, by_peak,
                                                              by_peak_and_length};
  enum { ORDERS = sizeof orders / sizeof *orders, HURRIES = 8, HURRIED = ORDERS * (1 + HURRIES) };
  enum { STEPS = 4000000, FEW = 12 };
  find_sizes(value, n);
  if (well) looked_at = 0;
  int64_t best = INT64_MAX, enough = well ? bound : bound + bound / 256,
          many = STEPS / ((int64_t)n * n + 1), tries = well ? HURRIED + many : many;
  if (tries < FEW) tries = FEW;
  if (!well && tries > HURRIED) tries = HURRIED;
  for (int k = 0; k < tries && best > enough; k++) {
    if (well ? k && looked_at > MOST_IN_ONE : looked_at > MOST_IN_TRIALS) break;
    bool plain = k < ORDERS, begins = plain || (k - ORDERS) % HURRIES == 0;
    int order = plain ? k : (k - ORDERS) / HURRIES % ORDERS;
    int64_t peak = best;
    if (plain && orders[order] == by_peak) mark_peak(value, n);
    if (begins) {
      qsort(value, (size_t)n, sizeof *value, orders[order]);
      if (k >= HURRIED) shuffle(value, n);
      peak = place_in_order(value, n);
    }
    if (!plain) {
      hurry(value, n, bound);
      peak = place_in_order(value, n);
    }
    if (peak >= best) continue;
    best = peak;
    for (int i = 0; i < n; i++) graph->value[value[i]].offset = offset[value[i]];
  }
  return best;
}
