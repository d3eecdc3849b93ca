/* validity.c: whether a schedule is valid, whether its sends and receives can hang, and its
   cost. */
#include "pipeline/pipeline.h"

#include <string.h>

/* ------------------------------------------------------------------------------------ one order */

/* The actions done for each stage and micro-batch: bits, by kind. */
struct done {
  const struct pipeline *p;
  unsigned char *of;
};

static unsigned char *done_of(const struct done *d, const struct action *a)
{
  return &d->of[microbatch_place(d->p, a->stage, a->microbatch)];
}

static bool is_done(const struct done *d, const struct action *a, enum action_kind kind)
{
  return *done_of(d, a) >> kind & 1;
}

static const char *wrong_action(const struct done *d, int rank, const struct action *a)
{
  const struct pipeline *p = d->p;
  const char *of = text("%s of rank %d", action_text(a), rank);
  if (a->kind > ACTION_W) return text("%s: it is not a computation", of);
  if (a->stage < 0 || a->stage >= p->stages) return text("%s: there are %d stages", of, p->stages);
  if (a->microbatch < 0 || a->microbatch >= p->microbatches)
    return text("%s: there are %d micro-batches", of, p->microbatches);
  if (p->rank_of[a->stage] != rank)
    return text("%s: that stage is on rank %d", of, p->rank_of[a->stage]);
  if (is_done(d, a, a->kind)) return text("%s stands twice", of);
  if (a->kind != ACTION_F && !is_done(d, a, ACTION_F))
    return text("%s comes before its forward", of);
  if (a->kind == ACTION_W && !is_done(d, a, ACTION_I))
    return text("%s comes before its backward for the input", of);
  if ((a->kind == ACTION_I && is_done(d, a, ACTION_B)) ||
      (a->kind == ACTION_B && is_done(d, a, ACTION_I)))
    return text("%s: this micro-batch has its backward already", of);
  return NULL;
}

/* Checks that the order has every action, each at its place on its rank. */
static const char *wrong_rows(const struct pipeline *p)
{
  struct done d = {p, alloc(microbatch_places(p))};
  struct action part[ACTION_PARTS];
  for (int r = 0; r < p->ranks; r++)
    for (int k = 0; k < p->order[r].n; k++)
      for (int i = 0, n = action_parts(&p->order[r].at[k], part); i < n; i++) {
        const char *wrong = wrong_action(&d, r, &part[i]);
        if (wrong) return wrong;
        *done_of(&d, &part[i]) |= (unsigned char)(1u << part[i].kind);
      }
  for (int s = 0; s < d.p->stages; s++)
    for (int m = 0; m < d.p->microbatches; m++) {
      const struct action a = {.stage = s, .microbatch = m};
      const bool backward =
          is_done(&d, &a, ACTION_B) || (is_done(&d, &a, ACTION_I) && is_done(&d, &a, ACTION_W));
      if (!is_done(&d, &a, ACTION_F) || !backward)
        return text("the %s of micro-batch %d on stage %d is missing",
                    !is_done(&d, &a, ACTION_F)  ? "forward"
                    : is_done(&d, &a, ACTION_I) ? "backward for the weights"
                                                : "backward",
                    m, s);
    }
  return NULL;
}

const char *wrong_order(const struct pipeline *p)
{
  const char *why = wrong_rows(p);
  if (!why) lowered(p, &why);
  return why;
}

/* ----------------------------------------------------------------------------------- rendezvous */

static bool is_send(enum action_kind kind)
{
  return kind == ACTION_SEND_F || kind == ACTION_SEND_B;
}

/* The receive that matches this send. */
static struct action receive_of(const struct action *send)
{
  const bool forward = send->kind == ACTION_SEND_F;
  return (struct action){.kind = forward ? ACTION_RECV_F : ACTION_RECV_B,
                         .stage = forward ? send->stage + 1 : send->stage - 1,
                         .microbatch = send->microbatch};
}

static const struct action *next_action(const struct pipeline *p, const int *at, int rank)
{
  return at[rank] < p->order[rank].n ? &p->order[rank].at[at[rank]] : NULL;
}

/* Steps over this rank's next action, if it can end now: a send with the receive that is next on
 * another rank.
 */
static bool ends(const struct pipeline *p, int *at, int rank)
{
  const struct action *a = next_action(p, at, rank);
  if (!a || a->kind == ACTION_RECV_F || a->kind == ACTION_RECV_B) return false;
  if (is_send(a->kind)) {
    const struct action receive = receive_of(a);
    if (receive.stage < 0 || receive.stage >= p->stages) return false;
    const int other = p->rank_of[receive.stage];
    const struct action *theirs = next_action(p, at, other);
    if (!theirs || theirs->kind != receive.kind || theirs->stage != receive.stage ||
        theirs->microbatch != receive.microbatch)
      return false;
    at[other]++;
  }
  at[rank]++;
  return true;
}

const char *what_hangs(const struct pipeline *p)
{
  int *at = alloc((size_t)p->ranks * sizeof *at);
  struct buffer b = {0};
  for (bool moves = true; moves;) {
    moves = false;
    for (int r = 0; r < p->ranks; r++)
      while (ends(p, at, r)) moves = true;
  }
  for (int r = 0; r < p->ranks; r++) {
    const struct action *a = next_action(p, at, r);
    if (a) put(&b, "%srank %d in %s", b.length ? ", " : "", r, action_text(a));
  }
  return b.length ? b.text : NULL;
}

/* --------------------------------------------------------------------------- sends that do not
 * wait
 */

/* By stage and micro-batch: the values sent to it, and received; of forwards and backwards. */
struct moved {
  const struct pipeline *p;
  bool *sent[2], *received[2];
};

/* Whether the action's input comes from another rank, and has been received. */
static bool has_input(const struct moved *m, const struct action *a)
{
  const bool forward = a->kind == ACTION_F;
  const int from = forward ? a->stage - 1 : a->stage + 1;
  if (a->kind == ACTION_W || from < 0 || from >= m->p->stages) return true;
  if (m->p->rank_of[from] == m->p->rank_of[a->stage]) return true;
  return m->received[forward][microbatch_place(m->p, a->stage, a->microbatch)];
}

static bool can_go_on(struct moved *m, const struct action *a)
{
  struct action part[ACTION_PARTS];
  if (is_send(a->kind)) {
    const struct action receive = receive_of(a);
    if (receive.stage < 0 || receive.stage >= m->p->stages) return false;
    m->sent[a->kind == ACTION_SEND_F][microbatch_place(m->p, receive.stage, a->microbatch)] = true;
    return true;
  }
  if (a->kind == ACTION_RECV_F || a->kind == ACTION_RECV_B) {
    const bool forward = a->kind == ACTION_RECV_F;
    const size_t place = microbatch_place(m->p, a->stage, a->microbatch);
    return m->received[forward][place] = m->sent[forward][place];
  }
  for (int k = a->kind > ACTION_OVERLAP ? 0 : action_parts(a, part); k-- > 0;)
    if (!has_input(m, &part[k])) return false;
  return true;
}

static const char *what_is_not_received(const struct moved *m)
{
  for (int s = 0; s < m->p->stages; s++)
    for (int k = 0; k < m->p->microbatches; k++)
      for (int forward = 0; forward < 2; forward++) {
        const size_t place = microbatch_place(m->p, s, k);
        if (m->sent[forward][place] && !m->received[forward][place])
          return text("%dRECV_%c%d is missing", s, forward ? 'F' : 'B', k);
      }
  return NULL;
}

const char *wrong_moves(const struct pipeline *p)
{
  int *at = alloc((size_t)p->ranks * sizeof *at);
  struct moved m = {.p = p};
  struct buffer b = {0};
  for (int forward = 0; forward < 2; forward++) {
    m.sent[forward] = alloc(microbatch_places(p) + 1);
    m.received[forward] = alloc(microbatch_places(p) + 1);
  }
  for (bool moves = true; moves;) {
    moves = false;
    for (int r = 0; r < p->ranks; r++)
      for (const struct action *a; (a = next_action(p, at, r)) && can_go_on(&m, a); at[r]++)
        moves = true;
  }
  for (int r = 0; r < p->ranks; r++) {
    const struct action *a = next_action(p, at, r);
    if (a) put(&b, "%srank %d in %s", b.length ? ", " : "", r, action_text(a));
  }
  return b.length ? text("it hangs: %s", b.text) : what_is_not_received(&m);
}

/* ----------------------------------------------------------------------------------------- cost */

/* The time at which the next stage has the result of each stage's forward for each micro-batch, and
   the previous stage that of its backward; 0: not yet. By rank, the time until which its sends to
   either side travel. */
struct ends {
  const struct pipeline *p;
  const struct stage_times *times;
  int64_t *forward, *backward, *to_next, *to_before;
};

/* The time at which the action's input is complete; -1: it is not made yet. */
static int64_t input_of(const struct ends *e, const struct action *a)
{
  int64_t when = 0;
  if (a->kind == ACTION_F && a->stage > 0)
    when = e->forward[microbatch_place(e->p, a->stage - 1, a->microbatch)];
  else if ((a->kind == ACTION_B || a->kind == ACTION_I) && a->stage + 1 < e->p->stages)
    when = e->backward[microbatch_place(e->p, a->stage + 1, a->microbatch)];
  else
    return 0;
  return when ? when : -1;
}

/* The time at which a result that the stage has at `now` arrives at its neighbour. */
static int64_t arrival(const struct ends *e, int stage, bool forward, int64_t now)
{
  const int next = stage + (forward ? 1 : -1), rank = e->p->rank_of[stage];
  if (next < 0 || next >= e->p->stages || e->p->rank_of[next] == rank) return now;
  const struct stage_times *t = &e->times[stage];
  int64_t *until = forward ? &e->to_next[rank] : &e->to_before[rank];
  const int64_t from = *until > now ? *until : now;
  return *until = from + (forward ? t->sends_forward : t->sends_backward);
}

static int64_t time_of(const struct ends *e, const struct action *a)
{
  struct action part[ACTION_PARTS];
  int64_t all = 0;
  for (int i = 0, n = action_parts(a, part); i < n; i++)
    all += e->times[part[i].stage].takes[part[i].kind];
  return all;
}

/* Runs one action at the rank's time; false: its inputs are not there. */
static bool runs(const struct ends *e, const struct action *a, int64_t *time)
{
  struct action part[ACTION_PARTS];
  const int n = action_parts(a, part);
  int64_t from = *time;
  for (int i = 0; i < n; i++) {
    const int64_t there = input_of(e, &part[i]);
    if (there < 0) return false;
    if (there > from) from = there;
  }
  *time = from + time_of(e, a);
  for (int i = 0; i < n; i++) {
    const size_t place = microbatch_place(e->p, part[i].stage, part[i].microbatch);
    if (part[i].kind == ACTION_F)
      e->forward[place] = arrival(e, part[i].stage, true, *time);
    else if (part[i].kind != ACTION_W)
      e->backward[place] = arrival(e, part[i].stage, false, *time);
  }
  return true;
}

/* From a micro-batch's forward to its B or W. */
static int most_microbatches(const struct actions *order)
{
  int now = 0, most = 0;
  struct action part[ACTION_PARTS];
  for (int k = 0; k < order->n; k++)
    for (int i = 0, n = action_parts(&order->at[k], part); i < n; i++) {
      now += part[i].kind == ACTION_F;
      if (now > most) most = now;
      now -= part[i].kind == ACTION_B || part[i].kind == ACTION_W;
    }
  return most;
}

struct pipeline_cost pipeline_cost_of(const struct pipeline *p, const struct stage_times *times)
{
  const size_t all = microbatch_places(p), ranks = (size_t)p->ranks;
  struct ends e = {.p = p, .times = times};
  e.forward = alloc(all * sizeof(int64_t));
  e.backward = alloc(all * sizeof(int64_t));
  e.to_next = alloc(ranks * sizeof(int64_t));
  e.to_before = alloc(ranks * sizeof(int64_t));
  struct pipeline_cost cost = {.busy = alloc(ranks * sizeof *cost.busy),
                               .in_flight = alloc(ranks * sizeof *cost.in_flight),
                               .begin = alloc(ranks * sizeof *cost.begin)};
  int64_t *time = alloc(ranks * sizeof *time), busy = 0;
  int *at = alloc(ranks * sizeof *at);
  for (int r = 0; r < p->ranks; r++)
    cost.begin[r] = alloc((size_t)(p->order[r].n + 1) * sizeof *cost.begin[r]);
  for (bool moves = true; moves;) {
    moves = false;
    for (int r = 0; r < p->ranks; r++)
      for (const struct action *a; (a = next_action(p, at, r)) && runs(&e, a, &time[r]); at[r]++) {
        cost.begin[r][at[r]] = time[r] - time_of(&e, a);
        moves = true;
      }
  }
  for (int r = 0; r < p->ranks; r++) {
    if (time[r] > cost.time) cost.time = time[r];
    for (int k = 0; k < p->order[r].n; k++) cost.busy[r] += time_of(&e, &p->order[r].at[k]);
    busy += cost.busy[r];
    cost.in_flight[r] = most_microbatches(&p->order[r]);
  }
  cost.idle = 1 - (double)busy / ((double)cost.time * p->ranks);
  return cost;
}

struct pipeline_cost pipeline_cost(const struct pipeline *p)
{
  static const struct stage_times units = {
      .takes = {[ACTION_F] = 1, [ACTION_B] = 2, [ACTION_I] = 1, [ACTION_W] = 1}};
  struct stage_times *times = alloc((size_t)p->stages * sizeof *times);
  for (int i = 0; i < p->stages; i++) times[i] = units;
  return pipeline_cost_of(p, times);
}
