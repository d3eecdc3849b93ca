/* overlap.c: a part of the pass `schedule`: which collectives run beside arithmetic, and beside
   which.

   Takes   a function in an order in which little is alive at once.
   Leaves  some of its collectives `beside`: such a one begins at its place, on its group's stream,
           and is awaited by an `await` further on, right before the first operation that needs
           what it makes or writes what it reads, at the latest at the function's end. Operations
           that it doesn't need, and that don't need it, have moved between the two. All others run
           where they stand. The order is the same on every rank, and so are the awaits.

   By the model of cost.c a collective is given work to run beside it until none of it is waited
   for: of what stands shortly before it and after it, one operation after the other, each time the
   one that makes the function quickest. A collective that is not quicker for it, what an event
   costs counted, stays as it is.

   What waits meanwhile is kept alive: that may cost a thirty-second of what lives at most in the
   program, and no more. On the way the estimate of schedule.c serves; in the end memory.c is asked,
   and where it finds more, asked for each collective anew.

   Collectives of one group run in the order of the program, whatever they run beside: one that is
   issued while another is pending follows it on the group's stream.

   Bytes that nothing needs any more in the order of the program may be written again, on any
   stream: memory.c knows no other order. That is safe because whatever runs on a group's stream
   begins behind all that stands before it: `stream` has come to each await before it, and it waits
   for `stream`. One that begins as soon as its leader is done waits for that one alone: so it is
   issued right behind it, all that it needs is awaited before both, and the leader has waited for
   it all. See follows().

   What is pending from one round of a loop to the next (ahead.c) stays so: its operations stand
   where they stood among those that need them, and the others move around them. How long such a
   collective is waited for is told by the last of some rounds, one behind the other.

   The search is bounded by what it goes through, far beyond what a program takes whose layers are
   loops: of a very long one the last collectives stay where they stand. */
#include "schedule.h"

#include <string.h>

/* An operation of the function: those that have to come before it, and behind it. What concerns
   several rounds of a loop is of a kind of its own. */
struct node {
  int op, group; /* group: of a collective, else NONE */
  enum {
    WITHIN,   /* a round, as everything in a phase but for these */
    FETCHES,  /* awaits a collective that was begun a round ago, and begins that of the next round:
                 two operations, `op` and `then` */
    REDUCES,  /* a collective that is awaited in the next round */
    FINISHES, /* awaits that one, in the next round or behind the loop */
    BEGINS    /* in a phase: begins the first round's, which the loop awaits */
  } crosses;
  int then;
  int crossing; /* but WITHIN: the collective */
  bool moves;   /* it may */
  bool beside;
  int leader, follower; /* of a collective: which it can follow, and which can follow it, or NONE */
  int64_t time, exposed; /* exposed: how long a collective is waited for, as last simulated */
  int64_t lead, tail;    /* of a collective: what is copied or computed before it, and after it; of
                            what finishes one, after its await */
  int64_t flying[MOST_PREFETCHED]; /* of what is FETCHED: when those end that are begun and not
                                      awaited */
  int nflying;
  struct list before, behind;
};

static struct node *node;
static int nnode;
static int *order, *place; /* the nodes in their order; by node, its place */

/* By function: how long it takes, and by group whether a collective of it runs among arithmetic. */
static int64_t *taken;
static bool **alone;
/* Collectives that are pending when a loop has ended: how long they still take then, and until when
   as last simulated. */
struct left {
  int op, function; /* function: the loop's body */
  int64_t time, end;
};
static struct {
  int n, room;
  struct left *at;
} lefts;

/* --------------------------------------------------------------------------------- dependences */

/* What the last operations did to a value: who made it, and who has read it since. */
struct touched {
  int round; /* of find_dependences that it is of */
  int writer;
  struct list readers, pieces; /* pieces: who wrote one since the writer */
};
static struct touched *touched; /* by speaker */
static int round_now;

static int *speakers; /* by value: its speaker and 1, or 0 where nobody has asked yet */

static int find_speaker(int value)
{
  const struct value *v = &graph->value[value];
  if (v->role == GRADIENT) return graph->nvalue + v->of;
  if (v->role == SUMS) return 2 * graph->nvalue + v->of;
  if (v->role == LOSS) return 3 * graph->nvalue;
  if (v->family != NONE && v->family != value) return byte_speaker(v->family);
  return has_no_bytes(value) ? byte_speaker(graph->op[v->op].in[0]) : value;
}

int byte_speaker(int value)
{
  if (!speakers[value]) speakers[value] = find_speaker(value) + 1;
  return speakers[value] - 1;
}

static struct touched *touched_at(int value)
{
  struct touched *t = &touched[byte_speaker(value)];
  if (t->round != round_now) {
    t->round = round_now;
    t->writer = NONE;
    t->readers.n = t->pieces.n = 0;
  }
  return t;
}

static void depend(int later, int earlier)
{
  if (earlier == NONE || earlier == later) return;
  for (int i = 0; i < node[later].before.n; i++)
    if (node[later].before.at[i] == earlier) return;
  add(&node[later].before, earlier);
  add(&node[earlier].behind, later);
}

static int piece_of(int n, int value)
{
  return piece_touched(&graph->op[node[n].op], value);
}

/* As those of the list do: but for those that touch another piece of the value. */
static void depend_on_all(int n, const struct list *list, int value)
{
  for (int i = 0; i < list->n; i++) {
    int mine = piece_of(n, value), its = mine == NONE ? NONE : piece_of(list->at[i], value);
    if (its == NONE || its == mine) depend(n, list->at[i]);
  }
}

static void note_read(int n, int value)
{
  struct touched *t = touched_at(value);
  if (graph->value[value].step) note_read(n, graph->value[value].initial);
  depend(n, t->writer);
  depend_on_all(n, &t->pieces, value);
  if (!t->readers.n || t->readers.at[t->readers.n - 1] != n) add(&t->readers, n);
}

static void note_write(int n, int value)
{
  struct touched *t = touched_at(value);
  depend(n, t->writer);
  depend_on_all(n, &t->readers, value);
  depend_on_all(n, &t->pieces, value);
  if (piece_of(n, value) != NONE) {
    add(&t->pieces, n);
    return;
  }
  t->writer = n;
  t->readers.n = t->pieces.n = 0;
}

/* The end of a collective of another round stands for all that it, and what it follows, reads and
   writes: what comes behind may write over the one, and read the other. */
static int crossing_writes(const struct op *c, int *list)
{
  if (c->ahead || c->late) return op_makes(c, list);
  int n = pending_reads(c, list);
  n += pending_writes(c, list + n);
  return leader_of(c) ? n + crossing_writes(leader_of(c), list + n) : n;
}

static int touches(const struct op *op, bool writes, int *list)
{
  bool crosses = op->kind == OP_await;
  if (crosses && writes) return crossing_writes(&graph->op[op->begun], list);
  return writes ? op_makes(op, list) : op_reads(op, list);
}

static void each_touch(int n, const struct op *op, bool writes)
{
  static int *list, room;
  if (op->kind == OP_loop || op->kind == OP_round) {
    const struct function *body = &graph->function[op->function];
    for (int k = 0; k < body->nop; k++) each_touch(n, &graph->op[body->op[k]], writes);
    return;
  }
  while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
  int count = touches(op, writes, list);
  for (int i = 0; i < count; i++) (writes ? note_write : note_read)(n, list[i]);
}

static bool is_loop(int n)
{
  return graph->op[node[n].op].kind == OP_loop;
}

/* A loop in which a collective of the group runs among arithmetic waits for those before it. */
static void depend_in_group(int loop)
{
  const bool *waits = alone[graph->op[node[loop].op].function];
  for (int i = 0; i < loop; i++)
    if (node[i].group != NONE && waits[node[i].group]) depend(loop, i);
}

/* Of what the modules of a list have alike the first one's speaks, in the loop; what touches
   another's outside of it has to wait as well. */
static void depend_on_finish(int n)
{
  for (int i = n + 1; i < nnode; i++)
    if (touches_gradients_of(&graph->op[node[i].op], &graph->op[node[n].crossing])) depend(i, n);
}

static void find_dependences(void)
{
  round_now++;
  for (int i = 0; i < nnode; i++) {
    each_touch(i, &graph->op[node[i].op], false);
    each_touch(i, &graph->op[node[i].op], true);
    if (node[i].crosses == FETCHES) each_touch(i, &graph->op[node[i].then], false);
    if (node[i].crosses == FETCHES) each_touch(i, &graph->op[node[i].then], true);
    if (is_loop(i)) depend_in_group(i);
    if (node[i].crosses == FINISHES) depend_on_finish(i);
  }
}

/* ------------------------------------------------------------------------------------ the model */

/* Whether the collective begins when its leader is done, which is awaited with it, and waits for
   nothing else: there must be nothing between the two. */
static bool follows(int n)
{
  int leader = node[n].leader;
  return leader != NONE && node[n].beside && node[leader].beside && place[n] == place[leader] + 1;
}

static bool leads(int n)
{
  return node[n].follower != NONE && follows(node[n].follower);
}

static int first_behind(int n)
{
  int first = nnode;
  for (int i = 0; i < node[n].behind.n; i++)
    if (place[node[n].behind.at[i]] < first) first = place[node[n].behind.at[i]];
  return first;
}

/* The streams while a function runs: until when each has work, and which nodes are pending. */
static struct {
  int64_t now, *until; /* until: by group */
  int64_t *end;        /* by node: of a pending one, else 0 */
  struct list pending;
} streams;

/* Whether a collective of the group is pending in every round, all the time. */
static bool is_crossed(int group)
{
  for (int n = 0; n < nnode; n++)
    if (node[n].group == group && (node[n].crosses == FETCHES || node[n].crosses == REDUCES))
      return true;
  return false;
}

static bool is_pending(int group)
{
  for (int i = 0; i < streams.pending.n; i++)
    if (node[streams.pending.at[i]].group == group) return true;
  return is_crossed(group);
}

/* When the first of those ends that are on their way. */
static int64_t first_flying(struct node *c)
{
  int64_t end = c->nflying ? c->flying[0] : 0;
  if (c->nflying) memmove(c->flying, c->flying + 1, (size_t)--c->nflying * sizeof end);
  return end;
}

static void await(int n)
{
  int64_t end = node[n].crosses == FETCHES ? first_flying(&node[n]) : streams.end[n];
  streams.end[n] = 0;
  node[n].exposed = end > streams.now ? end - streams.now : 0;
  if (end > streams.now) streams.now = end;
  if (!leads(n)) streams.now += node[n].tail;
}

static bool needs(int n, int pending)
{
  if (pending == node[n].leader && follows(n)) return false;
  for (int i = 0; i < node[n].before.n; i++)
    if (node[n].before.at[i] == pending) return true;
  return false;
}

/* Whether the operation wants that the pending collective is done: what it needs, or what follows
   it does. */
static bool wants(int n, int pending)
{
  return needs(n, pending) || (leads(n) && needs(node[n].follower, pending));
}

/* A loop is the one that awaits what was begun for its first round. */
static void await_wanted(int n)
{
  int left = 0;
  for (int i = 0; i < streams.pending.n; i++) {
    int p = streams.pending.at[i];
    if (n == nnode || wants(n, p))
      await(p);
    else
      streams.pending.at[left++] = p;
  }
  streams.pending.n = left;
}

/* Gives the collective to its group's stream. */
static void start(int n)
{
  struct node *c = &node[n];
  int64_t *until = &streams.until[c->group];
  int64_t start = *until > streams.now ? *until : streams.now;
  if (follows(n) && start < streams.end[c->leader]) start = streams.end[c->leader];
  *until = start + c->time + (c->beside ? events_time() : 0) + (leads(n) ? c->tail : 0);
  streams.end[n] = *until;
  if (c->crosses == FETCHES && c->nflying < MOST_PREFETCHED) c->flying[c->nflying++] = *until;
}

static void run_collective(int n)
{
  struct node *c = &node[n];
  if (c->crosses == FETCHES) await(n);
  streams.now += c->lead;
  start(n);
  if (c->crosses == FETCHES || c->crosses == REDUCES) return;
  if (c->beside)
    add(&streams.pending, n);
  else
    await(n);
}

static const struct left *left_of(int collective)
{
  for (int i = 0; i < lefts.n; i++)
    if (lefts.at[i].op == collective) return &lefts.at[i];
  return NULL;
}

/* What the loop leaves on the streams when it is done. */
static void leave_streams(int function)
{
  for (int i = 0; i < lefts.n; i++) {
    struct left *l = &lefts.at[i];
    int64_t *until = &streams.until[graph->op[l->op].group];
    if (l->function != function) continue;
    l->end = streams.now + l->time;
    if (*until < l->end) *until = l->end;
  }
}

/* Awaits the collective of the round before, or of the loop's last round. */
static void finish(int n)
{
  for (int m = 0; m < nnode; m++) {
    if (node[m].crosses != REDUCES || node[m].op != node[n].crossing) continue;
    if (streams.end[m]) await(m);
    return;
  }
  const struct left *left = left_of(node[n].crossing);
  if (left && left->end > streams.now) streams.now = left->end;
}

static void run_round(void)
{
  for (int k = 0; k < nnode; k++) {
    int n = order[k];
    await_wanted(n);
    if (node[n].crosses == FINISHES)
      finish(n), streams.now += node[n].tail;
    else if (node[n].group != NONE)
      run_collective(n);
    else
      streams.now += node[n].time;
    if (is_loop(n)) leave_streams(graph->op[node[n].op].function);
  }
  await_wanted(nnode);
}

/* What was begun before the first round; by how many rounds at most, of what rounds wait for. */
static int begin_rounds(void)
{
  int most = 0;
  for (int round = 0; round < MOST_PREFETCHED; round++)
    for (int k = 0; k < nnode; k++) {
      const struct node *n = &node[order[k]];
      int ahead = n->crosses == FETCHES ? graph->op[n->crossing].ahead : n->crosses == REDUCES;
      if (n->crosses == FETCHES && round < ahead) start(order[k]);
      if (most < ahead) most = ahead;
    }
  return most;
}

/* How many nodes the search has gone through, of the functions of the program together, and after
   how many it ends: far more than where layers are loops. What a peak takes counts as much more as
   it is slower to find. */
static int64_t gone_through;
enum { MOST_GONE_THROUGH = 100000000, PEAK_TAKES = 16 };

/* How long the nodes take in their order; of a loop's body, of which rounds wait for each other, a
   round behind others. Leaves what is exposed of each. */
static int64_t simulate(void)
{
  gone_through += nnode;
  streams.now = 0;
  streams.pending.n = 0;
  memset(streams.until, 0, (size_t)graph->ngroup * sizeof *streams.until);
  memset(streams.end, 0, (size_t)nnode * sizeof *streams.end);
  for (int n = 0; n < nnode; n++) node[n].nflying = 0;
  int most = begin_rounds(), rounds = most ? 2 + most : 1;
  int64_t began = 0;
  for (int round = 0; round < rounds; round++) {
    began = streams.now;
    run_round();
  }
  return streams.now - began;
}

/* ---------------------------------------------------------------------------------------- moves */

static void note_places(int from, int to)
{
  for (int k = from; k <= to; k++) place[order[k]] = k;
}

/* What has to move along with a node. */
static struct {
  int n;
  bool *has; /* by node */
} along;

static void take_along(int n)
{
  along.has[n] = true;
  along.n++;
}

static bool has_any(const struct list *list)
{
  for (int i = 0; i < list->n; i++)
    if (along.has[list->at[i]]) return true;
  return false;
}

/* The node at `from` and what needs it, or what it needs, on its way to `to`: false where that is
   more than a few, the node at `to` itself, or cannot be. */
static bool find_along(int from, int to)
{
  enum { FEW = 4 };
  int step = from < to ? 1 : -1;
  bool loops = false, collectives = false;
  along.n = 0;
  memset(along.has, 0, (size_t)nnode * sizeof *along.has);
  take_along(order[from]);
  for (int k = from + step; k != to + step; k += step) {
    const struct node *other = &node[order[k]];
    bool comes = has_any(step > 0 ? &other->before : &other->behind);
    bool stays = is_loop(order[k]) || other->crosses == FETCHES || other->crosses == BEGINS;
    if (comes && (k == to || stays || along.n == FEW)) return false;
    if (comes) take_along(order[k]);
    loops |= is_loop(order[k]);
    collectives |= comes && (other->group != NONE || other->crosses);
  }
  return !loops || !collectives;
}

/* Moves a node that depends on none of those between to this place. */
static void move_node(int n, int to)
{
  int from = place[n], step = from < to ? 1 : -1;
  for (int k = from; k != to; k += step) order[k] = order[k + step];
  order[to] = n;
  note_places(from < to ? from : to, from < to ? to : from);
}

/* Brings what can follow another right behind it, where both run beside others: but across nothing
   that it needs, or that stays in its place. (What the follower needs the leader needs.) */
static void close_up(int follower)
{
  int leader = node[follower].leader, at = place[follower];
  while (--at > place[leader]) {
    const struct node *between = &node[order[at]];
    if (is_loop(order[at]) || between->crosses == FETCHES || between->crosses == BEGINS) return;
    if (needs(follower, order[at])) return;
  }
  if (at == place[leader]) move_node(follower, at + 1);
}

static void close_up_all(void)
{
  for (int n = 0; n < nnode; n++)
    if (node[n].leader != NONE && node[n].beside && node[node[n].leader].beside) close_up(n);
}

/* Moves a node with what has to move along to the other side of the one at `to`. */
static void move(int from, int to)
{
  static int *moved, room;
  while (room < nnode) moved = grow(moved, 0, &room, sizeof *moved);
  int first = from < to ? from : to, last = from < to ? to : from, n = 0;
  for (int side = 0; side < 2; side++)
    for (int k = first; k <= last; k++)
      if (along.has[order[k]] == (from < to ? side == 1 : side == 0)) moved[n++] = order[k];
  memcpy(order + first, moved, (size_t)n * sizeof *order);
  note_places(first, last);
  close_up_all();
}

static void keep_order(int *kept)
{
  memcpy(kept, order, (size_t)nnode * sizeof *order);
}

static void take_order(const int *kept)
{
  memcpy(order, kept, (size_t)nnode * sizeof *order);
  note_places(0, nnode - 1);
}

/* Whether the one that follows it is awaited here, or with one that follows that, and it with them.
 */
static bool ends_with_follower(int n, int p)
{
  int follower = node[p].follower;
  for (int i = 0; i < streams.pending.n && leads(p); i++)
    if (streams.pending.at[i] == follower)
      return n == nnode || wants(n, follower) || ends_with_follower(n, follower);
  return false;
}

/* Writes the operations in their order, with the awaits of what runs beside others; how many. */
static int *with_awaits;

static int write_order(int *op)
{
  int count = 0;
  streams.pending.n = 0;
  for (int k = 0; k <= nnode; k++) {
    int left = 0, n = k < nnode ? order[k] : nnode;
    for (int i = 0; i < streams.pending.n; i++) {
      int p = streams.pending.at[i];
      if (ends_with_follower(n, p)) continue;
      if (n == nnode || wants(n, p))
        op[count++] = with_awaits[p];
      else
        streams.pending.at[left++] = p;
    }
    streams.pending.n = left;
    if (n == nnode) break;
    op[count++] = node[n].op;
    if (node[n].crosses == FETCHES) op[count++] = node[n].then;
    if (node[n].beside && !node[n].crosses) add(&streams.pending, n);
  }
  return count;
}

static int64_t peak_now(void)
{
  gone_through += PEAK_TAKES * nnode;
  static int *op, room;
  while (room < 2 * nnode) op = grow(op, 0, &room, sizeof *op);
  return peak_of(op, write_order(op));
}

struct trial {
  int from, to;
  int64_t time;
};

static void try_move(struct trial *best, int from, int to, const int *kept)
{
  move(from, to);
  int64_t time = simulate();
  if (time < best->time) *best = (struct trial){from, to, time};
  take_order(kept);
}

/* The move of an operation that stands shortly before the collective, or after its await, to run
   beside it, by which the function is quickest; time: as it is without. */
static struct trial best_move(int c, int64_t time, const bool *barred)
{
  enum { NEAR = 48, TRIED = 6 };
  static int *kept, room;
  while (room < nnode) kept = grow(kept, 0, &room, sizeof *kept);
  struct trial best = {NONE, NONE, time};
  int at = place[c], end = first_behind(c), tried = 0;
  keep_order(kept);
  for (int k = at - 1; k >= 0 && k > at - NEAR && tried < TRIED; k--)
    if (node[order[k]].moves && !barred[order[k]] && find_along(k, at))
      try_move(&best, k, at, kept), tried++;
  tried = 0;
  for (int k = end + 1; k < nnode && k < end + NEAR && tried < TRIED; k++)
    if (node[order[k]].moves && !barred[order[k]] && find_along(k, end))
      try_move(&best, k, end, kept), tried++;
  return best;
}

/* Where memory.c is asked for each collective: the function, and what of it stands before and after
   the nodes. */
static struct {
  struct function *function; /* NULL: it is not asked */
  const struct list *before;
  const int *after;
  int nafter, asked;
  int64_t most_live;
  int64_t lived; /* of how many operations memory.c was asked, of one order after the other */
} whole;

/* Whether the program as it stands can live so: not where that was asked of very much already. */
static bool may_live(void)
{
  enum { MOST_ASKED = 1500000 };
  return may_ask_again(&whole.lived, MOST_ASKED) && can_live_in(whole.most_live);
}

/* Whether the program can live with the nodes in their order; not more often than it may be
   asked. */
static bool fits(void)
{
  enum { MOST_ASKED = 32 };
  if (!whole.function) return true;
  if (whole.asked++ >= MOST_ASKED) return false;
  int n = whole.before->n, *op = alloc((size_t)(n + 2 * nnode + whole.nafter) * sizeof *op);
  if (n) memcpy(op, whole.before->at, (size_t)n * sizeof *op);
  n += write_order(op + n);
  if (whole.nafter) memcpy(op + n, whole.after, (size_t)whole.nafter * sizeof *op);
  whole.function->op = op;
  whole.function->nop = n + whole.nafter;
  return may_live();
}

/* What trials need room for: orders to go back to; by node, whether it would take too much to move
   it. */
static struct {
  int *before, *kept;
  bool *barred;
} trials;

/* Gives the collective work to run beside it, as long as that is quicker; false where none is. */
static bool give_work(int c, int64_t most)
{
  enum { MOVES = 32 };
  int *before = trials.before, *kept = trials.kept;
  bool *barred = trials.barred, beside = node[c].beside;
  memset(barred, 0, (size_t)nnode * sizeof *barred);
  int leader = node[c].leader;
  bool led = leader != NONE && node[leader].beside;
  int64_t was = simulate();
  keep_order(before);
  node[c].beside = true;
  if (leader != NONE) node[leader].beside = true;
  close_up_all();
  int64_t time = simulate();
  for (int n = 0; n < MOVES && node[c].exposed; n++) {
    struct trial best = best_move(c, time, barred);
    if (best.from == NONE) break;
    keep_order(kept);
    find_along(best.from, best.to);
    move(best.from, best.to);
    if (peak_now() > most) {
      take_order(kept);
      barred[order[best.from]] = true;
    }
    time = simulate();
  }
  if (time < was && peak_now() <= most && fits()) return true;
  node[c].beside = beside;
  if (leader != NONE) node[leader].beside = led;
  take_order(before);
  return false;
}

/* Begins what stands behind a loop, and needs nothing of it, before it, if that is quicker: the
   parameters of what follows the layers are gathered beside these. */
static void begin_before_loop(int c, int64_t most)
{
  int at = place[c], loop = at - 1, *kept = trials.kept;
  while (loop >= 0 && !is_loop(order[loop])) loop--;
  if (loop < 0 || alone[graph->op[node[order[loop]].op].function][node[c].group]) return;
  if (!find_along(at, loop)) return;
  bool beside = node[c].beside;
  int64_t was = simulate();
  keep_order(kept);
  move(at, loop);
  node[c].beside = true;
  if (simulate() < was && peak_now() <= most && fits()) return;
  node[c].beside = beside;
  take_order(kept);
}

static void make_trials(void)
{
  trials.before = alloc((size_t)nnode * sizeof *trials.before);
  trials.kept = alloc((size_t)nnode * sizeof *trials.kept);
  trials.barred = alloc((size_t)nnode * sizeof *trials.barred);
}

static bool may_go_on(void)
{
  return gone_through < MOST_GONE_THROUGH;
}

static void give_all_work(int64_t more)
{
  make_trials();
  int64_t least = peak_now();
  for (int n = 0; n < nnode; n++)
    if (node[n].group != NONE && !node[n].crosses && options.cuda && may_go_on())
      begin_before_loop(n, least + more);
  for (int round = 0; round < 2; round++)
    for (int n = 0; n < nnode; n++)
      if (node[n].group != NONE && !node[n].crosses && may_go_on() && !give_work(n, least + more) &&
          whole.function)
        give_work(n, least);
}

/* Moves what is begun for a loop's first round behind that one of its group's collectives before
   the loop, or before them all, where the function is quickest. */
static void find_begin(int n)
{
  int first = place[n], best = first;
  int64_t least = simulate();
  for (int at = first + 1; at < nnode; at++) {
    const struct node *passed = &node[order[at]];
    if (is_loop(order[at]) || passed->crosses) break;
    if (passed->group != node[n].group) continue;
    move_node(n, at);
    int64_t time = simulate();
    if (time <= least) best = at, least = time;
  }
  move_node(n, best);
}

/* Those of later rounds find their places first: they stay in their order. */
static void find_begins(void)
{
  for (int n = nnode; n-- > 0;)
    if (node[n].crosses == BEGINS) find_begin(n);
}

static void depend_on_pending(int n)
{
  for (int i = 0; i < streams.pending.n; i++) {
    int p = streams.pending.at[i];
    if (node[p].group == node[n].group && !node[p].crosses) depend(n, p);
  }
}

/* Whether the collective runs on the group's stream, or the one that it follows does. */
static bool is_of_group(int collective, int group)
{
  const struct op *op = &graph->op[collective], *leader = leader_of(op);
  return op->group == group || (leader && leader->group == group);
}

/* Whether at this place a collective of the group is pending that a loop has left. */
static bool is_left(int at, int group)
{
  for (int k = at + 1; k < nnode; k++) {
    const struct node *finish = &node[order[k]];
    if (finish->crosses != FINISHES || !is_of_group(finish->crossing, group)) continue;
    const struct op *call = &graph->op[finish->op];
    int body = call->kind == OP_round ? graph->function[call->function].body
                                      : left_of(finish->crossing)->function;
    for (int before = 0; before < at; before++)
      if (is_loop(order[before]) && graph->op[node[order[before]].op].function == body) return true;
  }
  return false;
}

/* What is issued while another of its group is pending runs on the same stream; or, where it would
   be awaited at once, after that one's await. Gives whether what a collective follows is pending
   for longer than this was told: the collective has come to run beside others itself. */
static bool follow_pending_once(void)
{
  bool longer = false;
  streams.pending.n = 0;
  for (int k = 0; k < nnode; k++) {
    int n = order[k];
    if (node[n].group != NONE && !node[n].beside && first_behind(n) == k + 1) depend_on_pending(n);
    await_wanted(n);
    if (node[n].group == NONE || node[n].crosses == FETCHES || node[n].crosses == REDUCES) continue;
    bool awaits_leader = !follows(n);
    node[n].beside |= is_pending(node[n].group) || is_left(k, node[n].group);
    longer |= awaits_leader && follows(n);
    if (node[n].beside) add(&streams.pending, n);
  }
  return longer;
}

static void follow_pending(void)
{
  while (follow_pending_once()) continue;
}

/* -------------------------------------------------------------------------------- the function */

static void add_awaits(void)
{
  with_awaits = alloc((size_t)nnode * sizeof *with_awaits);
  for (int n = 0; n < nnode; n++) {
    if (node[n].group == NONE) continue;
    const struct op *c = &graph->op[node[n].op];
    struct op op = {.kind = OP_await,
                    .out = NONE,
                    .begun = node[n].op,
                    .group = c->group,
                    .phase = c->phase,
                    .module = c->module,
                    .line = c->line};
    GROW(graph->op, graph->nop, graph->op_room);
    graph->op[graph->nop] = op;
    with_awaits[n] = graph->nop++;
  }
}

static int64_t time_of_loop(int function)
{
  int64_t time = taken[function], count = graph->function[function].count;
  return time < LONGEST_TIME / count ? time * count : LONGEST_TIME;
}

/* The part of a loop's body that the operation calls, which has one collective: its last operation,
   or what its first awaits. */
static int crossing_of(const struct op *call)
{
  const struct function *part = &graph->function[call->function];
  const struct op *first = &graph->op[part->op[0]];
  return first->kind == OP_await ? first->begun : part->op[part->nop - 1];
}

/* How long the part takes before its collective, or behind its await. */
static int64_t time_besides(const struct op *call)
{
  const struct function *part = &graph->function[call->function];
  int64_t time = 0;
  for (int k = 0; k < part->nop; k++) {
    const struct op *op = &graph->op[part->op[k]];
    if (op->kind != OP_await && !is_collective(op->kind)) time += time_taken(op);
  }
  return time;
}

static void find_copies(struct node *n, const struct op *c)
{
  if (!c->packed || c->kind == OP_all_reduce) return; /* that may lie in its buffer */
  n->lead = copies_in_time(c);
  n->tail = copies_out_time(c);
}

static void cross(struct node *n, int crosses, int collective)
{
  const struct op *c = &graph->op[collective];
  n->crosses = crosses;
  n->crossing = collective;
  n->moves = false;
  if (crosses == FINISHES) return;
  n->group = c->group;
  n->time = time_taken(c);
  n->beside = true;
  find_copies(n, c);
  if (crosses == BEGINS) n->tail = 0; /* the loop has that */
}

static void make_node(struct node *n, int id)
{
  const struct op *op = &graph->op[id];
  bool collective = is_collective(op->kind), loop = op->kind == OP_loop;
  n->op = id;
  n->group = collective ? op->group : NONE;
  n->moves = !collective && !loop;
  if (op->kind == OP_await)
    cross(n, graph->op[op->begun].late ? FINISHES : FETCHES, op->begun);
  else if (collective && op->behind)
    cross(n, REDUCES, id);
  else if (op->kind == OP_round && op->round == FIRST_ROUND)
    cross(n, BEGINS, crossing_of(op));
  else if (op->kind == OP_round)
    cross(n, FINISHES, crossing_of(op));
  else
    n->time = loop ? time_of_loop(op->function) : time_taken(op);
  if (op->kind == OP_round) *(n->crosses == FINISHES ? &n->tail : &n->lead) += time_besides(op);
  if (collective && !n->crosses) find_copies(n, op);
}

bool can_follow(const struct op *op, const struct op *leader)
{
  if (op->packed || op == leader) return false;
  int *read = alloc((size_t)op_width(op) * sizeof *read), n = op_reads(op, read);
  int *made = alloc((size_t)op_width(leader) * sizeof *made), count = op_makes(leader, made);
  for (int i = 0; i < n; i++) {
    int k = 0;
    while (k < count && made[k] != read[i]) k++;
    if (k == count) return false;
  }
  return n > 0;
}

/* Whether all else that the one needs stands before the other: the two can stand together. */
static bool may_lead(int leader, int follower)
{
  const struct list *needed = &node[follower].before;
  for (int i = 0; i < needed->n; i++)
    if (needed->at[i] > leader) return false;
  return true;
}

/* Of those of a loop that are awaited in another round ahead.c has told which follow which. What
   leads follows none: the two are awaited at once, and three would not be. */
static void find_leaders(void)
{
  for (int n = 0; n < nnode; n++) node[n].leader = node[n].follower = NONE;
  for (int n = 0; n < nnode && options.cuda; n++) {
    const struct op *op = &graph->op[node[n].op];
    if (!is_collective(op->kind) || (node[n].crosses && !op->follows_plus_1)) continue;
    for (int m = 0; m < n && node[n].leader == NONE; m++) {
      const struct op *other = &graph->op[node[m].op];
      bool apart = op->pieces || other->pieces || node[m].crosses != node[n].crosses;
      if (!is_collective(other->kind) || apart || node[m].follower != NONE) continue;
      if (node[m].leader != NONE) continue;
      if (!can_follow(op, other)) continue;
      if (!may_lead(m, n)) continue;
      node[n].leader = m;
      node[m].follower = n;
      for (int i = 0; i < node[n].before.n; i++) depend(m, node[n].before.at[i]);
    }
  }
}

/* What is begun for the next round is one with the await before it. */
static void make_nodes(const int *op, int n)
{
  node = alloc((size_t)n * sizeof *node);
  order = alloc((size_t)n * sizeof *order);
  place = alloc((size_t)(n + 1) * sizeof *place);
  streams.until = alloc((size_t)(graph->ngroup + 1) * sizeof *streams.until);
  streams.end = alloc((size_t)(n + 1) * sizeof *streams.end);
  along.has = alloc((size_t)(n + 1) * sizeof *along.has);
  nnode = 0;
  for (int i = 0; i < n; i++) {
    order[nnode] = place[nnode] = nnode;
    make_node(&node[nnode], op[i]);
    if (node[nnode].crosses == FETCHES) {
      node[nnode].then = op[++i];
      node[nnode].lead += time_besides(&graph->op[op[i]]);
    }
    nnode++;
  }
  find_dependences();
  find_leaders();
  add_awaits();
}

static void note_left(int collective, int function, int64_t time)
{
  int i = 0;
  while (i < lefts.n && lefts.at[i].op != collective) i++;
  if (i == lefts.n) {
    GROW(lefts.at, lefts.n, lefts.room);
    lefts.n++;
  }
  lefts.at[i] = (struct left){collective, function, time > 0 ? time : 0, 0};
}

void leave_pending(int collective, int body, int64_t time)
{
  note_left(collective, body, time);
}

/* Notes of each collective what it takes, and what of that is waited for; and what the function
   leaves on the streams. */
static int64_t note_times(int function)
{
  int64_t time = simulate();
  for (int n = 0; n < nnode; n++) {
    if (node[n].group == NONE || node[n].crosses == BEGINS) continue;
    struct op *op = &graph->op[node[n].crosses ? node[n].crossing : node[n].op];
    op->beside = node[n].beside;
    if (!node[n].crosses) op->follows_plus_1 = follows(n) ? node[node[n].leader].op + 1 : 0;
    if (!node[n].crosses) op->leads = leads(n);
    op->takes = node[n].time;
    op->exposed = node[n].exposed;
    alone[function][op->group] |= !op->beside;
  }
  for (int n = 0; n < nnode; n++)
    if (node[n].crosses == REDUCES) note_left(node[n].op, function, streams.end[n] - streams.now);
  return time;
}

/* Pieces run beside others from the start: one alone gains nothing while the next waits for its
   turn. */
static void begin_pieces(void)
{
  for (int n = 0; n < nnode; n++)
    node[n].beside |= node[n].group != NONE && graph->op[node[n].op].pieces;
}

/* Some of the function's operations, in a new order, appended to `all`. */
static int64_t order_part(const int *op, int n, struct list *all, int64_t more, int function)
{
  make_nodes(op, n);
  find_begins();
  if (more >= 0) {
    begin_pieces();
    give_all_work(more);
  }
  follow_pending();
  int64_t time = note_times(function);
  int *list = alloc((size_t)(2 * n + 1) * sizeof *list);
  for (int i = 0, count = write_order(list); i < count; i++) add(all, list[i]);
  return time;
}

/* In parts: what it takes grows with more than the length. more: what may live besides, or -1:
   nothing runs beside anything. */
static void order_parts(struct function *f, const int *op, int n, int64_t more)
{
  struct list all = {0};
  int which = (int)(f - graph->function);
  taken[which] = 0;
  memset(alone[which], 0, (size_t)graph->ngroup);
  for (int first = 0; first < n; first += LONGEST_ORDERED) {
    int length = n - first < LONGEST_ORDERED ? n - first : LONGEST_ORDERED;
    whole.before = &all;
    whole.after = op + first + length;
    whole.nafter = n - first - length;
    int64_t time = order_part(op + first, length, &all, more, which);
    taken[which] = time < LONGEST_TIME - taken[which] ? taken[which] + time : LONGEST_TIME;
  }
  f->op = all.at;
  f->nop = all.n;
}

static bool has_collectives(const int *op, int n)
{
  for (int i = 0; i < n; i++)
    if (is_collective(graph->op[op[i]].kind) || graph->op[op[i]].kind == OP_round) return true;
  return false;
}

int64_t time_of_function(int function)
{
  return taken[function];
}

void open_overlap(void)
{
  taken = alloc((size_t)graph->nfunction * sizeof *taken); /* parts have none */
  touched = alloc((size_t)(3 * graph->nvalue + 1) * sizeof *touched);
  speakers = alloc((size_t)(graph->nvalue + 1) * sizeof *speakers);
  round_now = 0;
  gone_through = 0;
  whole.lived = 0;
  alone = alloc((size_t)graph->nfunction * sizeof *alone);
  for (int i = 0; i < graph->nfunction; i++) alone[i] = alloc((size_t)graph->ngroup + 1);
  lefts.n = lefts.room = 0;
  lefts.at = NULL;
}

void overlap_function(struct function *f, int64_t most_live)
{
  const int *op = f->op, n = f->nop;
  bool any = has_collectives(op, n) && is_of_batch(f->phase);
  if (any) enter_function(f);
  int64_t more = most_live / 32;
  whole.most_live = most_live + more;
  for (int careful = 0; careful < 2 && any; careful++) {
    whole.function = careful ? f : NULL;
    whole.asked = 0;
    order_parts(f, op, n, more);
    if (may_live()) return;
  }
  whole.function = NULL;
  order_parts(f, op, n, -1);
}
