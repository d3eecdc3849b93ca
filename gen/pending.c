/* pending.c: a part of check.c: what runs beside a collective leaves its bytes alone.

   Takes   the program, every value in its place.
   Holds   each collective that runs beside others is awaited once, later in its function; until
           then nothing writes what it reads, or touches what it writes; no other of its group runs
           among arithmetic meanwhile, so that all of a group are in one order on the device; and
           its event is no other's that is pending. Other places than its own are no matter: they
           live until the await, and check_memory has seen to what lives at once. */
#include "tpgen.h"

#include <string.h>

static struct list pending; /* collectives */

static void hold(bool fact, int op, const char *what)
{
  if (!fact) bug(pass_name[PASS_MEMORY], op, "%s", what);
}

/* What an operation reads and writes, in two lists that grow. */
static struct access {
  int nread, nwritten, room, *read, *written;
} here, theirs;

static void find_access(struct access *a, const struct op *op)
{
  while (a->room < op_width(op)) {
    int room = a->room;
    a->read = grow(a->read, 0, &room, sizeof *a->read);
    a->written = grow(a->written, 0, &a->room, sizeof *a->written);
  }
  a->nread = op_reads(op, a->read);
  a->nwritten = op_writes(op, a->written);
}

/* Which round's bytes a value of a loop has, counted from this one's, of so many that are kept. */
static int round_of(const struct value *v)
{
  return v->depth > 1 ? (v->step % v->depth + v->depth) % v->depth : 0;
}

/* Whether two values have bytes in common; inside: one is spoken of in a loop, the other not. */
static bool meets(int a, int b, bool inside)
{
  const struct value *v = &graph->value[a], *w = &graph->value[b];
  const struct value *x = &graph->value[v->storage], *y = &graph->value[w->storage];
  bool alike = x->family != NONE && x->family == y->family && x->role != ACTIVATION;
  if (v->storage != w->storage) return inside && alike;
  if (inside || x->role != ACTIVATION || x->is_output) return true;
  if (v->family != NONE || w->family != NONE) return round_of(v) == round_of(w);
  return v->offset < w->offset + largest_bytes(b) && w->offset < v->offset + largest_bytes(a);
}

static bool any_meet(const int *a, int n, const int *b, int m, bool inside)
{
  for (int i = 0; i < n; i++)
    for (int k = 0; k < m; k++)
      if (meets(a[i], b[k], inside)) return true;
  return false;
}

/* What shows the bytes of another writes nothing. */
static bool shows_its_input(const struct op *op)
{
  return is_view(op) && graph->value[op->in[0]].storage == graph->value[op->out].storage;
}

/* The operation beside one that is pending. */
static void check_beside(int id, int begun, bool inside)
{
  const struct op *op = &graph->op[id], *other = &graph->op[begun];
  find_access(&theirs, other);
  hold(!any_meet(here.written, here.nwritten, theirs.read, theirs.nread, inside), id,
       "it writes what a pending collective reads");
  hold(!any_meet(here.written, here.nwritten, theirs.written, theirs.nwritten, inside), id,
       "it writes what a pending collective writes");
  hold(!any_meet(here.read, here.nread, theirs.written, theirs.nwritten, inside), id,
       "it reads what a pending collective writes");
  hold(!is_collective(op->kind) || op->group != other->group || op->beside, id,
       "a collective passes one of its group that is pending");
  hold(!op->beside || op->event != other->event, id, "two that are pending have one event");
}

static void check_await(const struct op *op, int id)
{
  int k = 0;
  while (k < pending.n && pending.at[k] != op->begun) k++;
  hold(k < pending.n, id, "it awaits what is not pending");
  memmove(pending.at + k, pending.at + k + 1, (size_t)(--pending.n - k) * sizeof *pending.at);
}

/* outside: how many were pending when the function was called. */
static void check_function(const struct function *f, int outside)
{
  for (int i = 0; i < f->nop; i++) {
    int id = f->op[i];
    const struct op *op = &graph->op[id];
    if (op->kind == OP_loop) check_function(&graph->function[op->function], pending.n);
    if (op->kind == OP_await) check_await(op, id);
    if (op->kind == OP_loop || op->kind == OP_await) continue;
    find_access(&here, op);
    if (shows_its_input(op)) here.nwritten = 0;
    for (int k = 0; k < pending.n; k++) check_beside(id, pending.at[k], k < outside);
    hold(!op->beside || (op->event >= 0 && op->event < graph->nevent), id, "it has no event");
    if (op->beside) add(&pending, id);
  }
  hold(pending.n == outside, pending.n > outside ? pending.at[outside] : NONE,
       "it is not awaited where its function ends");
}

void check_pending(void)
{
  pending = (struct list){0};
  here = theirs = (struct access){0};
  for (int i = 0; i < graph->nfunction; i++)
    if (graph->function[i].count == 1) check_function(&graph->function[i], 0);
}
