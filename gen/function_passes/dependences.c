/* dependences.c: a part of the pass `schedule`: the dependence graph of a span of a function.

   Takes   operations of a function, in an order in which they can run.
   Leaves  a node for each operation, and for each node the nodes that it depends on. A node depends
           on an earlier one if either writes bytes that the other one reads or writes. Two nodes
           that touch different pieces of a value (async_tp.c) are independent of each other.

   A collective that loop_carried.c or last_iteration.c leaves in flight between iterations of a
   loop is issued by one node and awaited by another one: see enum carried.

   A collective can be chained to another one, its predecessor, if it reads only the predecessor's
   results. A chained collective waits only for its predecessor, and one await serves both. This
   file finds one predecessor for each collective. stream_model.c decides by the places of the two
   whether the collective is chained. */
#include "function_passes/function_passes.h"

#include <string.h>

/* ------------------------------------------------------------------------ accesses to the bytes */

/* The latest accesses to the bytes of an alias class. */
struct accesses {
  int span; /* the number of the span in which they occur */
  int writer;
  struct list readers, piece_writers; /* since the writer */
};

int alias_class(int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (v->role == GRADIENT) return graph->nvalue + v->of;
  if (v->role == SUMS) return 2 * graph->nvalue + v->of;
  if (v->role == LOSS) return 3 * graph->nvalue;
  if (loop->stack != NONE && loop->stack != value) return alias_class(loop->stack);
  return has_no_bytes(value) ? alias_class(graph->op[v->op].in[0]) : value;
}

static struct accesses *accesses_to(const struct span *s, int value)
{
  struct accesses *a = &s->program->accesses[s->program->alias_class[value]];
  if (a->span != s->number) {
    a->span = s->number;
    a->writer = NONE;
    a->readers.n = a->piece_writers.n = 0;
  }
  return a;
}

void add_dependence(struct span *s, int later, int earlier)
{
  if (earlier == NONE || earlier == later || s->depends_on[later][earlier]) return;
  s->depends_on[later][earlier] = true;
  add(&s->node[later].dependences, earlier);
  if (s->node[earlier].group != NONE) add(&s->node[later].collectives, earlier);
  add(&s->node[earlier].dependents, later);
}

static int dependences_piece_of(const struct span *s, int n, int value)
{
  return piece_touched(&graph->op[s->node[n].op], value);
}

/* The node depends on the nodes of the list, except those that touch another piece of the value. */
static void depend_on_all(struct span *s, int n, const struct list *list, int value)
{
  for (int i = 0; i < list->n; i++) {
    int mine = dependences_piece_of(s, n, value),
        its = mine == NONE ? NONE : dependences_piece_of(s, list->at[i], value);
    if (its == NONE || its == mine) add_dependence(s, n, list->at[i]);
  }
}

static void note_read(struct span *s, int n, int value)
{
  struct accesses *a = accesses_to(s, value);
  if (in_loop(value)->step) note_read(s, n, in_loop(value)->initial);
  add_dependence(s, n, a->writer);
  depend_on_all(s, n, &a->piece_writers, value);
  if (!a->readers.n || a->readers.at[a->readers.n - 1] != n) add(&a->readers, n);
}

static void note_write(struct span *s, int n, int value)
{
  struct accesses *a = accesses_to(s, value);
  add_dependence(s, n, a->writer);
  depend_on_all(s, n, &a->readers, value);
  depend_on_all(s, n, &a->piece_writers, value);
  if (dependences_piece_of(s, n, value) != NONE) {
    add(&a->piece_writers, n);
    return;
  }
  a->writer = n;
  a->readers.n = a->piece_writers.n = 0;
}

/* The await of a collective that another iteration issued counts as a write of everything that the
   collective and its predecessors read and write: a later node may overwrite the former, and read
   the latter. */
static int await_makes(const struct op *c, int *list)
{
  if (is_issued_by_part(c)) return op_makes(c, list);
  int n = pending_reads(c, list);
  n += pending_writes(c, list + n);
  return predecessor_of(c) ? n + await_makes(predecessor_of(c), list + n) : n;
}

static int accesses_of(const struct op *op, bool writes, int *list)
{
  if (!writes) return op_reads(op, list);
  return op->kind == OP_await ? await_makes(&graph->op[op->awaits], list) : op_makes(op, list);
}

/* A loop accesses the bytes that its body accesses, and so does a call for another iteration. */
static void note_accesses(struct span *s, int n, const struct op *op, bool writes)
{
  struct overlap *o = s->program;
  if (op_row[op->kind].calls) {
    const struct function *body = &graph->function[op->function];
    for (int k = 0; k < body->nop; k++) note_accesses(s, n, &graph->op[body->op[k]], writes);
    return;
  }
  while (o->accessed_room < op_width(op))
    o->accessed = grow(o->accessed, 0, &o->accessed_room, sizeof *o->accessed);
  int count = accesses_of(op, writes, o->accessed);
  for (int i = 0; i < count; i++) (writes ? note_write : note_read)(s, n, o->accessed[i]);
}

static void find_dependences(struct span *s)
{
  for (int i = 0; i < s->nnode; i++) {
    const struct op_node *n = &s->node[i];
    note_accesses(s, i, &graph->op[n->op], false);
    note_accesses(s, i, &graph->op[n->op], true);
    if (n->carried == PREFETCHES) note_accesses(s, i, &graph->op[n->next], false);
    if (n->carried == PREFETCHES) note_accesses(s, i, &graph->op[n->next], true);
    if (n->body != NONE) {
      /* A loop waits for the earlier collectives of a group if it has a blocking collective of the
         group. */
      const bool *blocks = s->program->blocks[s->node[i].body];
      for (int k = 0; k < i; k++)
        if (s->node[k].group != NONE && blocks[s->node[k].group]) add_dependence(s, i, k);
    }
    if (n->carried == AWAITS_EARLIER) {
      /* In a loop one value represents those of all modules of a list. An operation outside of the
         loop that touches another module's gradient has to wait as well. */
      for (int k = i + 1; k < s->nnode; k++)
        if (touches_gradients_of(&graph->op[s->node[k].op], &graph->op[s->node[i].collective]))
          add_dependence(s, k, i);
    }
    if (is_transfer(graph->op[n->op].kind) || joins_stages(&graph->op[n->op])) {
      /* The calls of several stages may match by their order. */
      for (int k = 0; k < i; k++)
        if (keeps_stage_order(&graph->op[s->node[k].op], &graph->op[s->node[i].op]))
          add_dependence(s, i, k);
    }
  }
}

/* ---------------------------------------------------------------------------------------- nodes */

static int64_t time_of_loop(const struct overlap *o, int body)
{
  int64_t time = o->time[body], count = graph->function[body].count;
  return time < LONGEST_TIME / count ? time * count : LONGEST_TIME;
}

/* The time that the part takes without its collective. */
static int64_t time_apart(const struct op *call)
{
  const struct function *part = &graph->function[call->function];
  int64_t time = 0;
  for (int k = 0; k < part->nop; k++) {
    const struct op *op = &graph->op[part->op[k]];
    if (op->kind != OP_await && !is_collective(op->kind)) time += time_taken(op);
  }
  return time;
}

/* An all_reduce may work in its buffer, without copies. */
static void find_copies(struct op_node *n, const struct op *c)
{
  if (!c->packed || !moves_shards(c->kind)) return;
  n->time_before = copies_in_time(c);
  n->time_after = copies_out_time(c);
}

static void make_carried(struct op_node *n, enum carried carried, int collective)
{
  const struct op *c = &graph->op[collective];
  n->carried = carried;
  n->collective = collective;
  n->movable = false;
  if (carried == AWAITS_EARLIER) return;
  n->group = c->group;
  n->time = time_taken(c);
  n->async = true;
  find_copies(n, c);
  if (carried == ISSUES_FIRST) n->time_after = 0; /* that is the loop's */
}

static void make_node(const struct overlap *o, struct op_node *n, int id)
{
  const struct op *op = &graph->op[id];
  bool collective = is_collective(op->kind), loop = op->kind == OP_loop;
  n->op = id;
  n->group = collective ? op->group : NONE;
  n->body = loop ? op->function : NONE;
  n->movable = !collective && !loop;
  n->predecessor = n->successor = NONE;
  if (op->kind == OP_await)
    make_carried(n,
                 scheduled(&graph->op[op->awaits])->issued_in_last_iteration ? AWAITS_EARLIER
                                                                             : PREFETCHES,
                 op->awaits);
  else if (collective && scheduled(op)->awaited_next_iteration)
    make_carried(n, AWAITED_NEXT, id);
  else if (op->kind == OP_iteration) {
    /* The collective of the part of a loop's body that the operation calls: the part's last
       operation issues it, or its first one awaits it. */
    const struct function *part = &graph->function[op->function];
    const struct op *first = &graph->op[part->op[0]];
    make_carried(n, op->iteration == FIRST_ITERATION ? ISSUES_FIRST : AWAITS_EARLIER,
                 first->kind == OP_await ? first->awaits : part->op[part->nop - 1]);
  } else
    n->time = loop ? time_of_loop(o, op->function) : time_taken(op);
  if (op->kind == OP_iteration)
    *(n->carried == AWAITS_EARLIER ? &n->time_after : &n->time_before) += time_apart(op);
  if (collective && !n->carried) find_copies(n, op);
}

/* A PREFETCHES node takes two operations. */
static void make_nodes(struct span *s, const int *op, int n)
{
  s->node = alloc((size_t)n * sizeof *s->node);
  s->order = alloc((size_t)n * sizeof *s->order);
  s->place = alloc((size_t)n * sizeof *s->place);
  for (int i = 0; i < n; i++) {
    struct op_node *made = &s->node[s->nnode];
    make_node(s->program, made, op[i]);
    if (made->carried == PREFETCHES) {
      made->next = op[++i];
      made->time_before += time_apart(&graph->op[op[i]]);
    }
    const struct op *collective = &graph->op[made->collective];
    int ahead = made->carried == PREFETCHES ? scheduled(collective)->prefetch_distance
                                            : made->carried == AWAITED_NEXT;
    if (s->most_ahead < ahead) s->most_ahead = ahead;
    s->order[s->nnode] = s->place[s->nnode] = s->nnode;
    s->nnode++;
  }
}

/* --------------------------------------------------------------------------------- predecessors */

bool can_chain(const struct op *op, const struct op *predecessor)
{
  if (op->packed || op == predecessor) return false;
  int *read = alloc((size_t)op_width(op) * sizeof *read), n = op_reads(op, read);
  int *made = alloc((size_t)op_width(predecessor) * sizeof *made),
      count = op_makes(predecessor, made);
  for (int i = 0; i < n; i++) {
    int k = 0;
    while (k < count && made[k] != read[i]) k++;
    if (k == count) return false;
  }
  return n > 0;
}

/* Whether node n can be chained to m. A chain has two collectives: one await serves both, and would
   not serve three. */
static bool can_precede(const struct span *s, int m, int n)
{
  const struct op_node *first = &s->node[m], *second = &s->node[n];
  const struct op *op = &graph->op[first->op], *next = &graph->op[second->op];
  if (!is_collective(op->kind) || op->pieces || next->pieces) return false;
  if (first->carried != second->carried) return false;
  if (first->successor != NONE || first->predecessor != NONE) return false;
  if (!can_chain(next, op)) return false;
  for (int i = 0; i < second->dependences.n; i++)
    if (second->dependences.at[i] > m) return false; /* the two could not be adjacent */
  return true;
}

/* loop_carried.c has chosen which collectives that another iteration awaits are chained. The
   predecessor then depends on everything that the successor depends on. */
static void find_predecessor(struct span *s, int n)
{
  const struct op_node *second = &s->node[n];
  const struct op *op = &graph->op[second->op];
  int m = 0;
  if (!is_collective(op->kind) || (second->carried && !predecessor_of(op))) return;
  while (m < n && !can_precede(s, m, n)) m++;
  if (m == n) return;
  s->node[n].predecessor = m;
  s->node[m].successor = n;
  for (int i = 0; i < second->dependences.n; i++) add_dependence(s, m, second->dependences.at[i]);
}

void open_dependences(struct overlap *o)
{
  /* A view's input mostly comes before it: so a long chain of views is followed only once. */
  o->alias_class = alloc((size_t)(graph->nvalue + 1) * sizeof *o->alias_class);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    const struct in_loop *loop = in_loop(i);
    bool is_view = has_no_bytes(i) && (loop->stack == NONE || loop->stack == i);
    int of = is_view ? graph->op[v->op].in[0] : i;
    o->alias_class[i] = of < i ? o->alias_class[of] : alias_class(i);
  }
  o->accesses = alloc((size_t)(3 * graph->nvalue + 1) * sizeof *o->accesses);
  o->depends_on = alloc(LONGEST_ORDERED * sizeof *o->depends_on);
}

struct span *find_span(struct overlap *o, const int *op, int n)
{
  struct span *s = alloc(sizeof *s);
  s->program = o;
  s->number = ++o->nspan;
  s->depends_on = o->depends_on;
  make_nodes(s, op, n);
  for (int i = 0; i < s->nnode; i++) memset(s->depends_on[i], 0, (size_t)s->nnode);
  find_dependences(s);
  for (int i = 0; i < s->nnode && target->streams; i++) find_predecessor(s, i);
  return s;
}
