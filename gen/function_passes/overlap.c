/* overlap.c: part of the pass `schedule`: decides which collectives are asynchronous, and which
   operations run while they are in flight.

   Takes   a function in an order in which few bytes are alive at once.
   Leaves  some of its collectives `overlapped`: such a collective is issued at its place, on its
           group's stream, and awaited by an `await` further on, directly before the first operation
           that depends on it, at the latest at the end of the function. Independent operations have
           moved between the two. Every other collective blocks at its place. The order and the
           awaits are the same on every rank.

   Each collective in turn is given work to overlap with, until none of it is exposed by the model
   of stream_model.c. Of the operations shortly before it and shortly after its await, the search
   moves the one that makes the function quickest. If the function is not quicker in the end, with
   the cost of an event, the collective stays as it was.

   An asynchronous collective keeps its operands alive for longer. The order may need at most a
   thirty-second more than the bytes that are alive at once in the program. The search calls
   peak_of(), which estimates. In the end it asks memory.c. If the function then needs more, the
   search starts again and asks memory.c about each collective.

   The nodes of collectives that are in flight between iterations (loop_carried.c) do not move.
   Others move around them.

   The number of nodes that the search visits is bounded, far above the number that a program with
   folded layers takes. In a very long program the last collectives stay as they are. */
#include "function_passes/function_passes.h"

#include <string.h>

/* The number of nodes that the search may visit in the program, and the number of visits that one
   peak counts as. */
enum { MOST_VISITED = 25000000, PEAK_VISITS = 16 };

/* The search for the order of a function, one span after the other. */
struct search {
  struct overlap *program;
  struct function *function;
  int64_t most_live; /* in the program */
  int64_t more;      /* the bytes by which the live bytes of a span may grow in the search; NONE: no
                        overlap */
  bool asks_memory;  /* about each collective */
  int nasked;
  struct list done; /* operations of the spans that have their order */
  const int *rest;  /* operations of the spans that come later */
  int nrest;
  struct span *s;
  int *original, *kept, *tried; /* orders to go back to */
  bool *barred;                 /* by node: too much lives if it moves */
  bool *along;                  /* by node: it moves along with another one */
  int nalong;
  int *moved, *op; /* lists that are refilled each time */
};

/* ---------------------------------------------------------------------------------------- moves */

static void note_places(struct span *s, int from, int to)
{
  for (int k = from; k <= to; k++) s->place[s->order[k]] = k;
}

static void keep_order(const struct span *s, int *kept)
{
  memcpy(kept, s->order, (size_t)s->nnode * sizeof *kept);
}

static void go_back_to(struct span *s, const int *kept)
{
  memcpy(s->order, kept, (size_t)s->nnode * sizeof *kept);
  note_places(s, 0, s->nnode - 1);
}

/* Moves one node to this place. Neither it nor any node in between depends on the other. */
static void move_node(struct span *s, int n, int to)
{
  int from = s->place[n], step = from < to ? 1 : -1;
  for (int k = from; k != to; k += step) s->order[k] = s->order[k + step];
  s->order[to] = n;
  note_places(s, from < to ? from : to, from < to ? to : from);
}

static bool is_barrier(const struct op_node *n)
{
  return n->body != NONE || n->carried == PREFETCHES || n->carried == ISSUES_FIRST;
}

/* Moves a collective right after its predecessor, unless it depends on a node between them, or one
   of these is a barrier. (The predecessor depends on all else that the collective depends on.) */
static void close_up(struct span *s, int n)
{
  int predecessor = s->node[n].predecessor, at = s->place[n];
  while (--at > s->place[predecessor])
    if (is_barrier(&s->node[s->order[at]]) || s->depends_on[n][s->order[at]]) return;
  if (at == s->place[predecessor]) move_node(s, n, at + 1);
}

static void close_up_all(struct span *s)
{
  for (int n = 0; n < s->nnode; n++) {
    int predecessor = s->node[n].predecessor;
    if (predecessor != NONE && s->node[n].async && s->node[predecessor].async) close_up(s, n);
  }
}

static void take_along(struct search *t, int n)
{
  t->along[n] = true;
  t->nalong++;
}

/* Finds the nodes that must move with the node at `from` if it moves to `to`: between the two,
   those that depend on it, or on which it depends. Returns false if they are more than a few nodes,
   include the node at `to` or a barrier, or would bring a collective across a loop. */
static bool find_along(struct search *t, int from, int to)
{
  enum { FEW = 4 };
  const struct span *s = t->s;
  int step = from < to ? 1 : -1;
  bool loops = false, collectives = false;
  t->nalong = 0;
  memset(t->along, 0, (size_t)s->nnode);
  take_along(t, s->order[from]);
  for (int k = from + step; k != to + step; k += step) {
    const struct op_node *other = &s->node[s->order[k]];
    const struct list *list = step > 0 ? &other->dependences : &other->dependents;
    bool comes = false;
    for (int i = 0; i < list->n && !comes; i++) comes = t->along[list->at[i]];
    if (comes && (k == to || is_barrier(other) || t->nalong == FEW)) return false;
    if (comes) take_along(t, s->order[k]);
    loops |= other->body != NONE;
    collectives |= comes && (other->group != NONE || other->carried);
  }
  return !loops || !collectives;
}

/* Moves the node at `from`, with the nodes that find_along() has found, to the other side of the
   one at `to`. */
static void move(struct search *t, int from, int to)
{
  struct span *s = t->s;
  int first = from < to ? from : to, last = from < to ? to : from, n = 0;
  for (int side = 0; side < 2; side++)
    for (int k = first; k <= last; k++)
      if (t->along[s->order[k]] == (from < to ? side == 1 : side == 0)) t->moved[n++] = s->order[k];
  memcpy(s->order + first, t->moved, (size_t)n * sizeof *s->order);
  note_places(s, first, last);
  close_up_all(s);
}

/* --------------------------------------------------------------------------------------- memory */

static int64_t peak_now(struct search *t)
{
  t->program->visited += PEAK_VISITS * t->s->nnode;
  return peak_of(t->program->live, t->op, write_order(t->s, t->op));
}

/* Whether memory.c finds room for the present program. The answer is no after too many queries. */
static bool overlap_has_room(const struct search *t)
{
  enum { MOST_ASKED = 1500000 };
  if (within_budget(&t->program->asked, MOST_ASKED)) return can_live_in(t->most_live);
  ended_early("schedule", "room for overlapped collectives", MOST_ASKED, "operations looked at");
  return false;
}

/* Whether memory.c, if the search asks it, finds room for the span in its present order. */
static bool overlap_fits(struct search *t)
{
  enum { MOST_ASKED = 32 };
  if (!t->asks_memory) return true;
  if (t->nasked++ >= MOST_ASKED) {
    ended_early("schedule", "room for the collectives of a function", MOST_ASKED, "orders");
    return false;
  }
  int n = t->done.n, *op = alloc((size_t)(n + 2 * t->s->nnode + t->nrest) * sizeof *op);
  if (n) memcpy(op, t->done.at, (size_t)n * sizeof *op);
  n += write_order(t->s, op + n);
  if (t->nrest) memcpy(op + n, t->rest, (size_t)t->nrest * sizeof *op);
  t->function->op = op;
  t->function->nop = n + t->nrest;
  return overlap_has_room(t);
}

/* ---------------------------------------------------------------------------- the alternatives */

static const char BLOCKING[] = "blocks the arithmetic", BESIDE[] = "beside the arithmetic";

static const char *overlap_subject(int function, int id)
{
  const struct op *op = &graph->op[id];
  return text("%s of %s%s in %s", op_row[op->kind].name, starred_name(value_name(op->in[0])),
              op->nbody > 1 ? text(" and %d more", op->nbody - 1) : "",
              graph->function[function].name);
}

/* Whether --explain-cost forces this on the collective. */
static bool is_forced(const struct search *t, int node, const char *way)
{
  if (!are_decisions_explained()) return false;
  const char *forced = forced_way_of(
      "overlap", overlap_subject((int)(t->function - graph->function), t->s->node[node].op));
  return forced && !strcmp(forced, way);
}

/* The time for which the arithmetic waits is known of the way that is taken, and of one that
   blocks. */
static void note_overlap(int function, int id, const struct scheduled *found)
{
  if (!collectives_overlap() || !is_op_explained(&graph->op[id])) return;
  const double bytes = (double)max_volume_of(&graph->op[id]).received;
  const struct alternative list[] = {
      {BESIDE, bytes, found->overlapped ? (double)found->exposed * 1e-12 : NONE},
      {BLOCKING, bytes, (double)found->time * 1e-12}};
  note_decision("overlap", overlap_subject(function, id), list, 2, !found->overlapped);
}

/* ----------------------------------------------------------------------------------- the search */

struct candidate {
  int from, to;
  int64_t time;
};

static void try_move(struct search *t, struct candidate *best, int from, int to)
{
  move(t, from, to);
  int64_t time = simulate_span(t->s);
  if (time < best->time) *best = (struct candidate){from, to, time};
  go_back_to(t->s, t->tried);
}

static bool can_move(struct search *t, int from, int to)
{
  int n = t->s->order[from];
  return t->s->node[n].movable && !t->barred[n] && find_along(t, from, to);
}

/* The move that makes the function quickest: an operation shortly before the collective, or
   after its await, moves between the two. time: without a move. */
static struct candidate best_move(struct search *t, int c, int64_t time)
{
  enum { NEAR = 48, MOST_TRIED = 6 };
  struct candidate best = {NONE, NONE, time};
  int at = t->s->place[c], end = first_dependent(t->s, c), ntried = 0;
  keep_order(t->s, t->tried);
  for (int k = at - 1; k >= 0 && k > at - NEAR && ntried < MOST_TRIED; k--)
    if (can_move(t, k, at)) try_move(t, &best, k, at), ntried++;
  ntried = 0;
  for (int k = end + 1; k < t->s->nnode && k < end + NEAR && ntried < MOST_TRIED; k++)
    if (can_move(t, k, end)) try_move(t, &best, k, end), ntried++;
  return best;
}

/* Makes the collective and its predecessor asynchronous, and gives them work to overlap with.
   Returns false, and leaves everything as it was, if the function is not quicker, or too many bytes
   would live. */
static bool overlap_give_work(struct search *t, int c, int64_t most)
{
  enum { MOST_MOVES = 32 };
  struct span *s = t->s;
  struct op_node *node = &s->node[c];
  struct op_node *predecessor = node->predecessor == NONE ? NULL : &s->node[node->predecessor];
  bool async = node->async, predecessor_async = predecessor && predecessor->async;
  int64_t was = simulate_span(s);
  memset(t->barred, 0, (size_t)s->nnode);
  keep_order(s, t->original);
  node->async = true;
  if (predecessor) predecessor->async = true;
  close_up_all(s);
  int64_t time = simulate_span(s);
  for (int n = 0; n < MOST_MOVES && node->exposed; n++) {
    struct candidate best = best_move(t, c, time);
    if (best.from == NONE) break;
    keep_order(s, t->kept);
    find_along(t, best.from, best.to);
    move(t, best.from, best.to);
    if (peak_now(t) > most) {
      go_back_to(s, t->kept);
      t->barred[s->order[best.from]] = true;
    }
    time = simulate_span(s);
    if (n + 1 == MOST_MOVES && node->exposed)
      ended_early("schedule", "work beside a collective", MOST_MOVES, "moves");
  }
  if ((time < was && peak_now(t) <= most && overlap_fits(t)) || is_forced(t, c, BESIDE))
    return true;
  node->async = async;
  if (predecessor) predecessor->async = predecessor_async;
  go_back_to(s, t->original);
  return false;
}

/* Issues a collective that follows a loop, and does not depend on it, before the loop, if that is
   quicker: the parameters for the operations after the layers are gathered while the layers run. */
static void issue_before_loop(struct search *t, int c, int64_t most)
{
  struct span *s = t->s;
  struct op_node *node = &s->node[c];
  int at = s->place[c], loop = at - 1;
  while (loop >= 0 && s->node[s->order[loop]].body == NONE) loop--;
  if (loop < 0 || t->program->blocks[s->node[s->order[loop]].body][node->group]) return;
  if (!find_along(t, at, loop)) return;
  bool async = node->async;
  int64_t was = simulate_span(s);
  keep_order(s, t->kept);
  move(t, at, loop);
  node->async = true;
  if (simulate_span(s) < was && peak_now(t) <= most && overlap_fits(t)) return;
  node->async = async;
  go_back_to(s, t->kept);
}

/* Whether the collective is one to give work to, and the search may go on. */
static bool is_open(const struct search *t, int n)
{
  const struct op_node *node = &t->s->node[n];
  if (node->group == NONE || node->carried || is_forced(t, n, BLOCKING)) return false;
  if (t->program->visited < MOST_VISITED) return true;
  ended_early("schedule", "collectives beside arithmetic", MOST_VISITED, "operations looked at");
  return false;
}

/* Moves the issue of a first iteration's collective after the collectives of its group before
   the loop, as far as the function becomes no slower. */
static void place_first_issue(struct span *s, int n)
{
  int first = s->place[n], best = first;
  int64_t least = simulate_span(s);
  for (int at = first + 1; at < s->nnode; at++) {
    const struct op_node *passed = &s->node[s->order[at]];
    if (passed->body != NONE || passed->carried) break;
    if (passed->group != s->node[n].group) continue;
    move_node(s, n, at);
    int64_t time = simulate_span(s);
    if (time <= least) best = at, least = time;
  }
  move_node(s, n, best);
}

/* --------------------------------------------------------------------------------- the function */

/* Records for each collective the result of the search: its time and its exposed time; and the
   collectives that are in flight when the function ends. Returns the time of the span. */
static int64_t note_times(struct span *s, int function)
{
  struct overlap *o = s->program;
  int64_t time = simulate_span(s);
  for (int n = 0; n < s->nnode; n++) {
    const struct op_node *node = &s->node[n];
    if (node->group == NONE || node->carried == ISSUES_FIRST) continue;
    int id = node->carried ? node->collective : node->op;
    struct scheduled *found = schedule_of(id);
    found->overlapped = node->async;
    if (!node->carried) {
      found->chained_to = is_chained(s, n) ? s->node[node->predecessor].op : NONE;
      found->has_chained = has_chained(s, n);
    }
    found->time = node->time;
    found->exposed = node->exposed;
    if (are_decisions_explained() && !node->carried) note_overlap(function, id, found);
    o->blocks[function][graph->op[id].group] |= !found->overlapped;
    if (node->carried == AWAITED_NEXT)
      leave_in_flight(o, node->op, function, s->streams.end[n] - s->streams.times.now);
  }
  return time;
}

/* The chunks of a collective are asynchronous before the search: a single one would gain nothing
   while the next one blocks. The first issues of later iterations get their places first, and so
   keep their order. */
static int64_t order_span(struct search *t, const int *op, int n)
{
  struct span *s = t->s = find_span(t->program, op, n);
  open_streams(s);
  for (int i = s->nnode; i-- > 0;)
    if (s->node[i].carried == ISSUES_FIRST) place_first_issue(s, i);
  if (t->more != NONE) {
    for (int i = 0; i < s->nnode; i++)
      s->node[i].async |= s->node[i].group != NONE && graph->op[s->node[i].op].pieces;
    size_t nodes = (size_t)t->s->nnode;
    t->original = alloc(nodes * sizeof *t->original);
    t->kept = alloc(nodes * sizeof *t->kept);
    t->tried = alloc(nodes * sizeof *t->tried);
    t->barred = alloc(nodes);
    t->along = alloc(nodes);
    t->moved = alloc(nodes * sizeof *t->moved);
    t->op = alloc(2 * nodes * sizeof *t->op);
    int64_t least = peak_now(t), most = least + t->more;
    for (int i = 0; i < t->s->nnode && collectives_overlap(); i++)
      if (is_open(t, i)) issue_before_loop(t, i, most);
    for (int pass = 0; pass < 2; pass++)
      for (int i = 0; i < t->s->nnode; i++)
        if (is_open(t, i) && !overlap_give_work(t, i, most) && t->asks_memory)
          overlap_give_work(t, i, least);
  }
  queue_behind_in_flight(s);
  int64_t time = note_times(s, (int)(t->function - graph->function));
  int *list = alloc((size_t)(2 * n + 1) * sizeof *list);
  for (int i = 0, count = write_order(s, list); i < count; i++) add(&t->done, list[i]);
  return time;
}

/* A long function is ordered in spans: the time of the search grows faster than the length. */
static void order_function(struct search *t, const int *op, int n)
{
  struct overlap *o = t->program;
  int which = (int)(t->function - graph->function);
  o->time[which] = 0;
  memset(o->blocks[which], 0, (size_t)graph->ngroup);
  t->done = (struct list){0};
  for (int first = 0; first < n; first += LONGEST_ORDERED) {
    int length = n - first < LONGEST_ORDERED ? n - first : LONGEST_ORDERED;
    t->rest = op + first + length;
    t->nrest = n - first - length;
    int64_t time = order_span(t, op + first, length);
    o->time[which] = time < LONGEST_TIME - o->time[which] ? o->time[which] + time : LONGEST_TIME;
  }
  t->function->op = t->done.at;
  t->function->nop = t->done.n;
}

int64_t overlap_function(struct overlap *o, struct function *f, int64_t most_live)
{
  const int *op = f->op, n = f->nop;
  struct search t = {.program = o, .function = f, .more = most_live / 32};
  t.most_live = most_live + t.more;
  bool has_collectives = false;
  for (int i = 0; i < n && !has_collectives; i++)
    has_collectives = is_collective(graph->op[op[i]].kind) || graph->op[op[i]].kind == OP_iteration;
  if (has_collectives && is_of_batch(f->phase)) {
    enter_function(o->live, f);
    for (int careful = 0; careful < 2; careful++) {
      t.asks_memory = careful;
      order_function(&t, op, n);
      if (overlap_has_room(&t)) return o->time[f - graph->function];
    }
  }
  t.more = NONE;
  order_function(&t, op, n);
  return o->time[f - graph->function];
}

/* Functions made later are parts of loops' bodies, and are not ordered. */
struct overlap *open_overlap(struct liveness *live)
{
  struct overlap *o = alloc(sizeof *o);
  o->live = live;
  o->time = alloc((size_t)graph->nfunction * sizeof *o->time);
  o->blocks = alloc((size_t)graph->nfunction * sizeof *o->blocks);
  for (int i = 0; i < graph->nfunction; i++) o->blocks[i] = alloc((size_t)graph->ngroup + 1);
  open_dependences(o);
  return o;
}
