/* stream_model.c: a part of the pass `schedule`: the time and the stream at which each operation of
   a span runs, and the time for which the main stream waits for collectives, by the model of
   target/stream_times.c.

   An asynchronous collective is in flight until it is awaited: right before the first operation
   that depends on it, at the latest at the span's end. A blocking one is awaited where it is
   issued. The time that an await takes from the main stream is the collective's exposed time. A
   chained collective is adjacent to its predecessor, and one await serves both.

   memory.c reuses bytes when no later operation in program order needs them, and it knows no other
   order. That is safe on every stream: a collective starts after the main stream has passed every
   await that stands before it. A chained collective waits only for its predecessor. That is safe as
   well: everything that it depends on is awaited before the two, and the predecessor has waited for
   it.

   In the body of a loop some collectives are in flight from one iteration to another one
   (loop_carried.c). So several iterations are simulated, and the last of them is measured. */
#include "function_passes/function_passes.h"

#include <string.h>

/* A collective that is in flight when a loop ends. */
struct left_in_flight {
  int op, body;
  int64_t time, end; /* the time that it still takes then; its end in the last simulation */
};

bool is_chained(const struct span *s, int n)
{
  int p = s->node[n].predecessor;
  return p != NONE && s->node[n].async && s->node[p].async && s->place[n] == s->place[p] + 1;
}

bool has_chained(const struct span *s, int n)
{
  return s->node[n].successor != NONE && is_chained(s, s->node[n].successor);
}

int first_dependent(const struct span *s, int n)
{
  const struct list *dependents = &s->node[n].dependents;
  int first = s->nnode;
  for (int i = 0; i < dependents->n; i++)
    if (s->place[dependents->at[i]] < first) first = s->place[dependents->at[i]];
  return first;
}

/* ------------------------------------------------------------------------ collectives in flight */

static void clear_in_flight(struct span *s)
{
  memset(s->streams.is_in_flight, 0, (size_t)s->nnode);
  s->streams.in_flight.n = 0;
}

static void put_in_flight(struct span *s, int n)
{
  add(&s->streams.in_flight, n);
  s->streams.is_in_flight[n] = true;
}

static bool depends_on_collective(const struct span *s, int n, int c)
{
  return s->depends_on[n][c] && !(c == s->node[n].predecessor && is_chained(s, n));
}

/* Whether the collective in flight has to be awaited before node n. n == nnode is the end. */
static bool must_await(const struct span *s, int n, int c)
{
  return n == s->nnode || depends_on_collective(s, n, c) ||
         (has_chained(s, n) && depends_on_collective(s, s->node[n].successor, c));
}

static bool any_in_flight(const struct span *s, const struct list *collectives)
{
  for (int i = 0; i < collectives->n; i++)
    if (s->streams.is_in_flight[collectives->at[i]]) return true;
  return false;
}

static void stream_model_await(struct span *s, int n)
{
  struct streams *streams = &s->streams;
  struct op_node *c = &s->node[n];
  int64_t end = streams->end[n];
  if (c->carried == PREFETCHES) {
    end = c->nend ? c->end[0] : 0;
    if (c->nend) memmove(c->end, c->end + 1, (size_t)--c->nend * sizeof end);
  }
  streams->end[n] = 0;
  c->exposed = wait_for_stream(&streams->times, end);
  if (!has_chained(s, n)) streams->times.now += c->time_after;
}

/* Awaits the collectives that have to be awaited before node n. */
static void await_before(struct span *s, int n)
{
  struct list *in_flight = &s->streams.in_flight;
  int left = 0;
  /* Whether the node may have to await anything: a quick test. */
  bool may_await = true;
  if (n != s->nnode && !any_in_flight(s, &s->node[n].collectives)) {
    int successor = s->node[n].successor;
    may_await = successor != NONE && any_in_flight(s, &s->node[successor].collectives);
  }
  if (!may_await) return;
  for (int i = 0; i < in_flight->n; i++) {
    int c = in_flight->at[i];
    if (must_await(s, n, c))
      stream_model_await(s, c), s->streams.is_in_flight[c] = false;
    else
      in_flight->at[left++] = c;
  }
  in_flight->n = left;
}

/* ----------------------------------------------------------------------------------- simulation */

static void issue(struct span *s, int n)
{
  struct op_node *c = &s->node[n];
  struct streams *streams = &s->streams;
  issue_on_stream(&streams->times,
                  &(struct stream_issue){.group = c->group,
                                         .async = c->async,
                                         .has_chained = has_chained(s, n),
                                         .takes = c->time,
                                         .copies_out = c->time_after,
                                         .predecessor_ends =
                                             is_chained(s, n) ? streams->end[c->predecessor] : 0});
  streams->end[n] = streams->times.until[c->group];
  if (c->carried == PREFETCHES && c->nend < MOST_PREFETCHED) c->end[c->nend++] = streams->end[n];
}

static struct left_in_flight *find_left(const struct overlap *o, int collective)
{
  for (int i = 0; i < o->nleft; i++)
    if (o->left[i].op == collective) return &o->left[i];
  return NULL;
}

void leave_in_flight(struct overlap *o, int collective, int body, int64_t time)
{
  struct left_in_flight *left = find_left(o, collective);
  if (!left) {
    GROW(o->left, o->nleft, o->left_room);
    left = &o->left[o->nleft++];
  }
  *left = (struct left_in_flight){collective, body, time > 0 ? time : 0, 0};
}

/* Awaits the collective of the iteration before, or of the last iteration of a loop. */
static void await_earlier(struct span *s, int n)
{
  for (int m = 0; m < s->nnode; m++) {
    if (s->node[m].carried != AWAITED_NEXT || s->node[m].op != s->node[n].collective) continue;
    if (s->streams.end[m]) stream_model_await(s, m);
    return;
  }
  const struct left_in_flight *left = find_left(s->program, s->node[n].collective);
  if (left) wait_for_stream(&s->streams.times, left->end);
}

static void run_iteration(struct span *s)
{
  for (int k = 0; k < s->nnode; k++) {
    int n = s->order[k];
    const struct op_node *node = &s->node[n];
    await_before(s, n);
    if (node->carried == AWAITS_EARLIER)
      await_earlier(s, n), s->streams.times.now += node->time_after;
    else if (node->group != NONE) {
      struct op_node *c = &s->node[n];
      if (c->carried == PREFETCHES) stream_model_await(s, n);
      s->streams.times.now += c->time_before;
      issue(s, n);
      if (c->carried != PREFETCHES && c->carried != AWAITED_NEXT) {
        if (c->async)
          put_in_flight(s, n);
        else
          stream_model_await(s, n);
      }
    } else
      s->streams.times.now += node->time;
    if (node->body != NONE) {
      /* The loop is done: its last collectives are still on their streams. */
      int body = node->body;
      for (int i = 0; i < s->program->nleft; i++) {
        struct left_in_flight *left = &s->program->left[i];
        int64_t *until = &s->streams.times.until[graph->op[left->op].group];
        if (left->body != body) continue;
        left->end = s->streams.times.now + left->time;
        if (*until < left->end) *until = left->end;
      }
    }
  }
  await_before(s, s->nnode);
}

int64_t simulate_span(struct span *s)
{
  struct streams *streams = &s->streams;
  int iterations = s->most_ahead ? 2 + s->most_ahead : 1;
  int64_t began = 0;
  s->program->visited += s->nnode;
  streams->times.now = 0;
  clear_in_flight(s);
  memset(streams->times.until, 0, (size_t)graph->ngroup * sizeof *streams->times.until);
  memset(streams->end, 0, (size_t)s->nnode * sizeof *streams->end);
  for (int n = 0; n < s->nnode && s->most_ahead; n++) s->node[n].nend = 0;
  /* Makes the issues before the first iteration. */
  for (int iteration = 0; iteration < s->most_ahead; iteration++)
    for (int k = 0; k < s->nnode; k++) {
      const struct op_node *n = &s->node[s->order[k]];
      if (n->carried != PREFETCHES) continue;
      const struct op *collective = &graph->op[n->collective];
      if (iteration < scheduled(collective)->prefetch_distance) issue(s, s->order[k]);
    }
  for (int i = 0; i < iterations; i++) {
    began = streams->times.now;
    run_iteration(s);
  }
  return streams->times.now - began;
}

/* ---------------------------------------------------------------------------- issues and awaits */

void open_streams(struct span *s)
{
  struct streams *streams = &s->streams;
  open_stream_times(&streams->times);
  streams->end = alloc((size_t)(s->nnode + 1) * sizeof *streams->end);
  streams->is_in_flight = alloc((size_t)s->nnode + 1);
  /* Makes an await for each collective, whether or not it will be used. */
  int *await = alloc((size_t)s->nnode * sizeof *await);
  for (int n = 0; n < s->nnode; n++) {
    if (s->node[n].group != NONE) await[n] = await_of(s->node[n].op);
  }
  s->await = await;
}

/* Whether the collective that is chained to c is awaited before node n, and c with it. */
static bool is_awaited_by_successor(const struct span *s, int n, int c)
{
  int successor = s->node[c].successor;
  if (!has_chained(s, c)) return false;
  const struct list *in_flight = &s->streams.in_flight;
  for (int i = 0; i < in_flight->n; i++)
    if (in_flight->at[i] == successor)
      return must_await(s, n, successor) || is_awaited_by_successor(s, n, successor);
  return false;
}

int write_order(struct span *s, int *op)
{
  struct list *in_flight = &s->streams.in_flight;
  int count = 0;
  clear_in_flight(s);
  for (int k = 0; k <= s->nnode; k++) {
    int left = 0, n = k < s->nnode ? s->order[k] : s->nnode;
    for (int i = 0; i < in_flight->n; i++) {
      int c = in_flight->at[i];
      if (is_awaited_by_successor(s, n, c)) continue;
      if (must_await(s, n, c))
        op[count++] = s->await[c];
      else
        in_flight->at[left++] = c;
    }
    in_flight->n = left;
    if (n == s->nnode) break;
    op[count++] = s->node[n].op;
    if (s->node[n].carried == PREFETCHES) op[count++] = s->node[n].next;
    if (s->node[n].async && !s->node[n].carried) put_in_flight(s, n);
  }
  return count;
}

static bool is_group_in_flight(const struct span *s, int at, int group)
{
  for (int i = 0; i < s->streams.in_flight.n; i++)
    if (s->node[s->streams.in_flight.at[i]].group == group) return true;
  for (int n = 0; n < s->nnode; n++) {
    const struct op_node *c = &s->node[n];
    if (c->group == group && (c->carried == PREFETCHES || c->carried == AWAITED_NEXT)) return true;
  }
  /* Whether a collective of the group that a loop before has issued is in flight at this place. */
  for (int k = at + 1; k < s->nnode; k++) {
    const struct op_node *n = &s->node[s->order[k]];
    if (n->carried != AWAITS_EARLIER) continue;
    /* Whether the collective or its predecessor runs on the group's stream. */
    const struct op *op = &graph->op[n->collective], *predecessor = predecessor_of(op);
    bool uses_stream = op->group == group || (predecessor && predecessor->group == group);
    if (!uses_stream) continue;
    const struct op *call = &graph->op[n->op];
    int body = call->kind == OP_iteration ? graph->function[call->function].body
                                          : find_left(s->program, n->collective)->body;
    for (int before = 0; before < at; before++)
      if (s->node[s->order[before]].body == body) return true;
  }
  return false;
}

/* Returns whether a collective has become chained: its predecessor is then in flight for longer
   than this pass assumed. */
static bool queue_once(struct span *s)
{
  bool longer = false;
  clear_in_flight(s);
  for (int k = 0; k < s->nnode; k++) {
    int n = s->order[k];
    struct op_node *c = &s->node[n];
    if (c->group != NONE && !c->async && first_dependent(s, n) == k + 1) {
      for (int i = 0; i < s->streams.in_flight.n; i++) {
        int j = s->streams.in_flight.at[i];
        if (s->node[j].group == s->node[n].group && !s->node[j].carried) add_dependence(s, n, j);
      }
    }
    await_before(s, n);
    if (c->group == NONE || c->carried == PREFETCHES || c->carried == AWAITED_NEXT) continue;
    bool was_chained = is_chained(s, n);
    c->async |= is_group_in_flight(s, k, c->group);
    longer |= !was_chained && is_chained(s, n);
    if (c->async) put_in_flight(s, n);
  }
  return longer;
}

void queue_behind_in_flight(struct span *s)
{
  while (queue_once(s)) continue;
}
