/* lowering.c: an order of computation becomes the ranks' actions: parameters gathered ahead,
   gradients that are complete, sends and receives. The rules are PyTorch's, in its order:
   _add_unshard_reshard, _add_reduce_grad, _add_send_recv. */
#include "pipeline/pipeline.h"

#include <string.h>

static void lower_stage(struct actions *list, enum action_kind kind, int stage)
{
  put_action(list, (struct action){.kind = kind, .stage = stage});
}

/* ----------------------------------------------------------------------------------- parameters */

enum { AHEAD = 3 }; /* stages whose parameters a rank has at once */

/* The next stages that compute, from action `from` on. */
static struct list next_stages(const struct actions *order, int from)
{
  struct list next = {0};
  struct action part[ACTION_PARTS];
  for (int k = from; k < order->n && next.n < AHEAD; k++)
    for (int i = 0, n = action_parts(&order->at[k], part); i < n; i++)
      add_once(&next, part[i].stage);
  return next;
}

static struct actions with_parameters(const struct actions *order)
{
  struct actions all = {0};
  struct list there = {0};
  for (int k = 0; k < order->n; k++) {
    if (order->at[k].kind == ACTION_IDLE) continue;
    const struct list next = next_stages(order, k);
    int stay = 0;
    for (int i = 0; i < there.n; i++) {
      if (lists_number(next.at, next.n, there.at[i]))
        there.at[stay++] = there.at[i];
      else
        lower_stage(&all, ACTION_RESHARD, there.at[i]);
    }
    there.n = stay;
    for (int i = 0; i < next.n; i++) {
      if (lists_number(there.at, there.n, next.at[i])) continue;
      lower_stage(&all, ACTION_UNSHARD, next.at[i]);
      add(&there, next.at[i]);
    }
    put_action(&all, order->at[k]);
  }
  for (int i = 0; i < there.n; i++) lower_stage(&all, ACTION_RESHARD, there.at[i]);
  return all;
}

/* ------------------------------------------------------------------------------------ gradients */

/* After a stage's last B or W. */
static struct actions with_gradients(const struct actions *order, const struct pipeline *p)
{
  struct actions all = {0};
  int *done = alloc((size_t)p->stages * sizeof *done);
  struct action part[ACTION_PARTS];
  for (int k = 0; k < order->n; k++) {
    put_action(&all, order->at[k]);
    for (int i = 0, n = action_parts(&order->at[k], part); i < n; i++)
      if ((part[i].kind == ACTION_B || part[i].kind == ACTION_W) &&
          ++done[part[i].stage] == p->microbatches)
        lower_stage(&all, ACTION_REDUCE_GRAD, part[i].stage);
  }
  return all;
}

/* --------------------------------------------------------------------------- sends and receives */

/* The inputs that have come to their rank, for each stage and micro-batch: of its F, and of its
   B. */
struct here {
  const struct pipeline *p;
  bool *forward, *backward;
};

static bool lowering_is_backward(enum action_kind kind)
{
  return kind == ACTION_B || kind == ACTION_I;
}

static bool is_ready(const struct here *here, const struct action *a)
{
  const struct pipeline *p = here->p;
  const size_t place = microbatch_place(p, a->stage, a->microbatch);
  if (a->kind == ACTION_F && a->stage > 0) return here->forward[place];
  if (lowering_is_backward(a->kind) && a->stage < p->stages - 1) return here->backward[place];
  return true;
}

/* The action's result goes to the next stage, or back to the one before: if that is on another rank
   by a send here and a receive there, at the end of that rank's actions so far. */
static void pass_on(struct here *here, const struct action *a, struct pipeline *to)
{
  const struct pipeline *p = here->p;
  const bool forward = a->kind == ACTION_F;
  if (!forward && !lowering_is_backward(a->kind)) return;
  const int next = forward ? a->stage + 1 : a->stage - 1;
  if (next < 0 || next == p->stages) return;
  (forward ? here->forward : here->backward)[microbatch_place(p, next, a->microbatch)] = true;
  if (p->rank_of[next] == p->rank_of[a->stage]) return;
  put_action(&to->order[p->rank_of[a->stage]],
             (struct action){.kind = forward ? ACTION_SEND_F : ACTION_SEND_B,
                             .stage = a->stage,
                             .microbatch = a->microbatch});
  put_action(&to->order[p->rank_of[next]],
             (struct action){.kind = forward ? ACTION_RECV_F : ACTION_RECV_B,
                             .stage = next,
                             .microbatch = a->microbatch});
}

/* One action, if its rank has its inputs. */
static bool go_on(struct here *here, const struct action *a, int rank, struct pipeline *to)
{
  struct action part[ACTION_PARTS];
  const int n = action_parts(a, part);
  for (int i = 0; i < n; i++)
    if (!is_ready(here, &part[i])) return false;
  put_action(&to->order[rank], *a);
  for (int i = 0; i < n; i++) pass_on(here, &part[i], to);
  return true;
}

/* Round after round, an action of each rank in turn. */
static bool add_moves(const struct pipeline *p, struct pipeline *to, int *at)
{
  struct here here = {p, alloc(microbatch_places(p)), alloc(microbatch_places(p))};
  for (bool moves = true; moves;) {
    moves = false;
    for (int r = 0; r < p->ranks; r++)
      if (at[r] < p->order[r].n && go_on(&here, &p->order[r].at[at[r]], r, to)) {
        at[r]++;
        moves = true;
      }
  }
  for (int r = 0; r < p->ranks; r++)
    if (at[r] < p->order[r].n) return false;
  return true;
}

static const char *where_it_stops(const struct pipeline *p, const int *at)
{
  struct buffer b = {0};
  for (int r = 0; r < p->ranks; r++)
    if (at[r] < p->order[r].n)
      put(&b, "%s rank %d for what %s needs", b.length ? "," : "", r,
          action_text(&p->order[r].at[at[r]]));
  return text("its ranks wait for each other:%s", b.text);
}

struct pipeline *lowered(const struct pipeline *p, const char **why)
{
  struct pipeline *computes = alloc(sizeof *computes), *all = alloc(sizeof *all);
  int *at = alloc((size_t)p->ranks * sizeof *at);
  *computes = *all = *p;
  computes->order = alloc((size_t)p->ranks * sizeof *p->order);
  all->order = alloc((size_t)p->ranks * sizeof *p->order);
  for (int r = 0; r < p->ranks; r++) {
    const struct actions there = with_parameters(&p->order[r]);
    computes->order[r] = with_gradients(&there, p);
  }
  *why = NULL;
  if (add_moves(computes, all, at)) return all;
  *why = where_it_stops(computes, at);
  return NULL;
}
