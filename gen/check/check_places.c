/* check_places.c: a part of check.c: the bytes of a value while the program is run.

   Takes   the program with storage for every value.
   Gives   the bytes of each value, of each module and of each piece. It uses only the offsets that
           the pass memory decided, not its live ranges.

   A loop with many modules is run with fewer: as many as it takes until nothing new occurs, such
   that the storage of each value of the last ones is as in the full loop.

   Facts about bytes are kept by interval: those of the arena, and then those of storage outside of
   it, one after the other. The parts of a concat buffer count as if each were contiguous, one after
   the other. A chunked value counts as consecutive pieces, even where its pieces are stored
   otherwise: then any other value in these bytes counts as foreign to all of them. */
#include "check/check.h"

#include <string.h>

/* ------------------------------------------------------------------------------------ intervals */

static void open_space(struct space *in, int width)
{
  *in = (struct space){.width = width};
  in->from = grow(NULL, 0, &(int){0}, sizeof *in->from);
  in->row = grow(NULL, 0, &in->room, (size_t)width * sizeof *in->row);
  in->n = 1;
}

void open_bytes(struct bytes *b, int width)
{
  open_space(&b->arena, width);
  open_space(&b->own, width);
}

/* The last interval that begins at or before this byte. */
static int interval_at(const struct space *in, int64_t byte)
{
  int low = 0, high = in->n;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (in->from[middle] <= byte)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Moves the intervals from `first` on to `to`. */
static void move_segments(struct space *in, int first, int to)
{
  size_t n = (size_t)(in->n - first), row = (size_t)in->width * sizeof *in->row;
  memmove(in->from + to, in->from + first, n * sizeof *in->from);
  memmove(in->row + to * in->width, in->row + first * in->width, n * row);
  in->n += to - first;
}

/* The interval that begins at this byte; splits one if none does. */
static int begin_at(struct space *in, int64_t byte)
{
  int k = interval_at(in, byte);
  if (in->from[k] == byte) return k;
  if (in->n == in->room) {
    int room = in->room;
    in->from = grow(in->from, in->n, &room, sizeof *in->from);
    in->row = grow(in->row, in->n, &in->room, (size_t)in->width * sizeof *in->row);
  }
  move_segments(in, k, k + 1);
  in->from[k + 1] = byte;
  return k + 1;
}

struct intervals intervals_of(struct bytes *b, struct place p, bool cut)
{
  struct space *in = p.own ? &b->own : &b->arena;
  if (p.from == p.to) return (struct intervals){.in = in};
  int first = cut ? begin_at(in, p.from) : interval_at(in, p.from), end = first;
  if (cut) {
    end = begin_at(in, p.to);
  } else {
    while (end < in->n && in->from[end] < p.to) end++;
  }
  return (struct intervals){.in = in, .first = first, .n = end - first};
}

int *row_of(struct intervals s, int k)
{
  return s.in->row + (s.first + k) * s.in->width;
}

void make_one(struct intervals s)
{
  if (s.n > 1) move_segments(s.in, s.first + s.n, s.first + 1);
}

/* ----------------------------------------------------------- fewer modules than the program has */

static int *known_at; /* by value: 1 + its index among the known ones */
static struct {
  int n, room;
  struct known *at;
} known;

struct known *known_of(int value)
{
  if (known_at[value]) return &known.at[known_at[value] - 1];
  GROW(known.at, known.n, known.room);
  known.at[known.n] = (struct known){.own = NONE, .grad = NONE, .sum = NONE, .left = NONE};
  known_at[value] = ++known.n;
  return &known.at[known.n - 1];
}

static int modules_of(int stack)
{
  return known_of(stack)->modules;
}

bool lies_within(struct place inner, struct place outer)
{
  return inner.own == outer.own && inner.from >= outer.from && inner.to <= outer.to;
}

/* The offsets of a list repeat after this many modules, except for values that each module keeps;
   and the largest number of iterations by which one reaches into others. */
static int period, ahead;

/* The number of modules that are run of a list with `count`. */
static int check_places_run_of(int count)
{
  int few = 2 * ahead + 2;
  few += (count - few) % period;
  return few < count ? few : count;
}

int modules_run(int stack)
{
  return check_places_run_of(modules_of(stack));
}

/* The index of a module of the list among those that are run; NONE: it is left out. */
static int index_in_run(int stack, int index)
{
  int all = modules_of(stack), few = check_places_run_of(all), last = few - few / 2;
  if (index < few / 2) return index;
  return index < all - last ? NONE : index - (all - few);
}

static void find_period(void)
{
  enum { LONGEST = 60 }; /* a multiple of 1, 2, ... MOST_PREFETCHED + 1 */
  period = ahead = 1;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct in_loop *loop = in_loop(i);
    struct allocation a = allocation_of(i);
    if (a.depth == 1 || a.storage != i) continue;
    if (loop->stack == NONE || a.depth == modules_of(loop->stack)) continue;
    int x = period, y = a.depth;
    while (y) {
      int rest = x % y;
      x = y;
      y = rest;
    }
    period = period / x * a.depth;
    if (period > LONGEST) period = INT16_MAX;
  }
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (scheduled(op)->prefetch_distance > ahead) ahead = scheduled(op)->prefetch_distance;
    }
}

static bool has_own_place(int value)
{
  const struct value *v = &graph->value[value];
  return v->role != ACTIVATION || v->is_output || (v->op == NONE && !in_loop(value)->step);
}

/* --------------------------------------------------------------------- values and their storage */

struct one one_of(int value, int module)
{
  const struct in_loop *loop = in_loop(value);
  if (loop->stack == NONE) return (struct one){value, 0};
  if (loop->step) {
    int index = module + loop->step;
    bool in_list = index >= 0 && index < check_places_run_of(modules_of(loop->stack));
    return in_list ? (struct one){loop->stack, index} : one_of(loop->initial, NONE);
  }
  bool moves = loop->stack == value && module != NONE;
  return (struct one){loop->stack, moves ? module : index_in_run(loop->stack, loop->index)};
}

static struct {
  int n, room;
  struct place *at;
} own_places;

/* All gradients of a parameter share one storage, whichever operation leaves them; so do its sums
   over batches, and losses. */
static struct place own_place(int value)
{
  const struct value *v = &graph->value[value];
  bool of_parameter = v->role == GRADIENT || v->role == SUMS;
  struct known *k = known_of(of_parameter ? v->of : v->role == LOSS ? graph->loss : value);
  int *place = v->role == GRADIENT ? &k->grad : v->role == SUMS ? &k->sum : &k->own;
  if (*place == NONE) {
    /* Storage after all others. It is never empty: a value that exists before a step is noted
     * there. */
    int64_t bytes = largest_bytes(value);
    int64_t from = own_places.n ? own_places.at[own_places.n - 1].to : 0;
    struct place p = {.own = true, .from = from, .bytes = bytes ? bytes : 1};
    p.to = from + p.bytes;
    GROW(own_places.at, own_places.n, own_places.room);
    own_places.at[own_places.n] = p;
    *place = own_places.n++;
  }
  return own_places.at[*place];
}

/* For a value with storage of its own, or whose bytes are those of such a value. */
static struct place outside(int value, int module)
{
  int where = has_own_place(value) ? value : storage_of(value), index = NONE;
  const struct in_loop *loop = in_loop(where);
  if (loop->stack != NONE)
    index =
        loop->stack == where && module != NONE ? module : index_in_run(loop->stack, loop->index);
  return own_place(index == NONE ? where : known_of(loop->stack)->members[index]);
}

/* A slice of a value that a scan goes over, or puts together. The last one before the steps that
   are left out also has their bytes. */
static struct place check_places_slice_of(int value, int module)
{
  struct allocation a = allocation_of(value);
  bool outside = has_own_place(a.storage);
  struct place p = outside ? own_place(a.storage) : (struct place){.from = 0};
  p.from += a.offset;
  p.bytes = largest_bytes(value);
  p.to = p.from + p.bytes;
  if (module == NONE || in_loop(value)->stack != value) return p;
  int all = modules_of(value), few = check_places_run_of(all), left_out = all - few;
  int64_t bytes = (module < few / 2 ? module : module + left_out) * a.slice;
  p.from += bytes;
  p.to += bytes + (module == few / 2 - 1 ? left_out * a.slice : 0);
  return p;
}

/* The last module before those that are left out also has their bytes of the values that each
   module keeps, except for parts of a concat buffer, which alternate from module to module. */
static struct place inside(int value, int module)
{
  struct allocation a = allocation_of(value);
  struct place p = {.from = a.offset + bytes_before(value), .bytes = largest_bytes(value)};
  p.to = p.from + p.bytes;
  if (module == NONE || in_loop(value)->stack != value || a.depth == 1) return p;
  int all = modules_of(value), few = check_places_run_of(all), left_out = all - few;
  int64_t stride = arena_stride(a.storage);
  int64_t bytes = (module < few / 2 ? module : module + left_out) % a.depth * stride;
  bool widens = module == few / 2 - 1 && a.depth == all && concat_slice(value)->buffer == NONE;
  p.from += bytes;
  p.to += bytes + (widens ? left_out * stride : 0);
  return p;
}

struct place place_of(int value, int module)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (loop->step) {
    struct one one = one_of(value, module);
    bool in_list = module + loop->step == one.index && one.value == loop->stack;
    return in_list ? place_of(one.value, one.index) : place_of(loop->initial, NONE);
  }
  if (allocation_of(value).slice && !has_own_place(value))
    return check_places_slice_of(value, module);
  if (has_own_place(value) || has_own_place(storage_of(value))) return outside(value, module);
  struct place p = inside(value, module);
  require(p.from >= 0 && p.to <= arena_bytes(), v->op, "a value is outside the arena");
  return p;
}

struct place piece_of(struct place p, int k, int n)
{
  int64_t end = k + 1 < n ? p.from + p.bytes * (k + 1) / n : p.to;
  return (struct place){.own = p.own, .from = p.from + p.bytes * k / n, .to = end};
}

struct pieces pieces_of(const struct op *op, int value, struct one one)
{
  int all = graph->value[one.value].pieces, touched = op && all ? piece_touched(op, value) : NONE;
  if (!all) return (struct pieces){0, 1, 1};
  if (touched == NONE) return (struct pieces){0, all, all};
  return (struct pieces){touched, touched + 1, all};
}

/* -------------------------------------------------------------------------------------- the run */

static int *counts;       /* by function: the original counts */
static struct list sizes; /* of micro-batches */

const struct list *sizes_in_run(void)
{
  return &sizes;
}

int begin_run(void)
{
  int most = 1;
  memset(&known, 0, sizeof known);
  memset(&own_places, 0, sizeof own_places);
  known_at = alloc((size_t)(graph->nvalue + 1) * sizeof *known_at);
  /* As many as the loop that makes it has iterations: the graph does not keep most of their values
     (remove_unused.c). It keeps those of a stack that no loop makes. */
  for (int i = 0; i < graph->nvalue; i++) {
    const struct in_loop *loop = in_loop(i);
    if (loop->stack == NONE || loop->step) continue;
    struct known *stack = known_of(loop->stack);
    int maker = allocation_of(loop->stack).made_by;
    if (maker != NONE && stack->modules < graph->function[maker].count)
      stack->modules = graph->function[maker].count;
    if (stack->modules <= loop->index) stack->modules = loop->index + 1;
  }
  find_period();
  for (int i = 0; i < graph->nvalue; i++) {
    const struct in_loop *loop = in_loop(i);
    if (loop->stack == NONE || loop->step || !has_own_place(i)) continue;
    struct known *stack = known_of(loop->stack);
    int runs = check_places_run_of(stack->modules), index = index_in_run(loop->stack, loop->index);
    if (!stack->members) stack->members = alloc((size_t)runs * sizeof *stack->members);
    if (index != NONE) stack->members[index] = i;
  }
  sizes = microbatch_sizes();
  counts = alloc((size_t)(graph->nfunction + 1) * sizeof *counts);
  for (int i = 0; i < graph->nfunction; i++) {
    counts[i] = graph->function[i].count;
    if (counts[i] > 1) graph->function[i].count = check_places_run_of(counts[i]);
    if (graph->function[i].count > most) most = graph->function[i].count;
  }
  /* The loop of a stack may no longer exist: buckets make one collective of all iterations. */
  for (int i = 0; i < known.n; i++)
    if (check_places_run_of(known.at[i].modules) > most)
      most = check_places_run_of(known.at[i].modules);
  return most;
}

void end_run(void)
{
  for (int i = 0; i < graph->nfunction; i++) graph->function[i].count = counts[i];
}
