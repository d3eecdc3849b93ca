/* pending.c: a part of check.c: what runs beside a collective leaves its bytes alone.

   Takes   the program, every value in its place.
   Holds   the program is run as it will run, with some rounds of each loop. Each collective that
           runs beside others is awaited once, later in its function, or, if it is pending between
           the rounds of a loop, in another round, or behind the loop; until then nothing writes
           what it reads, or touches what it writes; no other of its group runs among arithmetic
           meanwhile, so that all of a group are in one order on the device; and its event is no
           other's that is pending.

   Other places than its own are no matter: they live until the await, and check_memory has seen to
   what lives at once. */
#include "tpgen.h"

#include <string.h>

/* A collective that is pending, and of which module, NONE outside of loops. */
struct begun {
  int op, module;
};
static struct {
  int n, room;
  struct begun *at;
} pending;

static void hold(bool fact, int op, const char *what)
{
  if (!fact) bug(pass_name[PASS_MEMORY], op, "%s", what);
}

/* What an operation reads and writes, in two lists that grow. */
static struct access {
  int nread, nwritten, room, *read, *written;
} here, theirs;

static void widen(struct access *a, const struct op *op)
{
  while (a->room < op_width(op)) {
    int room = a->room;
    a->read = grow(a->read, 0, &room, sizeof *a->read);
    a->written = grow(a->written, 0, &a->room, sizeof *a->written);
  }
}

/* Of an await what it writes: it copies out of a bucket. */
static void find_access(struct access *a, const struct op *op)
{
  widen(a, op);
  a->nread = op->kind == OP_await ? 0 : op_reads(op, a->read);
  a->nwritten = op_writes(op, a->written);
}

static void find_pending_access(struct access *a, const struct op *op)
{
  widen(a, op);
  a->nread = pending_reads(op, a->read);
  a->nwritten = pending_writes(op, a->written);
}

/* The module whose value is spoken of in `module`, or NONE: it is no family's. */
static int module_of(int value, int module)
{
  const struct value *v = &graph->value[value];
  if (v->family == NONE) return NONE;
  if (v->step) return module + v->step;
  return v->family == value && module != NONE ? module : v->index;
}

/* Whether two values, spoken of in these modules, have bytes in common. */
static bool meets(int a, int in_a, int b, int in_b)
{
  const struct value *v = &graph->value[a], *w = &graph->value[b];
  const struct value *x = &graph->value[v->storage], *y = &graph->value[w->storage];
  int i = module_of(a, in_a), k = module_of(b, in_b);
  bool known = i != NONE && k != NONE;
  if (x->role != ACTIVATION || x->is_output) {
    bool alike = x->family != NONE && x->family == y->family;
    return alike && known ? i == k : v->storage == w->storage;
  }
  if (v->storage != w->storage) return false;
  if (known && x->depth > 1) return i % x->depth == k % x->depth;
  return v->offset < w->offset + largest_bytes(b) && w->offset < v->offset + largest_bytes(a);
}

/* What some values are, and in which module they are spoken of. */
struct spoken {
  const int *value;
  int n, module;
  const struct op *by;
};

/* Two pieces of one value. */
static bool are_apart(const struct spoken *a, int x, const struct spoken *b, int y)
{
  int mine = piece_touched(a->by, x), its = piece_touched(b->by, y);
  return x == y && mine != NONE && its != NONE && mine != its;
}

static bool any_meet(struct spoken a, struct spoken b)
{
  for (int i = 0; i < a.n; i++)
    for (int k = 0; k < b.n; k++)
      if (!are_apart(&a, a.value[i], &b, b.value[k]) &&
          meets(a.value[i], a.module, b.value[k], b.module))
        return true;
  return false;
}

/* What shows the bytes of another writes nothing. */
static bool shows_its_input(const struct op *op)
{
  return is_view(op) && graph->value[op->in[0]].storage == graph->value[op->out].storage;
}

/* The event that tells that the module's collective is done. */
static int event_in(const struct op *op, int module)
{
  return op->event + (event_slots(op) > 1 ? module % event_slots(op) : 0);
}

/* Whether it begins when the pending one is done: what it does to that one's values is in order. */
static bool begins_behind(const struct op *op, int module, struct begun begun)
{
  return is_collective(op->kind) && op->follows_plus_1 == begun.op + 1 && module == begun.module;
}

/* The operation beside one that is pending. */
static void check_beside(int id, int module, struct begun begun)
{
  const struct op *op = &graph->op[id], *other = &graph->op[begun.op];
  find_pending_access(&theirs, other);
  struct spoken reads = {here.read, here.nread, module, op},
                writes = {here.written, here.nwritten, module, op};
  struct spoken read = {theirs.read, theirs.nread, begun.module, other},
                written = {theirs.written, theirs.nwritten, begun.module, other};
  hold(!any_meet(writes, read), id, "it writes what a pending collective reads");
  bool behind = begins_behind(op, module, begun);
  hold(behind || !any_meet(writes, written), id, "it writes what a pending collective writes");
  hold(behind || !any_meet(reads, written), id, "it reads what a pending collective writes");
  hold(!is_collective(op->kind) || op->group != other->group || op->beside, id,
       "a collective passes one of its group that is pending");
  hold(!op->beside || event_in(op, module) != event_in(other, begun.module), id,
       "two that are pending have one event");
}

/* Whether it was pending. */
static bool end_pending(int op, int module)
{
  int k = 0;
  while (k < pending.n && (pending.at[k].op != op || pending.at[k].module != module)) k++;
  if (k == pending.n) return false;
  memmove(pending.at + k, pending.at + k + 1, (size_t)(--pending.n - k) * sizeof *pending.at);
  return true;
}

/* It awaits that of its own module, and what that follows. */
static void check_await(const struct op *op, int id, int module)
{
  hold(end_pending(op->begun, module), id, "it awaits what is not pending");
  const struct op *leader = leader_of(&graph->op[op->begun]);
  if (leader) end_pending((int)(leader - graph->op), module);
}

static void check_op(int id, int module)
{
  const struct op *op = &graph->op[id];
  if (op->kind == OP_await) check_await(op, id, module);
  find_access(&here, op);
  if (shows_its_input(op)) here.nwritten = 0;
  for (int k = 0; k < pending.n; k++) check_beside(id, module, pending.at[k]);
  if (!op->beside) return;
  hold(op->event >= 0 && op->event + event_slots(op) <= graph->nevent, id, "it has no event");
  GROW(pending.at, pending.n, pending.room);
  pending.at[pending.n++] = (struct begun){id, module};
}

/* What is pending at the end of a round was begun ahead, or is awaited behind. */
static void check_round_end(void)
{
  for (int k = 0; k < pending.n; k++) {
    const struct op *op = &graph->op[pending.at[k].op];
    hold(pending.at[k].module == NONE || op->ahead || op->behind, pending.at[k].op,
         "it is not awaited where its function ends");
  }
}

/* What is pending of a loop, as it will be so many rounds later. */
static void pass_rounds(const struct function *f, int rounds)
{
  for (int k = 0; k < pending.n; k++)
    if (pending.at[k].module != NONE) pending.at[k].module += f->upward ? rounds : -rounds;
}

static void check_function(const struct function *f, int round);

/* The rounds between the first ones and the last do as these. */
static void check_loop(const struct function *f)
{
  enum { FIRST = 3, LAST = 1 + MOST_PREFETCHED };
  for (int round = 0; round < f->count; round++) {
    if (round == FIRST && f->count > FIRST + LAST) {
      pass_rounds(f, f->count - LAST - round);
      round = f->count - LAST;
    }
    check_function(f, round);
    check_round_end();
  }
}

static void check_function(const struct function *f, int round)
{
  int module = f->count > 1 ? module_of_round(f, round) : NONE;
  for (int i = 0; i < f->nop; i++) {
    const struct op *op = &graph->op[f->op[i]];
    if (op->kind == OP_loop)
      check_loop(&graph->function[op->function]);
    else if (op->kind != OP_round)
      check_op(f->op[i], module);
    else if (round_called(op, round) != NONE)
      check_function(&graph->function[op->function], round_called(op, round));
  }
}

void check_pending(void)
{
  pending.n = 0;
  here = theirs = (struct access){0};
  for (int i = 0; i < graph->nfunction; i++) {
    if (!is_phase(&graph->function[i])) continue;
    check_function(&graph->function[i], 0);
    hold(!pending.n, pending.n ? pending.at[0].op : NONE,
         "it is not awaited where its function ends");
  }
}
