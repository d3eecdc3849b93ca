/* check_memory.c: a part of check.c: every value is found where it is read.

   Takes   the program, every value in its place.
   Holds   the step is run as a rank will run it, but for the arithmetic: each operation leaves a
           number of its own in the bytes that it writes, and has to find in those that it reads
           the number of the very value, of this module, of this batch, or of what stays over
           batches. What a collective that is pending works on is marked as well: nothing else
           writes what it reads or touches what it writes until it is awaited, wherever on the
           device it runs. What a kernel writes over what it reads it may.

   Of what the pass memory has decided only the places are used, nothing of from when to when it
   says that values live. Where a loop's modules are many the same program is run with fewer: as
   many as it takes until nothing new comes, such that each value of the last ones lies as it does.

   The bytes of the arena are stretches that are written alike; a parameter, a gradient and whatever
   else has a place of its own has stretches outside of it. A value that is made in pieces is as
   many one after the other, though its pieces may lie otherwise: what else touches it is alien to
   all of them. */
#include "check.h"

#include <string.h>

/* ------------------------------------------------------------------------------------ stretches */

struct stretch {
  int64_t from; /* in the arena; it ends where the next one begins */
  int holds;    /* the number that was left here; 0: nothing */
  int readers;  /* pending collectives that read it */
  int writer;   /* the pending collective that writes it, by its number; 0: none */
};
struct space {
  int n, room;
  struct stretch *at;
};
static struct space arena, own; /* own: of what has a place of its own, one behind the other */

/* Which bytes, of the places of their own or of the arena. There the first `bytes` are the value's,
   and those behind them of modules that are left out. */
struct place {
  bool own;
  int64_t from, to, bytes;
};
struct stretches {
  int n;
  struct stretch *at;
  struct space *in;
};

/* The last stretch that begins at or before this byte. */
static int stretch_at(const struct space *in, int64_t byte)
{
  int low = 0, high = in->n;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (in->at[middle].from <= byte)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* The stretch that begins at this byte: one is cut in two where there is none. */
static int begin_at(struct space *in, int64_t byte)
{
  int k = stretch_at(in, byte);
  if (in->at[k].from == byte) return k;
  GROW(in->at, in->n, in->room);
  memmove(in->at + k + 1, in->at + k, (size_t)(in->n++ - k) * sizeof *in->at);
  in->at[k + 1].from = byte;
  return k + 1;
}

/* The stretches of a place: cut at its ends, or, for a look, with what is around it. */
static struct stretches stretches_of(struct place p, bool cut)
{
  struct space *in = p.own ? &own : &arena;
  if (p.from == p.to) return (struct stretches){0, NULL, in};
  int first = cut ? begin_at(in, p.from) : stretch_at(in, p.from), end = first;
  if (cut) {
    end = begin_at(in, p.to);
  } else {
    while (end < in->n && in->at[end].from < p.to) end++;
  }
  return (struct stretches){end - first, in->at + first, in};
}

/* What is written alike is one stretch. */
static void leave(struct stretches s, int number)
{
  if (!s.n) return;
  *s.at = (struct stretch){.from = s.at->from, .holds = number};
  if (s.n == 1) return;
  struct stretch *rest = s.at + s.n;
  memmove(s.at + 1, rest, (size_t)(s.in->at + s.in->n - rest) * sizeof *rest);
  s.in->n -= s.n - 1;
}

/* ----------------------------------------------------------------- fewer modules than there are */

/* Of a value that is looked at, as the parts below know it. There are many of which none needs to
   be known. */
struct known {
  int modules;        /* of a family's first: how many there are of it */
  int *members;       /* if these have places of their own: they, by module of those that are run */
  int own, grad, sum; /* which places are its own, its gradient's, that of the sum for it; NONE */
  int left;           /* where in `left` the numbers begin that were left for it; NONE */
};
static int *known_at; /* by value: where it is known, and 1 */
static struct {
  int n, room;
  struct known *at;
} known;

static struct known *known_of(int value)
{
  if (known_at[value]) return &known.at[known_at[value] - 1];
  GROW(known.at, known.n, known.room);
  known.at[known.n] = (struct known){.own = NONE, .grad = NONE, .sum = NONE, .left = NONE};
  known_at[value] = ++known.n;
  return &known.at[known.n - 1];
}

static int modules_of(int family)
{
  return known_of(family)->modules;
}

/* After so many modules of a list all lie as they did, but for what each keeps; and by how many
   rounds one reaches into others, at most. */
static int period, ahead;

/* How many modules are run of a list of so many. */
static int run_of(int count)
{
  int few = 2 * ahead + 2;
  few += (count - few) % period;
  return few < count ? few : count;
}

/* The place that a module of the list has among those that are run; NONE: it is left out. */
static int index_in_run(int family, int index)
{
  int all = modules_of(family), few = run_of(all), last = few - few / 2;
  if (index < few / 2) return index;
  return index < all - last ? NONE : index - (all - few);
}

static int least_common_multiple(int a, int b)
{
  int x = a, y = b;
  while (y) {
    int rest = x % y;
    x = y;
    y = rest;
  }
  return a / x * b;
}

static void find_period(void)
{
  enum { LONGEST = 60 }; /* of 1, 2, ... MOST_PREFETCHED + 1 */
  period = ahead = 1;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->depth == 1 || v->storage != i) continue;
    if (v->family == NONE || v->depth == modules_of(v->family)) continue;
    period = least_common_multiple(period, v->depth);
    if (period > LONGEST) period = INT16_MAX;
  }
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (op->ahead > ahead) ahead = op->ahead;
    }
}

static bool has_own_place(int value)
{
  const struct value *v = &graph->value[value];
  return v->role != ACTIVATION || v->is_output || (v->op == NONE && !v->step);
}

/* As many as its list has: of what most of them make the graph keeps nothing (drop.c). */
static void count_modules(void)
{
  int *count = alloc((size_t)(graph->nmodule + 1) * sizeof *count); /* by module: in it */
  for (int m = 0; m < graph->nmodule; m++)
    if (graph->module[m].parent != NONE) count[graph->module[m].parent]++;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->family != NONE && !v->step) known_of(v->family)->modules = count[v->list];
  }
}

static void find_members(void)
{
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->family == NONE || v->step || !has_own_place(i)) continue;
    struct known *family = known_of(v->family);
    int runs = run_of(family->modules), index = index_in_run(v->family, v->index);
    if (!family->members) family->members = alloc((size_t)runs * sizeof *family->members);
    if (index != NONE) family->members[index] = i;
  }
}

/* -------------------------------------------------------------------- values and where they lie */

/* A value, and its place among those of its family. */
struct one {
  int value, index; /* index NONE: it is a module's that is left out */
};

/* What is meant where `module` is at work, NONE: outside of loops. */
static struct one one_of(int value, int module)
{
  const struct value *v = &graph->value[value];
  if (v->family == NONE) return (struct one){value, 0};
  if (v->step) {
    int index = module + v->step;
    bool in_list = index >= 0 && index < run_of(modules_of(v->family));
    return in_list ? (struct one){v->family, index} : one_of(v->initial, NONE);
  }
  bool moves = v->family == value && module != NONE;
  return (struct one){v->family, moves ? module : index_in_run(v->family, v->index)};
}

static struct {
  int n, room;
  struct place *at;
} own_places;

/* Behind the others, and never empty: what lies there before a step is noted there. */
static int add_own_place(int64_t bytes)
{
  int64_t from = own_places.n ? own_places.at[own_places.n - 1].to : 0;
  struct place p = {.own = true, .from = from, .bytes = bytes ? bytes : 1};
  p.to = from + p.bytes;
  begin_at(&own, p.from);
  begin_at(&own, p.to);
  GROW(own_places.at, own_places.n, own_places.room);
  own_places.at[own_places.n] = p;
  return own_places.n++;
}

/* A parameter's gradients lie in one place, whichever operation leaves them; so do what batches add
   up for it, and losses. */
static struct place own_place(int value)
{
  const struct value *v = &graph->value[value];
  bool of_parameter = v->role == GRADIENT || v->role == SUMS;
  struct known *k = known_of(of_parameter ? v->of : v->role == LOSS ? graph->loss : value);
  int *place = v->role == GRADIENT ? &k->grad : v->role == SUMS ? &k->sum : &k->own;
  if (*place == NONE) *place = add_own_place(largest_bytes(value));
  return own_places.at[*place];
}

/* Of a value whose bytes are another's that has a place of its own, or who has one. */
static struct place outside(int value, int module)
{
  int where = has_own_place(value) ? value : graph->value[value].storage, index = NONE;
  const struct value *w = &graph->value[where];
  if (w->family != NONE)
    index = w->family == where && module != NONE ? module : index_in_run(w->family, w->index);
  return own_place(index == NONE ? where : known_of(w->family)->members[index]);
}

/* Of what each module keeps the last one before those that are left out has these' bytes too. */
static struct place inside(int value, int module)
{
  const struct value *v = &graph->value[value];
  struct place p = {.from = v->offset, .bytes = largest_bytes(value)};
  p.to = p.from + p.bytes;
  if (module == NONE || v->family != value || v->depth == 1) return p;
  int all = modules_of(value), few = run_of(all), left_out = all - few;
  int64_t stride = arena_stride(v->storage);
  int64_t bytes = (module < few / 2 ? module : module + left_out) % v->depth * stride;
  bool widens = module == few / 2 - 1 && v->depth == all;
  p.from += bytes;
  p.to += bytes + (widens ? left_out * stride : 0);
  return p;
}

/* Where the value lies, which is not of a module that is left out. */
static struct place place_of(int value, int module)
{
  const struct value *v = &graph->value[value];
  if (v->step) {
    struct one one = one_of(value, module);
    bool in_list = module + v->step == one.index && one.value == v->family;
    return in_list ? place_of(one.value, one.index) : place_of(v->initial, NONE);
  }
  if (has_own_place(value) || has_own_place(v->storage)) return outside(value, module);
  struct place p = inside(value, module);
  hold(p.from >= 0 && p.to <= graph->arena_bytes, v->op, "a value lies outside the arena");
  return p;
}

/* The piece of a place that is the k-th of n. */
static struct place piece_of(struct place p, int k, int n)
{
  int64_t end = k + 1 < n ? p.from + p.bytes * (k + 1) / n : p.to;
  return (struct place){.own = p.own, .from = p.from + p.bytes * k / n, .to = end};
}

/* --------------------------------------------------------------------------- what is left there */

enum { LEFT_OUT = -1 }; /* what a module would have left that is not run */

static struct list left; /* by value, module and piece: the number left for it last, or 0 */
static struct {
  int n, room;
  struct mark {
    int of;                  /* the value that it was left for */
    const struct op *reader; /* that read it last */
  } * at;
} mark; /* by number */
static int most_rounds;

static int *number_for(struct one one, int piece)
{
  const struct value *v = &graph->value[one.value];
  int pieces = v->pieces ? v->pieces : 1;
  struct known *k = known_of(one.value);
  if (k->left == NONE) {
    k->left = left.n;
    for (int n = pieces * (v->family == NONE ? 1 : most_rounds); n--;) add(&left, 0);
  }
  return &left.at[k->left + one.index * pieces + piece];
}

static int new_number(int value)
{
  GROW(mark.at, mark.n, mark.room);
  mark.at[mark.n] = (struct mark){.of = value};
  return mark.n++;
}

/* Which pieces of a value an operation touches: from the first up to the last. */
struct pieces {
  int first, end, all;
};

static struct pieces pieces_of(const struct op *op, int value)
{
  int all = graph->value[value].pieces, one = op && all ? piece_touched(op, value) : NONE;
  if (!all) return (struct pieces){0, 1, 1};
  return one == NONE ? (struct pieces){0, all, all} : (struct pieces){one, one + 1, all};
}

/* -------------------------------------------------------------------------- reading and writing */

/* The operation at work. */
static struct {
  const struct op *op;
  int id, module;
  int follows; /* the number of the pending collective that it begins behind, whatever else; or 0 */
  bool replaces; /* it has written over what it reads */
} now;

/* Whether its bytes are not looked at: of no module that is run, or a number that is written out.
 */
static bool is_passed_over(int value, struct one one)
{
  const struct value *v = &graph->value[value];
  if (!v->stored || one.index == NONE || *number_for(one, 0) == LEFT_OUT) return true;
  bool constant = v->op != NONE && graph->op[v->op].kind == OP_full && !*number_for(one, 0);
  return constant && elements(v->shape) == 1;
}

/* What nobody makes in a step was there before it; what batches add up is what the one before has
   left. */
static int number_before(int value, struct stretch *at)
{
  if (!at->holds) at->holds = new_number(value);
  hold(graph->value[mark.at[at->holds].of].role == graph->value[value].role, now.id,
       "what stays over batches is not there any more");
  return at->holds;
}

static bool all_hold(struct stretches s, int number)
{
  for (int k = 0; k < s.n; k++)
    if (s.at[k].holds != number) return false;
  return true;
}

static void read_piece(int value, int *number, struct place p)
{
  struct stretches s = stretches_of(p, false);
  if (p.own && graph->value[value].op == NONE) *number = number_before(value, s.at);
  hold(*number, now.id, "it reads what nothing has made yet");
  mark.at[*number].reader = now.op;
  for (int i = 0; i < s.n; i++)
    hold(!s.at[i].writer || s.at[i].writer == now.follows, now.id,
         "it reads what a pending collective writes");
  hold(all_hold(s, *number), now.id, "what it reads is not there any more");
}

static void write_piece(int value, int *number, struct place p)
{
  struct stretches s = stretches_of(p, true);
  for (int i = 0; i < s.n; i++) {
    hold(!s.at[i].readers, now.id, "it writes what a pending collective reads");
    hold(!s.at[i].writer || s.at[i].writer == now.follows, now.id,
         "it writes what a pending collective writes");
    now.replaces |= mark.at[s.at[i].holds].reader == now.op;
  }
  leave(s, *number = new_number(value));
}

static void each_piece(int value, void (*visit)(int value, int *number, struct place p))
{
  struct one one = one_of(value, now.module);
  if (is_passed_over(value, one)) return;
  struct place p = place_of(value, now.module);
  struct pieces pieces = pieces_of(now.op, value);
  for (int k = pieces.first; k < pieces.end; k++)
    visit(value, number_for(one, k), piece_of(p, k, pieces.all));
}

static bool is_same_place(struct place a, struct place b)
{
  return a.own == b.own && a.from == b.from && a.bytes == b.bytes;
}

/* Whether the operation may leave `out` where `in` lies, which it reads: a sum is added to, a
   bucket has read all its members before it leaves one, or a kernel is done with each element when
   it writes it. */
static bool may_replace(const struct op *op, int in, int out)
{
  const struct value *v = &graph->value[in], *w = &graph->value[out];
  bool adds = v->op == NONE && v->role == w->role && (is_gradient(in) || v->role == LOSS);
  if (op->packed) return true;
  return is_same_place(place_of(in, now.module), place_of(out, now.module)) &&
         (adds || may_overwrite(op, in, out));
}

static void check_replaced(int value, int *number, struct place p)
{
  struct stretches s = stretches_of(p, false);
  for (int i = 0; i < s.n; i++)
    hold(s.at[i].holds == *number || may_replace(now.op, value, mark.at[s.at[i].holds].of), now.id,
         "it writes over what it still reads");
}

static void check_written(int value, int *number, struct place p)
{
  bool holds_members = now.op->packed && value == now.op->buffer;
  hold(holds_members || all_hold(stretches_of(p, false), *number), now.id,
       "two values that it makes overlap");
}

/* -------------------------------------------------------------------------- pending collectives */

/* A collective that is pending, of a module or, NONE, of none; and its number as a writer. */
struct begun {
  int op, module, number;
};
static struct {
  int n, room;
  struct begun *at;
} pending;
static int writers; /* that there were */

static int *list, list_room; /* of an operation's values */

static void make_room(const struct op *op)
{
  while (list_room < op_width(op)) list = grow(list, 0, &list_room, sizeof *list);
}

/* What a collective writes, of a bucket that is scattered not what is copied out of its buffer when
   it is awaited. */
static int writes_of(const struct op *op, int *written)
{
  int n = op->beside ? pending_writes(op, written) : op_writes(op, written);
  bool is_late = copies_late(op) && op->kind == OP_reduce_scatter;
  if (!is_late || op->leads || !is_copied_out(op)) return n;
  written[0] = op->buffer;
  return 1;
}

static void begin_reading(int value, int *number, struct place p)
{
  (void)value, (void)number;
  struct stretches s = stretches_of(p, true);
  for (int i = 0; i < s.n; i++) s.at[i].readers++;
}

static void end_reading(int value, int *number, struct place p)
{
  (void)value, (void)number;
  struct stretches s = stretches_of(p, true);
  for (int i = 0; i < s.n; i++) s.at[i].readers--;
}

static void begin_writing(int value, int *number, struct place p)
{
  (void)value, (void)number;
  struct stretches s = stretches_of(p, true);
  for (int i = 0; i < s.n; i++) s.at[i].writer = writers;
}

static void end_writing(int value, int *number, struct place p)
{
  (void)value, (void)number;
  struct stretches s = stretches_of(p, true);
  for (int i = 0; i < s.n; i++) s.at[i].writer = 0;
}

static struct begun *pending_of(int op, int module)
{
  for (int k = 0; k < pending.n; k++)
    if (pending.at[k].op == op && pending.at[k].module == module) return &pending.at[k];
  return NULL;
}

static void begin_pending(void)
{
  GROW(pending.at, pending.n, pending.room);
  pending.at[pending.n++] = (struct begun){now.id, now.module, ++writers};
  for (int n = pending_reads(now.op, list); n--;) each_piece(list[n], begin_reading);
  for (int n = writes_of(now.op, list); n--;) each_piece(list[n], begin_writing);
}

/* Of the module at work, and what it follows. */
static void end_pending(int id)
{
  struct begun *begun = pending_of(id, now.module);
  if (!begun) return;
  *begun = pending.at[--pending.n];
  const struct op *op = &graph->op[id], *await = now.op;
  make_room(op);
  now.op = op;
  for (int n = pending_reads(op, list); n--;) each_piece(list[n], end_reading);
  for (int n = writes_of(op, list); n--;) each_piece(list[n], end_writing);
  now.op = await;
  if (op->follows_plus_1) end_pending(op->follows_plus_1 - 1);
}

/* ---------------------------------------------------------------------------------- the program */

/* Writes nothing: what it makes is what it reads, where that lies. */
static bool shows(const struct op *op)
{
  int in = op->in[0], out = op->out;
  if (!is_view(op) || !graph->value[in].stored || !graph->value[out].stored) return false;
  struct one one = one_of(in, now.module), to = one_of(out, now.module);
  if (to.index == NONE) return true;
  if (one.index == NONE || *number_for(one, 0) == LEFT_OUT) {
    *number_for(to, 0) = LEFT_OUT;
    return true;
  }
  return is_same_place(place_of(in, now.module), place_of(out, now.module));
}

static void name_anew(int value, int *number, struct place p)
{
  (void)value;
  struct stretches s = stretches_of(p, true);
  for (int i = 0; i < s.n; i++) s.at[i].holds = mark.n - 1;
  *number = mark.n - 1;
}

/* The number of what it shows is its own too; pieces become one. */
static void show(const struct op *op)
{
  int in = op->in[0], out = op->out;
  struct one from = one_of(in, now.module), to = one_of(out, now.module);
  if (to.index == NONE || *number_for(to, 0) == LEFT_OUT) return;
  each_piece(in, read_piece);
  if (graph->value[in].pieces) {
    new_number(in);
    each_piece(in, name_anew);
  }
  int pieces = graph->value[out].pieces ? graph->value[out].pieces : 1,
      number = *number_for(from, 0);
  for (int k = 0; k < pieces; k++) *number_for(to, k) = number;
}

static void run_op(void *unused, int id, int module)
{
  const struct op *op = &graph->op[id];
  (void)unused;
  if (op->kind == OP_loop || op->kind == OP_round) return;
  now.op = op;
  now.id = id;
  now.module = module;
  now.replaces = false;
  struct begun *leader = op->follows_plus_1 ? pending_of(op->follows_plus_1 - 1, module) : NULL;
  now.follows = leader ? leader->number : 0;
  make_room(op);
  if (op->kind == OP_await) end_pending(op->begun);
  if (op->nin == 1 && op->nout == 1 && shows(op)) {
    show(op);
    return;
  }
  bool awaits = op->kind == OP_await;
  for (int n = awaits ? 0 : op_reads(op, list); n--;) each_piece(list[n], read_piece);
  int written = writes_of(op, list);
  for (int n = written; n--;) each_piece(list[n], write_piece); /* a buffer, then what is in it */
  for (int n = written > 1 ? written : 0; n--;) each_piece(list[n], check_written);
  for (int n = now.replaces ? op_reads(op, list) : 0; n--;) each_piece(list[n], check_replaced);
  if (op->beside) begin_pending();
}

static void begin_check(void)
{
  memset(&known, 0, sizeof known);
  known_at = alloc((size_t)(graph->nvalue + 1) * sizeof *known_at);
  count_modules();
  find_period();
  find_members();
  memset(&arena, 0, sizeof arena);
  memset(&own, 0, sizeof own);
  memset(&own_places, 0, sizeof own_places);
  memset(&left, 0, sizeof left);
  memset(&mark, 0, sizeof mark);
  memset(&pending, 0, sizeof pending);
  GROW(arena.at, arena.n, arena.room);
  GROW(own.at, own.n, own.room);
  arena.n = own.n = 1;
  new_number(NONE);
  list_room = writers = 0;
}

static void run_phases(bool of_batch, enum phase first, enum phase last)
{
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    bool runs = is_phase(f) && f->phase >= first && f->phase <= last;
    if (runs && is_of_batch(f->phase) == of_batch) each_run_of(f, run_op, NULL);
  }
}

/* What is read when the step is over. */
static void check_ends(void)
{
  now.id = now.module = now.follows = NONE;
  now.op = NULL;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (i == graph->loss || v->role == NORM || v->is_output) each_piece(i, read_piece);
  }
}

void check_memory(void)
{
  int *count = alloc((size_t)(graph->nfunction + 1) * sizeof *count);
  begin_check();
  most_rounds = 1;
  for (int i = 0; i < graph->nfunction; i++) {
    count[i] = graph->function[i].count;
    if (count[i] > 1) graph->function[i].count = run_of(count[i]);
    if (graph->function[i].count > most_rounds) most_rounds = graph->function[i].count;
  }
  run_phases(false, GATHER, GATHER);
  for (int batch = 0; batch < (graph->accumulate > 1 ? 2 : 1); batch++)
    run_phases(true, FORWARD, BACKWARD);
  run_phases(false, UPDATE, UPDATE);
  check_ends();
  for (int i = 0; i < graph->nfunction; i++) graph->function[i].count = count[i];
}
