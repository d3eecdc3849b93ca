/* moves.c: the steps from one layout to another.

   Takes   a tensor's whole shape, its type, and two layouts of plain shards. All pending dimensions
           of a layout have one reduction; no caller asks for several.
   Leaves  the steps of DTensor's greedy planner, or the fastest ones by the cost model of
           traffic.c.

   The fastest way comes from a best-first search over all layouts, with cuts in any order. If these
   are too many, the search covers layouts that cut the dimensions which either end cuts; if these
   are too many, those that on each mesh dimension equal one of the ends or cut nothing. A value is
   pending on the way only where it is at an end. No result is slower than the greedy one, whose
   steps are part of the search. Among more than 1024 ranks there are no exchanges: they would have
   too many pieces.

   If all links have one bandwidth, no rank may receive more than the lower bound; with a pending
   value, no more than on the greedy way. Among ways of equal time, the one with the more familiar
   collectives wins, then the one with fewer steps. */
#include "sharding/sharding.h"

#include <string.h>

/* ---------------------------------------------------------------------------------- all layouts */

/* A layout on the way. Its properties are computed on first use. */
struct state {
  struct compact_layout compact;
  bool far;             /* from here to the target something must be sent */
  int gone_on;          /* the last expanded label of this layout, or NONE */
  int64_t rest;         /* lower bound of the time from here to the target */
  const int64_t *lacks; /* what each sampled rank lacks */
  const struct box *box;
};

enum { START, TARGET, MAX_STATES = 600 };

/* The search, for one plan at a time. */
static struct {
  struct compact_layout from, to;
  bool limited; /* tolerance of what a rank may receive, in elements */
  int64_t limit;
  int64_t shortest; /* latency */
  double bandwidth; /* of all tiers */
  int states;
  struct state state[MAX_STATES];
} way;

/* Whether more than slices leads from here to the target. */
static bool is_far(const struct compact_layout *b)
{
  for (int i = 0; i < world.mesh.ndim; i++) {
    bool stays = b->at[i] == way.to.at[i] && b->turn[i] == way.to.turn[i];
    bool starts = b->at[i] == WHOLE || (b->at[i] >= 0 && way.to.at[i] < WHOLE);
    if (!stays && !starts) return true;
  }
  return false;
}

static void add_state(const struct compact_layout *b)
{
  if (way.states > TARGET && same_compact(b, &way.from)) return;
  if (way.states > TARGET && same_compact(b, &way.to)) return;
  if (way.states < MAX_STATES)
    way.state[way.states] = (struct state){.compact = *b, .far = is_far(b), .gone_on = NONE};
  way.states++;
}

/* All layouts that equal `b` on the mesh dimensions before i. On the others they cut these
   dimensions of the tensor, in every order, or are pending where one end of the way is. */
static void add_states(struct compact_layout b, int i, unsigned dims)
{
  if (way.states > MAX_STATES) return;
  if (i == world.mesh.ndim) {
    add_state(&b);
    return;
  }
  add_states(b, i + 1, dims);
  if (world.mesh.size[i] == 1) return;
  struct compact_layout with = b;
  with.at[i] = PENDING;
  if ((way.from.at[i] == PENDING || way.to.at[i] == PENDING) && !is_any(&b, OTHER))
    add_states(with, i + 1, dims);
  with.at[i] = OTHER;
  if (way.to.at[i] == OTHER && !is_any(&b, PENDING)) add_states(with, i + 1, dims);
  for (int d = 0; d < world.whole.ndim; d++)
    for (int turn = dims >> d & 1 ? cuts(&b, d) : NONE; turn >= 0; turn--) {
      with = b;
      for (int k = 0; k < i; k++) with.turn[k] += b.at[k] == d && b.turn[k] >= turn;
      with.at[i] = (int8_t)d;
      with.turn[i] = (int8_t)turn;
      add_states(with, i + 1, dims);
    }
}

/* Cuts in their order at one end of the way, then the others. */
static void add_in_order_of(struct compact_layout b, const struct compact_layout *end)
{
  int key[MAX_MESH];
  for (int i = 0; i < world.mesh.ndim; i++)
    key[i] = b.at[i] == end->at[i] ? end->turn[i] : MAX_MESH + i;
  for (int i = 0; i < world.mesh.ndim; i++) {
    b.turn[i] = 0;
    for (int k = 0; b.at[i] >= 0 && k < world.mesh.ndim; k++)
      b.turn[i] += b.at[k] == b.at[i] && key[k] < key[i];
  }
  add_state(&b);
}

/* All layouts that equal `b` on the mesh dimensions before i, and on the others equal one end of
   the way or are whole; a pending dimension may cut dimension `dim` of the tensor, too. */
static void add_mixtures(struct compact_layout b, int i, int dim)
{
  if (way.states > MAX_STATES) return;
  if (i == world.mesh.ndim) {
    add_in_order_of(b, &way.from);
    if (reordered_dims(&way.from) | reordered_dims(&way.to)) add_in_order_of(b, &way.to);
    return;
  }
  int from = way.from.at[i], to = way.to.at[i];
  add_mixtures(b, i + 1, dim);
  if (world.mesh.size[i] == 1) return;
  for (int k = 0; k < 3; k++) {
    int at = k == 0 ? from : k == 1 ? to : dim;
    if (at == WHOLE || (k > 0 && at == from) || (k > 1 && (at == to || from != PENDING))) continue;
    if ((at == OTHER && is_any(&b, PENDING)) || (at == PENDING && is_any(&b, OTHER))) continue;
    struct compact_layout with = b;
    with.at[i] = (int8_t)at;
    add_mixtures(with, i + 1, dim);
  }
}

/* The dimensions of the tensor that one end of the way cuts; or all of more than one element. */
static unsigned dims_to_cut(bool all)
{
  unsigned dims = 0;
  for (int i = 0; i < world.mesh.ndim; i++) {
    if (way.from.at[i] >= 0) dims |= 1u << way.from.at[i];
    if (way.to.at[i] >= 0) dims |= 1u << way.to.at[i];
  }
  for (int d = 0; all && d < world.whole.ndim; d++)
    if (world.whole.size[d] > 1) dims |= 1u << d;
  return dims;
}

/* The largest set of layouts that there is room for: all; all on dimensions that are cut;
   mixtures. */
static void find_states(unsigned fixed_dims)
{
  struct compact_layout whole;
  memset(&whole, 0, sizeof whole);
  memset(whole.at, WHOLE, sizeof whole.at);
  int first = 0;
  while (first < world.whole.ndim && (world.whole.size[first] <= 1 || fixed_dims >> first & 1))
    first++;
  for (int attempt = 0; attempt < 3; attempt++) {
    way.states = 0;
    add_state(&way.from);
    add_state(&way.to);
    if (attempt < 2)
      add_states(whole, 0, dims_to_cut(attempt == 0) & ~fixed_dims);
    else
      add_mixtures(whole, 0, first < world.whole.ndim ? first : WHOLE);
    if (way.states <= MAX_STATES) return;
    ended_early("redistribute", "quicker moves over other layouts", MAX_STATES, "layouts");
  }
  way.states = MAX_STATES;
}

/* Computes the missing properties of a state. */
static const struct state *know(int which)
{
  static struct box box[MAX_STATES][MAX_SEATS];
  static int64_t lacks[MAX_STATES][MAX_SEATS];
  struct state *s = &way.state[which];
  if (s->box) return s;
  s->box = box[which];
  s->lacks = lacks[which];
  find_boxes(&s->compact, box[which]);
  const struct box *needed = which == TARGET ? s->box : know(TARGET)->box;
  int64_t n = least_elements(&s->compact, &way.to, s->box, needed, lacks[which]);
  s->rest = (s->far ? way.shortest : 0) + transfer_time(n, way.bandwidth);
  return s;
}

/* ------------------------------------------------------------------------------ the fastest way */

/* A way from the source to a state. `time` is the time of its steps, `least` the lower bound at
   the target. For a rough label, the pieces of the last step, an exchange, are not computed yet. */
struct label {
  int state, before, steps, strangeness;
  int next; /* the expanded label before this one */
  bool rough;
  struct move_step step;
  int64_t time, least;
};

enum { MAX_LABELS = 20000 };

static struct {
  int n, nheap, heap[MAX_LABELS];
  struct label label[MAX_LABELS];
  int64_t got[MAX_LABELS][MAX_SEATS]; /* the elements that each sampled rank has received */
  struct label best;                  /* at the target */
} search;

/* How unfamiliar a step is to readers. */
static int strangeness(const struct move_step *s, bool one_to_one)
{
  if (!is_collective(s->kind)) return 1;
  return collective_row[s->kind].rare + (s->kind == OP_exchange && !one_to_one);
}

static bool is_better(const struct label *a, const struct label *b)
{
  if (a->least != b->least) return a->least < b->least;
  return a->strangeness < b->strangeness;
}

/* Whether it cannot become better than the best way so far. */
static bool is_hopeless(const struct label *l)
{
  if (l->least != search.best.least) return l->least > search.best.least;
  int more = l->state == TARGET ? 0 : way.state[l->state].far ? 2 : 1;
  return l->strangeness + more >= search.best.strangeness;
}

static bool comes_before(int a, int b)
{
  const struct label *x = &search.label[a], *y = &search.label[b];
  return is_better(x, y) || (!is_better(y, x) && a < b);
}

static void push(int label)
{
  int at = search.nheap++;
  for (; at > 0 && comes_before(label, search.heap[(at - 1) / 2]); at = (at - 1) / 2)
    search.heap[at] = search.heap[(at - 1) / 2];
  search.heap[at] = label;
}

static int pop(void)
{
  int first = search.heap[0], last = search.heap[--search.nheap], at = 0;
  for (int next; (next = 2 * at + 1) < search.nheap; at = next) {
    if (next + 1 < search.nheap && comes_before(search.heap[next + 1], search.heap[next])) next++;
    if (!comes_before(search.heap[next], last)) break;
    search.heap[at] = search.heap[next];
  }
  search.heap[at] = last;
  return first;
}

/* Computes the label's last step; false if a rank receives more than it may on this way. */
static bool finish(struct label *l, int64_t *got)
{
  const struct label *b = &search.label[l->before];
  const struct state *from = know(b->state), *to = know(l->state);
  struct stage g = {&l->step, &from->compact, &to->compact, from->box, to->box};
  struct traffic t = traffic_of(&g, true);
  const int64_t *before = search.got[l->before];
  l->rough = false;
  l->time = b->time + traffic_time(&l->step, &t);
  l->least = l->time + to->rest;
  l->strangeness = b->strangeness + strangeness(&l->step, t.one_to_one);
  if (!way.limited) return true;
  for (int r = 0; r < world.sampled_ranks; r++) {
    got[r] = before[r] + t.received[r];
    if (got[r] + to->lacks[r] > way.limit) return false;
  }
  return true;
}

/* The same for an exchange whose pieces are not known yet: a lower bound. */
static bool guess(struct label *l, int64_t *got)
{
  const struct label *b = &search.label[l->before];
  const struct state *from = know(b->state), *to = know(l->state);
  const int64_t *before = search.got[l->before];
  int64_t busiest = 0, sum = 0;
  l->rough = true;
  for (int r = 0; r < world.sampled_ranks; r++) {
    int64_t n = volume(&to->box[r]) - box_overlap(&from->box[r], &to->box[r]);
    busiest = greater(busiest, n);
    sum += n;
    if (!way.limited) continue;
    got[r] = before[r] + n;
    if (got[r] + to->lacks[r] > way.limit) return false;
  }
  if (world.sampled_ranks == world.ranks)
    busiest = greater(busiest, (sum + world.ranks - 1) / world.ranks);
  l->time += transfer_time(busiest, way.bandwidth);
  l->least = greater(l->least, l->time + to->rest);
  return true;
}

/* Considers extending a label by a step to a state. */
static void consider(int before, int state, const struct move_step *s)
{
  const struct label *b = &search.label[before];
  const struct state *from = know(b->state), *to = &way.state[state];
  struct label l = {.state = state, .before = before, .steps = b->steps + 1, .step = *s};
  l.time = b->time + latency_of(s);
  l.strangeness = b->strangeness + strangeness(s, true);
  l.least = l.time + from->rest + way.shortest * (to->far - from->far);
  if (is_hopeless(&l)) return;
  l.least = greater(l.least, l.time + know(state)->rest);
  if (is_hopeless(&l)) return;
  if (search.n == MAX_LABELS) {
    ended_early("redistribute", "quicker moves", MAX_LABELS, "ways");
    return;
  }
  int64_t *got = search.got[search.n];
  bool rough = s->kind == OP_exchange && state != TARGET;
  if (!(rough ? guess(&l, got) : finish(&l, got)) || is_hopeless(&l)) return;
  if (state == TARGET) search.best = l;
  search.label[search.n] = l;
  if (state != TARGET) push(search.n);
  search.n++;
}

/* Whether an expanded label of the same state is as good in every respect. */
static bool is_dominated(int label)
{
  const struct label *l = &search.label[label];
  for (int k = way.state[l->state].gone_on; k != NONE; k = search.label[k].next) {
    const struct label *other = &search.label[k];
    if (other->time > l->time) continue;
    if (other->time == l->time && other->strangeness > l->strangeness) continue;
    bool less = false;
    for (int r = 0; way.limited && r < world.sampled_ranks; r++)
      less |= search.got[label][r] < search.got[k][r];
    if (!less) return true;
  }
  return false;
}

/* Whether b can be reached from a without sending: it holds what a holds, and more. */
static bool adds_to(const struct compact_layout *a, const struct compact_layout *b)
{
  for (int i = 0; i < world.mesh.ndim; i++) {
    bool stays = a->at[i] == b->at[i] && a->turn[i] == b->turn[i];
    if (!stays && a->at[i] != WHOLE && b->at[i] >= WHOLE) return false;
  }
  return true;
}

enum { MOST_DEALT = 1024 };

/* Considers all states from here. If sending again is hopeless, only states that need no
   sending. */
static void go_on(int label)
{
  struct move_step s;
  struct label *l = &search.label[label], twice = *l;
  const struct compact_layout *a = &way.state[l->state].compact;
  l->next = way.state[l->state].gone_on;
  way.state[l->state].gone_on = label;
  twice.least = l->time + way.shortest + know(l->state)->rest;
  twice.strangeness += 2;
  for (int t = TARGET; t < way.states; t++) {
    const struct compact_layout *b = &way.state[t].compact;
    if (t == l->state || (way.state[t].far && is_hopeless(&twice) && !adds_to(a, b))) continue;
    bool alone = false;
    if (step_between(a, b, &s)) {
      consider(label, t, &s);
      alone = !is_collective(s.kind) || (t != TARGET && world.tiers == 1);
    }
    if (!alone && exchange_between(a, b, &s) && members(&s) <= MOST_DEALT) consider(label, t, &s);
  }
}

/* Returns the best label at the target, unless none is better than `best`. */
static void find_way(struct label best, int most_steps)
{
  for (int i = 0; i < way.states; i++) way.state[i].gone_on = NONE;
  search.best = best;
  search.label[0] = (struct label){.state = START, .least = know(START)->rest};
  search.n = 1;
  search.nheap = 0;
  memset(search.got[0], 0, sizeof search.got[0]);
  push(0);
  while (search.nheap > 0) {
    int at = pop();
    struct label *l = &search.label[at];
    if (is_hopeless(l)) continue;
    if (!l->rough) {
      if (l->steps < most_steps && !is_dominated(at)) go_on(at);
    } else if (finish(l, search.got[at])) {
      push(at);
    }
  }
}

/* ------------------------------------------------------------------------------------- the plan */

/* A label for these steps, and the elements that the busiest rank receives. */
static struct label assess(const struct walk *w, int64_t *busiest)
{
  int64_t got[MAX_SEATS] = {0};
  struct label l = {.state = NONE};
  for (int i = 0; i < w->n; i++) {
    const struct move *m = &w->move[i];
    struct move_step s = step_of_move(m);
    struct traffic t = traffic_of_move(m, w->fixed_part, true);
    l.time += traffic_time(&s, &t);
    l.strangeness += strangeness(&s, t.one_to_one);
    for (int k = 0; k < world.sampled_ranks; k++) got[k] += t.received[k];
  }
  *busiest = 0;
  for (int k = 0; k < world.sampled_ranks; k++) *busiest = greater(*busiest, got[k]);
  l.least = l.time;
  return l;
}

static void walk_label(struct walk *w, const struct label *l)
{
  if (l->state == START) return;
  const struct label *before = &search.label[l->before];
  walk_label(w, before);
  w->now = way.state[l->state].compact;
  w->move[w->n++] = move_of(&l->step, &way.state[before->state].compact, &w->now, w->fixed_part);
}

static void begin_way(const struct compact_layout *from, const struct compact_layout *to,
                      unsigned fixed_dims)
{
  way.from = *from;
  way.to = *to;
  way.bandwidth = way.shortest = 0;
  way.limited = world.tiers == 1;
  for (int t = 0; t < world.tiers; t++) way.bandwidth += world.bandwidth[t];
  for (int i = 0; i < world.mesh.ndim; i++) {
    int64_t l = picoseconds(world.latency[i]);
    if (world.mesh.size[i] > 1 && (!way.shortest || l < way.shortest)) way.shortest = l;
  }
  find_states(fixed_dims);
}

static bool is_anything_pending(const struct compact_layout *a, const struct compact_layout *b)
{
  return is_any(a, PENDING) || is_any(b, PENDING) || is_any(b, OTHER);
}

/* Whether there is a way on which no rank receives more than it lacks. */
static bool find_least_way(int most_steps)
{
  way.limit = 0;
  for (int k = 0; k < world.sampled_ranks; k++)
    way.limit = greater(way.limit, know(START)->lacks[k]);
  find_way((struct label){.state = NONE, .least = INT64_MAX}, most_steps);
  return search.best.state == TARGET;
}

static void walk_fastest(struct walk *w, const struct compact_layout *to)
{
  struct move greedy[MAX_MOVES];
  struct walk greedily = {.move = greedy, .now = w->now, .fixed_part = w->fixed_part};
  int most_steps = MAX_MOVES - w->n;
  begin_way(&w->now, to, w->fixed_part->fixed_dims);
  if (!way.limited || is_anything_pending(&w->now, to) || !find_least_way(most_steps)) {
    walk_greedily(&greedily, to);
    find_way(assess(&greedily, &way.limit), most_steps);
  }
  if (search.best.state == TARGET) {
    walk_label(w, &search.best);
    return;
  }
  memcpy(&w->move[w->n], greedy, (size_t)greedily.n * sizeof *greedy);
  w->n += greedily.n;
  w->now = *to;
}

/* Without the placements on mesh dimensions of size 1. */
static struct compact_layout trimmed(struct compact_layout b)
{
  for (int i = 0; i < world.mesh.ndim; i++)
    if (world.mesh.size[i] == 1 && b.at[i] != WHOLE) put_at(&b, i, WHOLE);
  return b;
}

/* On a mesh dimension of size 1 the placement is removed first and added last. */
static void walk_around(struct walk *w, const struct compact_layout *to)
{
  struct compact_layout nearly = trimmed(*to);
  if (same_compact(&w->now, to)) return;
  for (int i = 0; i < world.mesh.ndim; i++)
    if (world.mesh.size[i] == 1) walk_to(w, i, WHOLE);
  if (!same_compact(&w->now, &nearly)) walk_fastest(w, &nearly);
  for (int i = 0; i < world.mesh.ndim; i++)
    if (world.mesh.size[i] == 1) walk_to(w, i, to->at[i]);
  if (w->n > 0) w->move[w->n - 1].to = layout_of(to, w->fixed_part);
}

/* ------------------------------------------------------------------------ what was asked before */

/* Everything that a plan depends on. */
struct question {
  int mesh; /* the number of the mesh */
  bool greedy;
  struct shape whole;
  int64_t bytes; /* of an element */
  struct compact_layout from, to;
  struct fixed_part fixed_part;
};

/* Those with the same hash form a chain. */
struct remembered {
  struct question question;
  struct moves moves;
  struct remembered *next;
};

/* The number of the graph's mesh. */
static int mesh_number(void)
{
  static int n, room;
  static struct mesh *known;
  static const struct graph *of;
  if (is_other_graph(&of)) n = room = 0;
  int at = n;
  while (at > 0 && !same_mesh(&known[at - 1], &graph->mesh)) at--;
  if (at > 0) return at - 1;
  GROW(known, n, room);
  known[n] = graph->mesh;
  return n++;
}

static uint64_t hash_of(const struct question *q)
{
  uint64_t hash = HASH_START;
  hash = hash_bytes(hash, &q->mesh, sizeof q->mesh);
  hash = hash_bytes(hash, q->whole.size, sizeof q->whole.size);
  hash = hash_bytes(hash, &q->from, sizeof q->from);
  return hash_bytes(hash, &q->to, sizeof q->to);
}

static bool same_fixed_part(const struct fixed_part *a, const struct fixed_part *b)
{
  if (a->pending != b->pending || a->other != b->other || a->fixed != b->fixed) return false;
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (a->fixed >> i & 1 && !same_placement(a->layout.on[i], b->layout.on[i])) return false;
  return true;
}

static bool same_question(const struct question *a, const struct question *b)
{
  return a->mesh == b->mesh && a->greedy == b->greedy && a->bytes == b->bytes &&
         same_compact(&a->from, &b->from) && same_compact(&a->to, &b->to) &&
         same_shape(a->whole, b->whole) && same_fixed_part(&a->fixed_part, &b->fixed_part);
}

static struct moves answer(const struct question *q)
{
  struct move move[MAX_MOVES], *kept;
  struct walk w = {.move = move, .now = q->from, .fixed_part = &q->fixed_part};
  int64_t busiest;
  if (q->greedy)
    walk_greedily(&w, &q->to);
  else
    walk_around(&w, &q->to);
  kept = alloc((size_t)w.n * sizeof *kept);
  memcpy(kept, move, (size_t)w.n * sizeof *kept);
  double time = (double)assess(&w, &busiest).time * 1e-12;
  return (struct moves){w.n, kept, time, busiest * q->bytes};
}

const struct moves *plan_moves(struct shape whole, enum type type, struct layout from,
                               struct layout to)
{
  enum { BUCKETS = 4096 };
  static struct remembered *bucket[BUCKETS];
  static const int origin[MAX_MESH];
  static const struct graph *of;
  if (is_other_graph(&of)) memset(bucket, 0, sizeof bucket);
  struct question q = {mesh_number(), plan_options->greedy, whole, type_bytes(type),
                       .fixed_part = fixed_part_of(from, to)};
  q.from = compact_of(from, &q.fixed_part);
  q.to = compact_of(to, &q.fixed_part);
  struct remembered **at = &bucket[hash_of(&q) % BUCKETS];
  for (struct remembered *k = *at; k; k = k->next)
    if (same_question(&k->question, &q)) return &k->moves;
  enter_context(whole, type, &q.fixed_part, origin, false);
  struct remembered *new = alloc(sizeof *new);
  *new = (struct remembered){q, answer(&q), *at};
  *at = new;
  return &new->moves;
}

int64_t greedy_bytes(struct shape whole, enum type type, struct layout from, struct layout to)
{
  static const int origin[MAX_MESH];
  struct fixed_part u = fixed_part_of(from, to);
  struct compact_layout a = compact_of(from, &u), b = compact_of(to, &u);
  enter_context(whole, type, &u, origin, false);
  return world.bytes * most_received_greedily(&a, &b, &u);
}
