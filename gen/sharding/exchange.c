/* exchange.c: the direct exchange: the pieces of a tensor, with the sender and receiver of each.

   Takes   a move between two layouts of plain shards, over a group. Values pending on other mesh
           dimensions stay pending; cuts by other dimensions come before those of the group.
   Leaves  the pieces that a rank sends and receives: at most one for each pair of ranks.

   A rank that needs a part may hold some of it already. Each other part of the source that overlaps
   it comes from one owner in the group: the one over the fastest links; of equals, the one that
   sends least so far, in the order of the receivers. So all ranks find the same pieces by
   themselves.

   Groups whose ranks share parts of one size have the same pieces: these are computed once for all
   of them. */
#include "sharding/sharding.h"

#include <string.h>

/* ----------------------------------------------------------------------------- the sends of a
 * group */

/* The slowest link between two members. */
static int tier_between(const struct rank_sample *r, const struct move_step *s,
                        const struct member *a, const struct member *b)
{
  int tier = r->tiers - 1;
  for (int i = 0; tier > 0 && i < s->n; i++) {
    int dim = s->dim[i];
    if (a->coordinate[dim] != b->coordinate[dim]) tier = (int)lesser(tier, r->tier[dim]);
  }
  return tier;
}

/* Which of the members that hold the same as `first` sends to `to`. */
static int sender(const struct rank_sample *r, const struct exchange_plan *p, int first,
                  const struct member *to)
{
  int best = NONE, quickest = NONE;
  for (int k = 0; k < p->owners; k++) {
    int at = first + p->owner[k], tier = tier_between(r, p->step, &p->member[at], to);
    if (best != NONE && tier < quickest) continue;
    if (best != NONE && tier == quickest && p->member[at].load >= p->member[best].load) continue;
    best = at;
    quickest = tier;
  }
  return best;
}

/* Whether the elements that part i of `a` shares with part k of `b` are one contiguous run of part
   i. */
static bool meets_in_run(int ndim, const struct rank_parts *a, int i, const struct rank_parts *b,
                         int k)
{
  bool inside = false; /* a dimension outside of this one has more than one index */
  for (int d = 0; d < ndim; d++) {
    int64_t n = interval_overlap(&a->along[d][i], &b->along[d][k]);
    if (inside && n != interval_size(&a->along[d][i])) return false;
    inside |= n > 1;
  }
  return true;
}

bool is_idle_member(const struct cost_model *m, const struct move_step *s, int member)
{
  return member < s->idle_first || member >= members(m, s) - s->idle_last;
}

/* The members' coordinates, replicas and parts. */
static void exchange_find_members(const struct cost_model *m, struct exchange_plan *p,
                                  const struct compact_layout *from,
                                  const struct compact_layout *to, struct scratch *room)
{
  const int ndim = p->whole.ndim;
  const size_t n = (size_t)p->n;
  struct compact_layout a = cuts_of_group(p->step, *from, true);
  struct compact_layout b = cuts_of_group(p->step, *to, true);
  size_t bytes = 2 * n * (size_t)ndim * sizeof(struct interval) + n * sizeof(int[MAX_MESH]);
  struct interval *at = room ? scratch_alloc(room, bytes) : alloc(bytes);
  int(*coordinate)[MAX_MESH] = (int(*)[MAX_MESH])(at + 2 * ndim * p->n);
  for (int k = 0; k < p->n; k++) {
    struct member *member = &p->member[k];
    for (int i = p->step->n - 1, rest = k, stride = 1; i >= 0; i--) {
      int dim = p->step->dim[i], size = m->ranks->mesh.size[dim];
      member->coordinate[dim] = rest % size;
      if (from->at[dim] >= 0) member->replica += rest % size * stride;
      rest /= size;
      stride *= size;
    }
    memcpy(coordinate[k], member->coordinate, sizeof coordinate[k]);
    if (member->replica == 0) p->owner[p->owners++] = k;
  }
  p->has = parts_of_members(m, p->whole, &a, coordinate, p->n, at);
  p->gets = parts_of_members(m, p->whole, &b, coordinate, p->n, at + ndim * p->n);
}

void plan_exchange(struct cost_model *m, struct exchange_plan *p, const struct compact_layout *from,
                   const struct compact_layout *to, struct scratch *room)
{
  const int ndim = p->whole.ndim;
  p->sends_runs = p->gets_runs = p->one_to_one = true;
  exchange_find_members(m, p, from, to, room);
  for (int k = 0; k < p->n; k++) {
    struct member *to_member = &p->member[k];
    if (is_idle_member(m, p->step, k)) continue;
    for (int first = 0; first < p->n; first++) {
      if (p->member[first].replica != first) continue;
      int64_t n = part_overlap(ndim, &p->has, first, &p->gets, k);
      if (n == 0) continue;
      p->sends_runs = p->sends_runs && meets_in_run(ndim, &p->has, first, &p->gets, k);
      p->gets_runs = p->gets_runs && meets_in_run(ndim, &p->gets, k, &p->has, first);
      int from_member = to_member->replica == first ? k : sender(m->ranks, p, first, to_member);
      if (from_member != k) {
        struct member *f = &p->member[from_member];
        int tier = tier_between(m->ranks, p->step, f, to_member);
        f->load += n;
        f->sent[tier] += n;
        to_member->got[tier] += n;
        p->one_to_one = p->one_to_one && !f->sends++ && !to_member->gets_from++;
      }
      if (!p->listed) continue;
      GROW(p->send, p->nsend, p->room);
      p->send[p->nsend++] = (struct send){from_member, k};
    }
  }
}

/* --------------------------------------------------------------------- the pieces of each rank */

/* The sends of a group with an index: by member, where the pieces that it receives begin in the
   list; and where those that it sends begin in `by_sender`. */
struct indexed_plan {
  struct move_step step;
  struct exchange_plan plan;
  int *gets, *sends, *by_sender;
};

/* Where each member's pieces begin; the last number is the end. */
static int *begins(const struct exchange_plan *p, bool of_senders)
{
  int *at = alloc((size_t)(p->n + 1) * sizeof *at);
  for (int i = 0; i < p->nsend; i++) at[(of_senders ? p->send[i].from : p->send[i].to) + 1]++;
  for (int k = 0; k < p->n; k++) at[k + 1] += at[k];
  return at;
}

/* The plan for the group of the rank at `coordinate`, cached by everything that it depends on. */
static const struct indexed_plan *indexed_plan(struct cost_model *m, const struct move *move,
                                               struct shape whole, const int *coordinate)
{
  struct fixed_part u = fixed_part_of(move->from, move->to);
  enter_context(m, whole, F32, &u, coordinate, false);
  struct move_step step = step_of_move(move);
  struct compact_layout from = compact_of(move->from, &u), to = compact_of(move->to, &u);
  struct shape shared = shape_of_group(m, &step, &from, coordinate);
  from = cuts_of_group(&step, from, true);
  to = cuts_of_group(&step, to, true);
  struct query *q = &m->exchange;
  bool is_new;
  begin_query(q);
  ask_number(q, (int64_t)mesh_number(m) << 32 | u.fixed);
  ask_number(q, step.idle_first);
  ask_number(q, step.idle_last);
  ask_piece(q, (const char *)step.dim, (size_t)step.n * sizeof *step.dim);
  ask_piece(q, (const char *)shared.size, (size_t)shared.ndim * sizeof *shared.size);
  ask_piece(q, (const char *)&from, sizeof from);
  ask_piece(q, (const char *)&to, sizeof to);
  struct indexed_plan *known = answer_to(&m->exchanges, q, sizeof *known, &is_new);
  if (!is_new) return known;
  known->step = step;
  struct exchange_plan *p = &known->plan;
  *p = (struct exchange_plan){
      .step = &known->step, .n = members(m, &step), .whole = shared, .listed = true};
  p->member = alloc((size_t)p->n * sizeof *p->member);
  p->owner = alloc((size_t)p->n * sizeof *p->owner);
  plan_exchange(m, p, &from, &to, NULL);
  /* The pieces are in the order of the receivers, also among those of each sender. */
  known->gets = begins(p, false);
  known->sends = begins(p, true);
  known->by_sender = alloc((size_t)p->nsend * sizeof *known->by_sender);
  int *next = alloc((size_t)(p->n + 1) * sizeof *next);
  memcpy(next, known->sends, (size_t)p->n * sizeof *next);
  for (int i = 0; i < p->nsend; i++) known->by_sender[next[p->send[i].from]++] = i;
  return known;
}

/* The elements that the sender has and the receiver gets, counted from the start of part `me` of
   `own`. */
static struct piece exchange_piece_of(const struct exchange_plan *p, struct send s, int member,
                                      const struct rank_parts *own, int me)
{
  struct piece piece = {.member = member, .part.shape.ndim = p->whole.ndim};
  for (int d = 0; d < p->whole.ndim; d++) {
    const struct interval *a = &p->has.along[d][s.from], *b = &p->gets.along[d][s.to];
    int64_t first = greater(a->first, b->first);
    piece.part.shape.size[d] = lesser(a->last, b->last) - first;
    piece.part.first[d] = first - own->along[d][me].first;
  }
  return piece;
}

int pieces_sent(const struct move *move, struct shape whole, int rank, struct piece *list)
{
  struct cost_model *m = cost_model_of_graph();
  int at[MAX_MESH] = {0}, n = 0;
  coordinate_of(rank, at);
  const struct indexed_plan *k = indexed_plan(m, move, whole, at);
  const struct exchange_plan *p = &k->plan;
  int me = member_at(m, &k->step, at);
  for (int i = k->sends[me]; i < k->sends[me + 1]; i++) {
    struct send s = p->send[k->by_sender[i]];
    list[n++] = exchange_piece_of(p, s, s.to, &p->has, me);
  }
  return n;
}

int pieces_got(const struct move *move, struct shape whole, int rank, struct piece *list)
{
  struct cost_model *m = cost_model_of_graph();
  int at[MAX_MESH] = {0}, n = 0;
  coordinate_of(rank, at);
  const struct indexed_plan *k = indexed_plan(m, move, whole, at);
  const struct exchange_plan *p = &k->plan;
  int me = member_at(m, &k->step, at);
  for (int i = k->gets[me]; i < k->gets[me + 1]; i++, n++) {
    struct piece piece = exchange_piece_of(p, p->send[i], p->send[i].from, &p->gets, me);
    int here = n; /* by sender */
    for (; here > 0 && list[here - 1].member > piece.member; here--) list[here] = list[here - 1];
    list[here] = piece;
  }
  return n;
}

struct transfer_traits find_traits(const struct move *move, struct shape whole)
{
  struct cost_model *m = cost_model_of_graph();
  struct transfer_traits t = {.sends_runs = true, .gets_runs = true, .permutes = true};
  for (int r = 0, n = world_size(); r < n; r++) {
    int at[MAX_MESH] = {0}, inside = 0;
    coordinate_of(r, at);
    for (int i = 0; i < move->n; i++) inside += at[move->dim[i]];
    if (inside != 0) continue;
    const struct exchange_plan *p = &indexed_plan(m, move, whole, at)->plan;
    t.sends_runs = t.sends_runs && p->sends_runs;
    t.gets_runs = t.gets_runs && p->gets_runs;
    t.permutes = t.permutes && p->one_to_one;
  }
  return t;
}
