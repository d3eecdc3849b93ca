/* moves.c: the steps from one layout to another.

   Takes   a tensor's whole shape, its type, and two layouts of plain shards. All pending dimensions
           of a layout have one reduction; no caller asks for several.
   Leaves  the steps of DTensor's greedy planner, or the fastest ones by the cost model of
           traffic.c.

   The fastest path comes from a best-first search over all layouts, with cuts in any order. If
   these are too many, the search covers layouts that cut the dimensions which either end cuts; if
   these are too many, those that on each mesh dimension equal one of the ends or cut nothing. A
   value is pending on the path only where it is at an end. No result is slower than the greedy one,
   whose steps are part of the search. Among more than 1024 ranks there are no exchanges: they would
   have too many pieces.

   If all links have one bandwidth, no rank may receive more than the lower bound; with a pending
   value, no more than on the greedy path. Among paths of equal time, the one with the more familiar
   collectives wins, then the one with fewer steps. */
#include "sharding/sharding.h"

#include <stdlib.h>
#include <math.h>
#include <string.h>

/* A layout on the path. Its parts, and the numbers that follow from them, are computed on first
   use. */
struct state {
  struct compact_layout compact;
  bool far;     /* from here to the target something must be sent */
  int expanded; /* the last expanded label of this layout, or NONE */
  bool has_parts;
  struct rank_parts parts;
  int64_t rest; /* lower bound of the time from here to the target */
};

/* A path from the source to a state. `time` is the time of its steps, `least` the lower bound at
   the target. For a rough label, the pieces of the last step, an exchange, are not computed yet. */
struct label {
  int state, before, steps;
  int tie_break; /* how unfamiliar its steps are to readers */
  int next;      /* the expanded label before this one */
  bool rough;
  struct move_step step;
  int64_t time, least;
};

enum { START, TARGET, MAX_STATES = 600, MAX_LABELS = 20000, MOST_MEMBERS = 1024 };

/* The search for one plan. */
struct search {
  struct cost_model *m;
  struct compact_layout from, to;
  int most_steps;
  bool limited; /* the elements that a rank may receive */
  int64_t limit;
  int64_t shortest; /* latency */
  double bandwidth; /* of all tiers */
  int states;
  struct state state[MAX_STATES];
  int64_t lacks[MAX_STATES][MAX_SAMPLES]; /* what each sampled rank lacks of its part */
  int n, nheap, heap[MAX_LABELS];
  struct label label[MAX_LABELS];
  int64_t got[MAX_LABELS][MAX_SAMPLES]; /* the elements that each sampled rank has received */
  struct label best;                    /* at the target */
};

/* --------------------------------------------------------------------------------- all layouts */

/* Whether a cut in time that both ends have is another one here: a way that leads there would move
   samples from one micro-batch to another. */
static bool leaves_its_time(const struct search *s, const struct compact_layout *b)
{
  for (int i = 0; i < s->m->ranks->mesh.ndim; i++) {
    if (!s->m->ranks->mesh.microbatch_axis[i] || s->from.at[i] != s->to.at[i]) continue;
    if (b->at[i] != s->to.at[i] || b->order[i] != s->to.order[i]) return true;
  }
  return false;
}

static void moves_add_state(struct search *s, const struct compact_layout *b)
{
  if (s->states > TARGET && (same_compact(b, &s->from) || same_compact(b, &s->to))) return;
  if (s->states > TARGET && leaves_its_time(s, b)) return;
  int at = s->states++;
  if (at >= MAX_STATES) return;
  bool far = false; /* more than slices leads from here to the target */
  for (int i = 0; i < s->m->ranks->mesh.ndim; i++) {
    bool stays = b->at[i] == s->to.at[i] && b->order[i] == s->to.order[i];
    bool starts = b->at[i] == WHOLE || (b->at[i] >= 0 && s->to.at[i] < WHOLE);
    far |= !stays && !starts;
  }
  s->state[at] = (struct state){.compact = *b, .far = far, .expanded = NONE};
}

/* All layouts that equal `b` on the mesh dimensions before i. On the others they cut these
   dimensions of the tensor, in every order, or are pending where one end of the path is. */
static void add_states(struct search *s, struct compact_layout b, int i, unsigned dims)
{
  if (s->states > MAX_STATES) return;
  if (i == s->m->ranks->mesh.ndim) {
    moves_add_state(s, &b);
    return;
  }
  add_states(s, b, i + 1, dims);
  if (s->m->ranks->mesh.size[i] == 1) return;
  struct compact_layout with = b;
  with.at[i] = PENDING;
  if ((s->from.at[i] == PENDING || s->to.at[i] == PENDING) && !is_any(&b, OTHER))
    add_states(s, with, i + 1, dims);
  with.at[i] = OTHER;
  if (s->to.at[i] == OTHER && !is_any(&b, PENDING)) add_states(s, with, i + 1, dims);
  for (int d = 0; d < s->m->whole.ndim; d++)
    for (int place = dims >> d & 1 ? cuts(&b, d) : NONE; place >= 0; place--) {
      with = b;
      for (int k = 0; k < i; k++) with.order[k] += b.at[k] == d && b.order[k] >= place;
      with.at[i] = (int8_t)d;
      with.order[i] = (int8_t)place;
      add_states(s, with, i + 1, dims);
    }
}

/* Cuts in their order at one end of the path, then the others. */
static void add_in_order_of(struct search *s, struct compact_layout b,
                            const struct compact_layout *end)
{
  const int ndim = s->m->ranks->mesh.ndim;
  int key[MAX_MESH];
  for (int i = 0; i < ndim; i++) key[i] = b.at[i] == end->at[i] ? end->order[i] : MAX_MESH + i;
  for (int i = 0; i < ndim; i++) {
    b.order[i] = 0;
    for (int k = 0; b.at[i] >= 0 && k < ndim; k++)
      b.order[i] += b.at[k] == b.at[i] && key[k] < key[i];
  }
  moves_add_state(s, &b);
}

/* All layouts that equal `b` on the mesh dimensions before i, and on the others equal one end of
   the path or are whole; a pending dimension may cut dimension `dim` of the tensor, too. */
static void add_mixtures(struct search *s, struct compact_layout b, int i, int dim)
{
  if (s->states > MAX_STATES) return;
  if (i == s->m->ranks->mesh.ndim) {
    add_in_order_of(s, b, &s->from);
    if (reordered_dims(&s->from) | reordered_dims(&s->to)) add_in_order_of(s, b, &s->to);
    return;
  }
  int from = s->from.at[i], to = s->to.at[i];
  add_mixtures(s, b, i + 1, dim);
  if (s->m->ranks->mesh.size[i] == 1) return;
  for (int k = 0; k < 3; k++) {
    int at = k == 0 ? from : k == 1 ? to : dim;
    if (at == WHOLE || (k > 0 && at == from) || (k > 1 && (at == to || from != PENDING))) continue;
    if ((at == OTHER && is_any(&b, PENDING)) || (at == PENDING && is_any(&b, OTHER))) continue;
    struct compact_layout with = b;
    with.at[i] = (int8_t)at;
    add_mixtures(s, with, i + 1, dim);
  }
}

/* The largest set of layouts that there is room for: all; all on dimensions that an end cuts;
   mixtures. */
static void find_states(struct search *s, unsigned fixed_dims)
{
  const struct shape *whole = &s->m->whole;
  struct compact_layout uncut;
  memset(&uncut, 0, sizeof uncut);
  memset(uncut.at, WHOLE, sizeof uncut.at);
  unsigned cut = 0, all = 0;
  int first = 0;
  for (int i = 0; i < s->m->ranks->mesh.ndim; i++) {
    if (s->from.at[i] >= 0) cut |= 1u << s->from.at[i];
    if (s->to.at[i] >= 0) cut |= 1u << s->to.at[i];
  }
  for (int d = 0; d < whole->ndim; d++)
    if (whole->size[d] > 1) all |= 1u << d;
  while (first < whole->ndim && (whole->size[first] <= 1 || fixed_dims >> first & 1)) first++;
  for (int attempt = 0; attempt < 3; attempt++) {
    s->states = 0;
    moves_add_state(s, &s->from);
    moves_add_state(s, &s->to);
    if (attempt < 2)
      add_states(s, uncut, 0, (attempt == 0 ? cut | all : cut) & ~fixed_dims);
    else
      add_mixtures(s, uncut, 0, first < whole->ndim ? first : WHOLE);
    if (s->states <= MAX_STATES) return;
    s->m->ended_early |= TOO_MANY_LAYOUTS;
  }
  s->states = MAX_STATES;
}

/* The state with its parts. */
static const struct state *state_with_parts(struct search *s, int which)
{
  struct state *at = &s->state[which];
  if (at->has_parts) return at;
  at->parts = find_parts(s->m, &at->compact);
  at->has_parts = true;
  const struct rank_parts *wants = &state_with_parts(s, TARGET)->parts;
  int64_t n = least_elements(s->m, &at->compact, &s->to, &at->parts, wants, s->lacks[which]);
  at->rest = (at->far ? s->shortest : 0) + transfer_time(s->m, n, s->bandwidth);
  return at;
}

/* ---------------------------------------------------------------------------- the fastest path */

static int tie_break_of(const struct move_step *s, bool one_to_one)
{
  if (!is_collective(s->kind)) return 1;
  return collective_row[s->kind].tie_break + (s->kind == OP_exchange && !one_to_one);
}

/* Whether the label cannot become better than the best path so far. */
static bool is_hopeless(const struct search *s, const struct label *l)
{
  if (l->least != s->best.least) return l->least > s->best.least;
  int more = l->state == TARGET ? 0 : s->state[l->state].far ? 2 : 1;
  return l->tie_break + more >= s->best.tie_break;
}

static bool comes_before(const struct search *s, int a, int b)
{
  const struct label *x = &s->label[a], *y = &s->label[b];
  if (x->least != y->least) return x->least < y->least;
  if (x->tie_break != y->tie_break) return x->tie_break < y->tie_break;
  return a < b;
}

static void push(struct search *s, int label)
{
  int at = s->nheap++;
  for (; at > 0 && comes_before(s, label, s->heap[(at - 1) / 2]); at = (at - 1) / 2)
    s->heap[at] = s->heap[(at - 1) / 2];
  s->heap[at] = label;
}

static int pop(struct search *s)
{
  int first = s->heap[0], last = s->heap[--s->nheap], at = 0;
  for (int next; (next = 2 * at + 1) < s->nheap; at = next) {
    if (next + 1 < s->nheap && comes_before(s, s->heap[next + 1], s->heap[next])) next++;
    if (!comes_before(s, s->heap[next], last)) break;
    s->heap[at] = s->heap[next];
  }
  s->heap[at] = last;
  return first;
}

/* Computes the label's last step; false if a rank receives more than it may on this path. */
static bool finish_label(struct search *s, struct label *l, int64_t *got)
{
  const struct label *b = &s->label[l->before];
  const struct state *from = state_with_parts(s, b->state), *to = state_with_parts(s, l->state);
  struct step_parts g = {&l->step, &from->compact, &to->compact, from->parts, to->parts};
  struct traffic t = traffic_of(s->m, &g, true);
  const int64_t *before = s->got[l->before], *lacks = s->lacks[l->state];
  l->rough = false;
  l->time = b->time + traffic_time(s->m, &l->step, &t);
  l->least = l->time + to->rest;
  l->tie_break = b->tie_break + tie_break_of(&l->step, t.one_to_one);
  for (int r = 0; s->limited && r < s->m->ranks->n; r++) {
    got[r] = before[r] + t.received[r];
    if (got[r] + lacks[r] > s->limit) return false;
  }
  return true;
}

/* That of all links over which ranks exchange pieces in the step, at once. */
static double bandwidth_of_pairs(const struct rank_sample *r, const struct move_step *step)
{
  double sum = 0;
  unsigned tiers = 0;
  for (int i = 0; i < step->n; i++)
    if (r->mesh.size[step->dim[i]] > 1) tiers |= 1u << r->tier[step->dim[i]];
  for (int t = 0; t < r->tiers; t++)
    if (tiers >> t & 1) sum += r->bandwidth[t];
  return sum;
}

/* The same for an exchange whose pieces are not known yet: a lower bound. */
static bool guess_label(struct search *s, struct label *l, int64_t *got)
{
  const struct rank_sample *ranks = s->m->ranks;
  const struct label *b = &s->label[l->before];
  const struct state *from = state_with_parts(s, b->state), *to = state_with_parts(s, l->state);
  const int64_t *before = s->got[l->before], *lacks = s->lacks[l->state];
  const int ndim = s->m->whole.ndim;
  int64_t most = 0, sum = 0;
  l->rough = true;
  for (int r = 0; r < ranks->n; r++) {
    int64_t n =
        size_of_part(ndim, &to->parts, r) - part_overlap(ndim, &from->parts, r, &to->parts, r);
    most = greater(most, n);
    sum += n;
    if (!s->limited) continue;
    got[r] = before[r] + n;
    if (got[r] + lacks[r] > s->limit) return false;
  }
  if (ranks->n == ranks->all) most = greater(most, (sum + ranks->all - 1) / ranks->all);
  l->time += transfer_time(s->m, most, bandwidth_of_pairs(ranks, &l->step));
  l->least = greater(l->least, l->time + to->rest);
  return true;
}

/* Considers extending a label by a step to a state. */
static void consider(struct search *s, int before, int state, const struct move_step *step)
{
  const struct label *b = &s->label[before];
  const struct state *from = state_with_parts(s, b->state), *to = &s->state[state];
  struct label l = {.state = state, .before = before, .steps = b->steps + 1, .step = *step};
  l.time = b->time + picoseconds(link_of_step(s->m, step).latency);
  l.tie_break = b->tie_break + tie_break_of(step, true);
  l.least = l.time + from->rest + s->shortest * (to->far - from->far);
  if (is_hopeless(s, &l)) return;
  l.least = greater(l.least, l.time + state_with_parts(s, state)->rest);
  if (is_hopeless(s, &l)) return;
  if (s->n == MAX_LABELS) {
    s->m->ended_early |= TOO_MANY_PATHS;
    return;
  }
  int64_t *got = s->got[s->n];
  const bool exchanges = step->kind == OP_exchange, rough = exchanges && state != TARGET;
  if (exchanges) {
    struct label least = l;
    if (!guess_label(s, &least, got) || is_hopeless(s, &least)) return;
    if (rough) l = least;
  }
  if (!rough && (!finish_label(s, &l, got) || is_hopeless(s, &l))) return;
  if (state == TARGET) s->best = l;
  s->label[s->n] = l;
  if (state != TARGET) push(s, s->n);
  s->n++;
}

/* Whether an expanded label of the same state is as good in every respect. */
static bool is_dominated(const struct search *s, int label)
{
  const struct label *l = &s->label[label];
  for (int k = s->state[l->state].expanded; k != NONE; k = s->label[k].next) {
    const struct label *other = &s->label[k];
    if (other->time > l->time) continue;
    if (other->time == l->time && other->tie_break > l->tie_break) continue;
    bool less = false;
    for (int r = 0; s->limited && r < s->m->ranks->n; r++) less |= s->got[label][r] < s->got[k][r];
    if (!less) return true;
  }
  return false;
}

/* Considers all states from here. If sending again is hopeless, only states that need no
   sending. */
static void expand(struct search *s, int label)
{
  struct label *l = &s->label[label], twice = *l;
  const struct compact_layout *a = &s->state[l->state].compact;
  l->next = s->state[l->state].expanded;
  s->state[l->state].expanded = label;
  twice.least = l->time + s->shortest + state_with_parts(s, l->state)->rest;
  twice.tie_break += 2;
  for (int t = TARGET; t < s->states; t++) {
    const struct compact_layout *b = &s->state[t].compact;
    struct move_step step;
    if (t == l->state) continue;
    if (s->state[t].far && is_hopeless(s, &twice)) {
      bool adds = true; /* b holds what a holds, and more: no sending leads there */
      for (int i = 0; i < s->m->ranks->mesh.ndim && adds; i++) {
        bool stays = a->at[i] == b->at[i] && a->order[i] == b->order[i];
        adds = stays || a->at[i] == WHOLE || b->at[i] < WHOLE;
      }
      if (!adds) continue;
    }
    bool suffices = false; /* no exchange is better than the step */
    if (step_between(a, b, &step)) {
      consider(s, label, t, &step);
      suffices = !is_collective(step.kind) || (t != TARGET && s->m->ranks->tiers == 1);
    }
    if (!suffices && exchange_between(a, b, &step) && members(s->m, &step) <= MOST_MEMBERS)
      consider(s, label, t, &step);
  }
}

/* Sets `best` to the best label at the target, if one is better than it. */
static void search_paths(struct search *s, struct label best)
{
  for (int i = 0; i < s->states; i++) s->state[i].expanded = NONE;
  s->best = best;
  s->label[0] = (struct label){.state = START, .least = state_with_parts(s, START)->rest};
  s->n = 1;
  s->nheap = 0;
  memset(s->got[0], 0, sizeof s->got[0]);
  push(s, 0);
  while (s->nheap > 0) {
    int at = pop(s);
    struct label *l = &s->label[at];
    if (is_hopeless(s, l)) continue;
    if (!l->rough) {
      if (l->steps < s->most_steps && !is_dominated(s, at)) expand(s, at);
    } else if (finish_label(s, l, s->got[at])) {
      push(s, at);
    }
  }
}

/* ------------------------------------------------------------------------------------ the plan */

/* A label for these steps, and the elements that the rank receives that receives most. */
static struct label assess(struct cost_model *m, const struct path *p, int64_t *most)
{
  int64_t got[MAX_SAMPLES] = {0};
  struct label l = {.state = NONE};
  for (int i = 0; i < p->n; i++) {
    struct traffic t = traffic_of_step(m, &p->at[i], true);
    l.time += traffic_time(m, &p->at[i].step, &t);
    l.tie_break += tie_break_of(&p->at[i].step, t.one_to_one);
    for (int k = 0; k < m->ranks->n; k++) got[k] += t.received[k];
  }
  *most = 0;
  for (int k = 0; k < m->ranks->n; k++) *most = greater(*most, got[k]);
  l.least = l.time;
  return l;
}

static void add_steps_of_label(struct path *p, const struct search *s, const struct label *l)
{
  if (l->state == START) return;
  const struct label *before = &s->label[l->before];
  add_steps_of_label(p, s, before);
  p->at[p->n++] =
      (struct path_step){l->step, s->state[before->state].compact, s->state[l->state].compact};
}

static void add_fastest_steps(struct cost_model *m, struct path *p,
                              const struct compact_layout *from, const struct compact_layout *to,
                              unsigned fixed_dims)
{
  const struct rank_sample *ranks = m->ranks;
  struct search *s = malloc(sizeof *s);
  struct path greedy = {.n = 0};
  if (!s) usage_error(3, "no memory: cannot search for moves");
  s->m = m;
  s->from = *from;
  s->to = *to;
  s->most_steps = MAX_MOVES - p->n;
  s->bandwidth = s->shortest = s->limit = 0;
  s->limited = ranks->tiers == 1;
  for (int t = 0; t < ranks->tiers; t++) s->bandwidth += ranks->bandwidth[t];
  s->bandwidth = fmax(s->bandwidth, fastest_ring());
  for (int i = 0; i < ranks->mesh.ndim; i++) {
    int64_t l = picoseconds(link_of_dimension(i).latency);
    if (ranks->mesh.size[i] > 1 && (!s->shortest || l < s->shortest)) s->shortest = l;
  }
  find_states(s, fixed_dims);
  bool found = false; /* a path on which no rank receives more than it lacks */
  if (s->limited && !is_anything_pending(from, to)) {
    state_with_parts(s, START);
    for (int k = 0; k < ranks->n; k++) s->limit = greater(s->limit, s->lacks[START][k]);
    search_paths(s, (struct label){.state = NONE, .least = INT64_MAX});
    found = s->best.state == TARGET;
  }
  if (!found) {
    add_greedy_steps(&greedy, from, to);
    search_paths(s, assess(m, &greedy, &s->limit));
  }
  if (s->best.state == TARGET)
    add_steps_of_label(p, s, &s->best);
  else
    for (int i = 0; i < greedy.n; i++) p->at[p->n++] = greedy.at[i];
  free(s);
}

/* On a mesh dimension of size 1 the placement is removed first and added last. */
static void add_steps(struct cost_model *m, struct path *p, const struct compact_layout *from,
                      const struct compact_layout *to, unsigned fixed_dims)
{
  const struct mesh *mesh = &m->ranks->mesh;
  struct compact_layout now = *from, nearly = *to;
  if (same_compact(from, to)) return;
  for (int i = 0; i < mesh->ndim; i++) {
    if (mesh->size[i] == 1 && nearly.at[i] != WHOLE) set_state(&nearly, i, WHOLE);
    if (mesh->size[i] == 1) add_step_along(p, &now, i, WHOLE, 0);
  }
  if (!same_compact(&now, &nearly)) add_fastest_steps(m, p, &now, &nearly, fixed_dims);
  now = nearly;
  for (int i = 0; i < mesh->ndim; i++)
    if (mesh->size[i] == 1) add_step_along(p, &now, i, to->at[i], 0);
  if (p->n > 0) p->at[p->n - 1].to = *to;
}

/* All but the mesh. */
static void ask_move_on_mesh(struct query *q, const struct cost_model *m, int mesh,
                             struct shape whole, enum type type, const struct layout *from,
                             const struct layout *to)
{
  ask_number(q, (int64_t)mesh << 16 | whole.ndim << 8 | type_bytes(type) << 1 |
                    plan_options->greedy | (int64_t)m->packs_nothing << 40);
  for (int d = 0; d < whole.ndim; d++) ask_number(q, whole.size[d]);
  ask_layout(q, from);
  ask_layout(q, to);
}

void ask_move(struct cost_model *m, struct query *q, struct shape whole, enum type type,
              const struct layout *from, const struct layout *to)
{
  begin_query(q);
  ask_move_on_mesh(q, m, mesh_number(m), whole, type, from, to);
}

static struct moves moves_found(struct cost_model *m, struct shape whole, enum type type,
                                struct layout from, struct layout to)
{
  static const int origin[MAX_MESH];
  struct fixed_part u = fixed_part_of(from, to);
  struct compact_layout a = compact_of(from, &u), b = compact_of(to, &u);
  struct path p = {.n = 0};
  int64_t most;
  enter_context(m, whole, type, &u, origin, false);
  m->ended_early = 0;
  if (plan_options->greedy)
    add_greedy_steps(&p, &a, &b);
  else
    add_steps(m, &p, &a, &b, u.fixed_dims);
  struct move *move = alloc((size_t)p.n * sizeof *move);
  for (int i = 0; i < p.n; i++) move[i] = move_of(&p.at[i], &u);
  double time = (double)assess(m, &p, &most).time * 1e-12;
  return (struct moves){p.n, move, time, most * m->bytes, m->ended_early};
}

/* As it is shared: the moves follow. */
struct shared_moves {
  struct moves found;
  struct move move[];
};

/* The same from another process, if one has found it for such a machine. */
static struct moves moves_found_once(struct cost_model *m, struct shape whole, enum type type,
                                     struct layout from, struct layout to)
{
  if (is_measured()) return moves_found(m, whole, type, from, to);
  struct query *q = &m->shared_plan;
  begin_query(q);
  ask_machine(q);
  ask_move_on_mesh(q, m, 0, whole, type, &from, &to);
  const struct shared_moves *known = shared_answer(q->at, (size_t)q->n);
  if (known) {
    struct moves moves = known->found;
    moves.move = known->move;
    return moves;
  }
  const struct moves moves = moves_found(m, whole, type, from, to);
  const size_t bytes = (size_t)moves.n * sizeof *moves.move;
  struct shared_moves *shared = alloc(sizeof *shared + bytes);
  shared->found = moves;
  shared->found.move = NULL;
  if (moves.n) memcpy(shared->move, moves.move, bytes);
  share_answer(q->at, (size_t)q->n, shared, sizeof *shared + bytes);
  return moves;
}

const struct moves *find_moves(struct cost_model *m, struct shape whole, enum type type,
                               struct layout from, struct layout to)
{
  bool is_new;
  ask_move(m, &m->plan, whole, type, &from, &to);
  struct moves *moves = answer_to(&m->plans, &m->plan, sizeof *moves, &is_new);
  if (is_new) *moves = moves_found_once(m, whole, type, from, to);
  return moves;
}

const struct moves *plan_moves_unpacked(struct shape whole, enum type type, struct layout from,
                                        struct layout to)
{
  struct cost_model *m = cost_model_of_graph();
  m->packs_nothing = true;
  const struct moves *moves = find_moves(m, whole, type, from, to);
  m->packs_nothing = false;
  return moves;
}

const struct moves *plan_moves(struct shape whole, enum type type, struct layout from,
                               struct layout to)
{
  const struct moves *moves = find_moves(cost_model_of_graph(), whole, type, from, to);
  if (moves->ended_early & TOO_MANY_LAYOUTS)
    ended_early("redistribute", "quicker moves over other layouts", MAX_STATES, "layouts");
  if (moves->ended_early & TOO_MANY_PATHS)
    ended_early("redistribute", "quicker moves", MAX_LABELS, "ways");
  return moves;
}

int64_t greedy_bytes(struct cost_model *m, struct shape whole, enum type type, struct layout from,
                     struct layout to)
{
  static const int origin[MAX_MESH];
  struct fixed_part u = fixed_part_of(from, to);
  struct compact_layout a = compact_of(from, &u), b = compact_of(to, &u);
  struct path p = {.n = 0};
  enter_context(m, whole, type, &u, origin, false);
  add_greedy_steps(&p, &a, &b);
  const int n = m->ranks->n, ndim = whole.ndim;
  int64_t got[MAX_SAMPLES] = {0}, has[MAX_SAMPLES], most = 0;
  struct rank_parts before = find_parts(m, &a), after = before;
  for (int k = 0; k < n; k++) has[k] = size_of_part(ndim, &before, k);
  for (int i = 0; i < p.n; i++, before = after) {
    const struct path_step *s = &p.at[i];
    const int along = s->step.dim[0], ranks = m->ranks->mesh.size[along];
    const int cut = s->from.at[along], cut_after = s->to.at[along];
    if (cut >= 0) after.along[cut] = intervals_along(m, &s->to, cut);
    if (cut_after >= 0) after.along[cut_after] = intervals_along(m, &s->to, cut_after);
    for (int k = 0; k < n; k++) {
      struct share of = {.n = ranks, .has = has[k], .gets = size_of_part(ndim, &after, k)};
      has[k] = of.gets;
      if (!is_collective(s->step.kind)) continue;
      of.member = m->ranks->coordinate[k][along];
      if (collective_row[s->step.kind].pairwise)
        of.kept = part_overlap(ndim, &before, k, &after, k);
      got[k] += elements_received(s->step.kind, &of);
    }
  }
  for (int k = 0; k < n; k++) most = greater(most, got[k]);
  return m->bytes * most;
}
