/* redistribute.c: the pass `redistribute`: from requests to collectives.

   Takes   a graph in which every value is placed, with redistribute operations.
   Leaves  none of them: in their place the steps that plan_moves (moves.c) chose, as collectives
           over groups of ranks, local slices and packings; or nothing if nothing moves. A value
           that changes its type is cast before it moves. Two consecutive redistributions in the
           backward become one, unless the plan asked for the layout between them. From here on each
           rank runs an operation on its own parts.

   Collectives take and leave the members' parts contiguously, in the order of the group. If parts
   along a dimension are not contiguous, pack makes them so before, and unpack puts the result in
   its place. An exchange's pieces are in flat buffers, by member, unless they are contiguous in the
   value itself.

   Which steps are the quickest depends on the packings, and the orders in memory that make these
   needless depend on the steps: both are decided together, by trials (find_packings).

   The planner knows plain shards only. If a dimension has strided shards, before or after, the
   value is viewed with that dimension split at every outer factor: there each cut is plain, and a
   view moves nothing. */
#include "graph_passes/graph_passes.h"

#include <inttypes.h>
#include <string.h>

typedef int pieces(const struct move *m, struct shape whole, int rank, struct piece *list);

/* Of an exchange; equal modules have the same ones. */
struct exchange_facts {
  bool is_known;
  struct transfer_traits traits;
  struct shape sent, got; /* flat; of pieces that are no runs */
};

/* The state of the pass. */
struct lowering {
  int *stands_for; /* the current replacement of each value */
  struct list new_order;
  int first_step; /* no operation before this one is a step of the redistribution under work */
  struct entering enters; /* the values that the first step of a scan reads for the carry */
  int *readers, *reader;  /* by value: the number of operations that read it, and the last of
                             them */
  bool packs;             /* packing has its price in the redistribution under work */
  bool is_stored;         /* it is of a value whose order in memory is given: no activation */
  bool in_doubt;          /* it has other steps if packing has the other price */
  int nfacts, facts_room;
  struct exchange_facts *facts; /* by exchange */
};

/* ------------------------------------------------------------------------------------- the pass */

/* Whether parts along dimension `dim` are contiguous in a contiguous value. No rank has a larger
   part than the first. */
static bool outermost(int value, int dim)
{
  struct shape here = local_shape(value, 0);
  if (here.size[dim] <= 1 || elements(here) == 0) return true;
  for (int d = 0; d < dim; d++)
    if (here.size[d] > 1) return false;
  return true;
}

/* Whether a step of this redistribution made the value. */
static bool is_reached(struct lowering *w, int value)
{
  int maker = graph->value[value].op;
  return maker >= w->first_step && graph->op[maker].kind != OP_cast;
}

/* Adds one local or collective operation on `value`, which leaves it in `layout`. */
static int moved(struct lowering *w, struct op op, int value, struct layout layout)
{
  op.continues = op.kind != OP_cast && is_reached(w, value);
  op.nin = 1;
  op.in[0] = value;
  int i = make_op(op);
  struct value *out = &graph->value[graph->op[i].out];
  out->layout = usual_cut_order(layout);
  out->placed = true;
  out->name = value_name(value);
  add(&w->new_order, i);
  return graph->op[i].out;
}

/* Packs `value` so that its parts along op.dim, as the group's members hold them under `parts`,
   are contiguous; unpack is the reverse. */
static int pack(struct lowering *w, struct op op, enum op_kind kind, int value, struct layout parts)
{
  if (outermost(value, op.dim)) return value;
  op.kind = kind;
  op.to = parts;
  return moved(w, op, value, graph->value[value].layout);
}

static const char *why_text(const struct op *op)
{
  return op->why ? op->why : "a redistribution";
}

static struct op asked_for_by(const struct op *op)
{
  return (struct op){.module = op->module,
                     .line = op->line,
                     .phase = op->phase,
                     .of_unit = op->of_unit,
                     .unit = op->unit,
                     .held = op->held,
                     .last_batch = op->last_batch,
                     .why = op->why};
}

/* Equal exchanges share one entry, so that equal modules stay equal. */
int add_exchange(struct exchange e)
{
  for (int i = 0; i < graph->nexchange; i++) {
    const struct exchange *a = &graph->exchange[i];
    bool same_exchange =
        a->type == e.type && a->group == e.group && same_shape(a->whole, e.whole) &&
        same_layout(a->move.from, e.move.from) && same_layout(a->move.to, e.move.to) &&
        a->move.idle_first == e.move.idle_first && a->move.idle_last == e.move.idle_last;
    if (same_exchange) return i;
  }
  GROW(graph->exchange, graph->nexchange, graph->exchange_room);
  graph->exchange[graph->nexchange] = e;
  return graph->nexchange++;
}

/* The shape of a buffer for the pieces that any rank sends, or receives, one after the other. */
static struct shape flat_shape(const struct exchange *e, pieces *of)
{
  struct piece *list = alloc((size_t)group_size(e->group) * sizeof *list);
  struct shape most = {.ndim = 1};
  for (int r = 0, world = world_size(); r < world; r++) {
    int64_t sum = 0;
    for (int n = of(&e->move, e->whole, r, list); n--;) sum += elements(list[n].part.shape);
    if (sum > most.size[0]) most.size[0] = sum;
  }
  return most;
}

static int moved_flat(struct lowering *w, struct op op, int value, struct shape shape)
{
  int flat = moved(w, op, value, (struct layout){0});
  graph->value[flat].shape = shape;
  return flat;
}

static const struct exchange_facts *facts_of_exchange(struct lowering *w, int exchange)
{
  while (w->nfacts <= exchange) {
    GROW(w->facts, w->nfacts, w->facts_room);
    w->facts[w->nfacts++] = (struct exchange_facts){0};
  }
  struct exchange_facts *f = &w->facts[exchange];
  if (f->is_known) return f;
  const struct exchange *e = &graph->exchange[exchange];
  f->is_known = true;
  f->traits = find_traits(&e->move, e->whole);
  if (!f->traits.sends_runs) f->sent = flat_shape(e, pieces_sent);
  if (!f->traits.gets_runs) f->got = flat_shape(e, pieces_got);
  return f;
}

static int run_exchange(struct lowering *w, struct op op, int value, const struct move *m)
{
  if (!is_even_in_time(value))
    plan_error(op.line,
               "%s goes from %s to %s in pieces, which differ from micro-batch to micro-batch: "
               "microbatches = %d makes no equal parts of the samples that each rank has",
               printable(value_name(value)), layout_text(m->from), layout_text(m->to),
               microbatches());
  struct exchange e = {graph->value[value].shape, graph->value[value].type, *m, op.group};
  op.exchange = add_exchange(e);
  const struct exchange_facts *facts = facts_of_exchange(w, op.exchange);
  if (!facts->traits.sends_runs) {
    op.kind = OP_pack_pieces;
    value = moved_flat(w, op, value, facts->sent);
  }
  op.kind = OP_exchange;
  if (!facts->traits.gets_runs) {
    value = moved_flat(w, op, value, facts->got);
    op.kind = OP_unpack_pieces;
  }
  int last = moved(w, op, value, m->to);
  graph->value[last].shape = e.whole;
  return last;
}

/* If the members of a group may have any order, they get that of the mesh: one group then serves
   more collectives. */
static struct move in_order_of_mesh(struct move m)
{
  unsigned dims = 0;
  for (int i = 0; i < m.n; i++) dims |= 1u << m.dim[i];
  m.n = 0;
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (dims >> i & 1) m.dim[m.n++] = i;
  return m;
}

static int run_move(struct lowering *w, const struct op *why, int value, struct move m)
{
  bool keeps_order = !is_collective(m.kind) || (moves_shards(m.kind) && m.kind != OP_exchange);
  if (!keeps_order) m = in_order_of_mesh(m);
  struct op op = asked_for_by(why);
  op.kind = m.kind;
  if (is_collective(m.kind)) op.group = add_ordered_group(m.n, m.dim);
  switch (m.kind) {
  case OP_slice:
    return moved(w, op, value, m.to);
  case OP_to_partial:
    op.reduction = m.to.on[m.dim[0]].reduction;
    return moved(w, op, value, m.to);
  case OP_exchange:
    return run_exchange(w, op, value, &m);
  default:
    if (is_collective(m.kind)) {
      /* All mesh dimensions of the group have equal placements before, and equal ones after; not so
         in a slice, a to_partial or an exchange. */
      struct placement from = m.from.on[m.dim[0]], to = m.to.on[m.dim[0]];
      const struct collective_row *row = &collective_row[m.kind];
      if (row->from == PARTIAL) op.reduction = from.reduction;
      if (row->to == SHARD) {
        op.dim = to.dim;
        value = pack(w, op, OP_pack, value, m.to);
      }
      if (row->from == SHARD) op.dim = from.dim;
      if (row->from == SHARD && row->to == SHARD) op.dim_to = to.dim;
      value = moved(w, op, value, m.to);
      op.dim_to = 0;
      return row->from == SHARD ? pack(w, op, OP_unpack, value, m.from) : value;
    }
    bug("redistribute", "%s is not a step of a redistribution", op_row[m.kind].name);
  }
}

/* "(a4b3)c" for two factors of a dimension and another one; split, "a4b3c". */
static void put_factors(struct buffer *b, const struct factors *f, bool apart)
{
  for (int i = 0; i < f->shape.ndim; i++) {
    bool first = i == 0 || f->of[i - 1] != f->of[i];
    bool last = i + 1 == f->shape.ndim || f->of[i + 1] != f->of[i];
    put(b, "%s%c", first && !last && !apart ? "(" : "", 'a' + i);
    if (!first || !last) put(b, "%" PRId64, f->shape.size[i]);
    put(b, "%s", last && !first && !apart ? ")" : "");
  }
}

/* The value with its dimensions split into factors, or merged again. */
static int seen(struct lowering *w, const struct op *why, int value, const struct factors *f,
                bool apart, struct layout layout)
{
  struct buffer equation = {0};
  put_factors(&equation, f, !apart);
  put(&equation, "->");
  put_factors(&equation, f, apart);
  struct op op = asked_for_by(why);
  op.kind = OP_view;
  op.equation = equation.text;
  return moved(w, op, value, layout);
}

/* Whether a move has other steps if packing costs nothing. */
static bool depends_on_packing(struct shape whole, enum type type, struct layout from,
                               struct layout to)
{
  const struct moves *a = plan_moves(whole, type, from, to);
  const struct moves *b = plan_moves_unpacked(whole, type, from, to);
  bool same = a->n == b->n;
  for (int k = 0; k < a->n && same; k++)
    same = a->move[k].kind == b->move[k].kind && same_layout(a->move[k].to, b->move[k].to);
  return !same;
}

/* Moves between two layouts: at once, or by way of a third layout. */
struct way {
  int n;
  const struct moves *leg[2];
};

/* "all_gather over tp: R S(0); slice over dp: S(1) S(0)". */
static const char *way_text(const struct way *way)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < way->n; i++)
    for (int k = 0; k < way->leg[i]->n; k++) {
      const struct move *m = &way->leg[i]->move[k];
      put(&b, "%s%s over ", b.length ? "; " : "", op_row[m->kind].name);
      for (int d = 0; d < m->n; d++)
        put(&b, "%s%s", d ? "_" : "", printable(graph->mesh.name[m->dim[d]]));
      put(&b, ": %s", layout_text(m->to));
    }
  return b.text;
}

static struct way greedy_way(struct shape whole, enum type type, struct layout from,
                             struct layout to)
{
  const bool greedy = plan_options->greedy;
  plan_options->greedy = true;
  const struct way way = {1, {plan_moves(whole, type, from, to)}};
  plan_options->greedy = greedy;
  return way;
}

/* The way over the layout that is whole wherever something changes; n 0: there is none. */
static struct way way_over_whole(struct shape whole, enum type type, struct layout from,
                                 struct layout to)
{
  struct layout between = to;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (same_placement(from.on[d], to.on[d])) continue;
    if (graph->mesh.microbatch_axis[d] || to.on[d].kind == PARTIAL) return (struct way){0};
    between.on[d] = (struct placement){0};
  }
  between = usual_cut_order(between);
  if (same_layout(between, from) || same_layout(between, to)) return (struct way){0};
  return (struct way){
      2, {plan_moves(whole, type, from, between), plan_moves(whole, type, between, to)}};
}

/* The way that --explain-cost forces on the redistribution, or the one that was found. The
   alternatives of a redistribution that it asks about are noted. */
static struct way explained_way(const struct op *why, int value, const struct factors *f,
                                struct layout from, struct layout to, struct way found)
{
  enum { WAYS = 5 };
  const struct value *v = &graph->value[value];
  const char *subject =
      text("%s%s from %s to %s", why->phase == FORWARD ? "" : text("%s, ", phase_name[why->phase]),
           starred_name(value_name(value)), layout_text(from), layout_text(to));
  const char *forced = forced_way_of("steps", subject);
  const bool is_asked = is_op_explained(why) || is_value_explained(value);
  if (!forced && !is_asked) return found;
  const struct way way[WAYS] = {found,
                                {1, {plan_moves(f->shape, v->type, from, to)}},
                                {1, {plan_moves_unpacked(f->shape, v->type, from, to)}},
                                greedy_way(f->shape, v->type, from, to),
                                way_over_whole(f->shape, v->type, from, to)};
  struct alternative list[WAYS];
  int n = 0;
  for (int i = 0; i < WAYS; i++) {
    if (!way[i].n || (i && !way[i].leg[0]->n)) continue;
    struct alternative a = {.way = way_text(&way[i])};
    for (int k = 0; k < way[i].n; k++) {
      a.bytes += (double)way[i].leg[k]->bytes;
      a.seconds += way[i].leg[k]->time;
    }
    if (forced && !strcmp(a.way, forced)) return way[i];
    list[n++] = a;
  }
  if (!forced && found.leg[0]->n) note_decision("steps", subject, list, n, 0);
  return found;
}

static int run_leg(struct lowering *w, const struct op *why, int value, struct layout to)
{
  struct value v = graph->value[value];
  struct factors f;
  if (!take_move_apart(v.shape, v.layout, to, &f))
    plan_error(why->line,
               "%s: %s, which is cut in strides, cannot be moved: taken apart at them it has %d "
               "dimensions, more than %d",
               why_text(why), shape_text(v.shape), f.shape.ndim, MAX_DIMS);
  struct layout from_here = on_factors(&f, v.layout), to_here = on_factors(&f, to);
  bool apart = f.shape.ndim > v.shape.ndim;
  if (apart) value = seen(w, why, value, &f, true, from_here);
  const struct moves *moves = plan_moves(f.shape, v.type, from_here, to_here);
  if (!plan_options->greedy && !w->is_stored) {
    w->in_doubt |= depends_on_packing(f.shape, v.type, from_here, to_here);
    if (!w->packs) moves = plan_moves_unpacked(f.shape, v.type, from_here, to_here);
  }
  struct way way = {1, {moves}};
  if (are_decisions_explained()) way = explained_way(why, value, &f, from_here, to_here, way);
  for (int i = 0; i < way.n; i++)
    for (int k = 0; k < way.leg[i]->n; k++) value = run_move(w, why, value, way.leg[i]->move[k]);
  return apart ? seen(w, why, value, &f, false, to) : value;
}

static int copy_of(struct lowering *w, const struct op *why, int value)
{
  struct op op = {.kind = OP_view,
                  .module = why->module,
                  .line = why->line,
                  .phase = why->phase,
                  .last_batch = why->last_batch};
  op.equation = identity_equation(graph->value[value].shape.ndim);
  return moved(w, op, value, graph->value[value].layout);
}

/* The values of a scan's steps must stay equal, and so must those that the first step reads in
   their place. */
static bool is_equal_in_steps(int value)
{
  int op = graph->value[value].op;
  return op != NONE && scan_around(graph->op[op].module) != NONE;
}

/* The value `last` replaces the redistribution's own value. */
static int take_over(struct lowering *w, const struct op *op, int last)
{
  struct value *made = &graph->value[op->out], *v = &graph->value[last];
  bool leaves = made->role != ACTIVATION || made->is_output;
  bool taken = v->role != ACTIVATION || v->is_output || v->op == NONE;
  if ((leaves && (taken || is_equal_in_steps(last))) ||
      (enters_scan(&w->enters, op->out) && taken)) {
    last = copy_of(w, op, last);
    made = &graph->value[op->out];
    v = &graph->value[last];
  }
  if (leaves) {
    v->role = made->role;
    v->of = made->of;
    v->is_output = made->is_output;
    v->rows = made->rows;
    v->name = made->name;
    if (graph->loss == op->out) graph->loss = last;
    made->role = ACTIVATION;
    made->is_output = false;
  }
  return last;
}

static int cast_to(struct lowering *w, const struct op *why, int value, enum type type)
{
  if (graph->value[value].type == type) return value;
  struct op op = asked_for_by(why);
  op.kind = OP_cast;
  op.type = type;
  op.why = NULL;
  return moved(w, op, value, graph->value[value].layout);
}

static void refuse_mixed(const struct op *op, struct layout layout)
{
  if (!reductions_agree(layout))
    plan_error(
        op->line,
        "%s: %s -> %s: in %s values of two kinds are pending, and the plan does not say which is "
        "reduced first: make one of them Replicate() before the other becomes pending",
        why_text(op), layout_text(graph->value[op->in[0]].layout),
        layout_text(graph->value[op->out].layout), layout_text(layout));
}

/* The narrow value that this one was cast from, if nothing is pending: it has half the bytes to
   move and gives the same result; else the value. */
static int narrowest(int value)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE || graph->op[v->op].kind != OP_cast || v->type != F32) return value;
  int from = graph->op[v->op].in[0];
  bool narrow =
      graph->value[from].type == BF16 && same_layout(graph->value[from].layout, v->layout);
  for (int d = 0; d < graph->mesh.ndim; d++) narrow &= v->layout.on[d].kind != PARTIAL;
  return narrow ? from : value;
}

/* The layout in which the gradient of a unit's parameter is reduced: sums that become cut are
   scattered, those that become whole are still pending. Then only the small parts are reduced.
   One more collective costs little, since buckets merge them. */
static struct layout scattered_first(const struct op *op, struct layout from, struct layout to)
{
  if (unit_of(op) == NONE || op->phase == FORWARD || op->phase == GATHER) return to;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (from.on[d].kind == PARTIAL && to.on[d].kind == REPLICATE) to.on[d] = from.on[d];
  return usual_cut_order(to);
}

/* Makes the value a buffer of n numbers on every rank. */
static void set_room(int value, enum type type, int64_t n)
{
  struct value *v = &graph->value[value];
  v->shape = (struct shape){.ndim = 1, .size = {n}};
  v->type = type;
  v->layout = (struct layout){0};
  v->placed = true;
  v->counts = NONE;
}

/* The dimensions of the mesh over which rows travel to experts, or back. */
static unsigned dims_of_rows(struct layout from, struct layout to, bool to_experts)
{
  unsigned dims = 0;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (is_row_exchange(from.on[d], to.on[d]) && (to.on[d].dim == 0) == to_experts) dims |= 1u << d;
  return dims;
}

static int run_legs(struct lowering *w, const struct op *op, int value, struct layout to)
{
  struct layout waypoint[MAX_WAYPOINTS];
  struct value v = graph->value[value];
  int n = find_waypoints(v.shape, v.layout, to, waypoint);
  for (int i = 1; i < n; i++) value = run_leg(w, op, value, waypoint[i]);
  return value;
}

/* The count of the rows of a rank whose tokens have this layout: of the rank's own places where
   these are cut, otherwise of all places. */
static int count_of_tokens(struct lowering *w, const struct op *why, int counts,
                           struct layout tokens)
{
  counts = w->stands_for[counts];
  struct layout to = graph->value[counts].layout;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement own = to.on[d], at = tokens.on[d];
    if (ranks_along(d) == 1 || (at.kind == SHARD && at.dim == 0)) continue;
    bool cut = at.kind == SHARD && at.dim < ROW_DIMS;
    if (cut && own.kind != PARTIAL)
      plan_error(why->line,
                 "%s: rows by expert travel over %s, where their count is %s: the count "
                 "must be made of the same experts of places as the rows",
                 why_text(why), printable(graph->mesh.name[d]), placement_text(own));
    if (cut && !is_counted_along(counts, d, at.dim - 1))
      plan_error(why->line,
                 "%s: over %s the rows are those of parts of the tokens along dimension %d, and "
                 "their counts are of other parts: cut the experts' input along dimension 0 "
                 "there, with at least one sample for each rank",
                 why_text(why), printable(graph->mesh.name[d]), at.dim - 1);
    if (!cut && own.kind == PARTIAL) to.on[d] = (struct placement){0};
  }
  return run_legs(w, why, counts, to);
}

/* Moves rows along those dimensions, between the ranks that have the tokens, whose counts cover
   their own rows, and the ranks that have the experts. Its further results are buffers. One is for
   the rows by rank on the experts' side; or, where the host does not know the number of rows, for a
   slot of each rank on both sides. The other is for the counts by rank and expert, and four numbers
   of each rank. */
static int exchange_rows(struct lowering *w, const struct op *why, int value, struct layout to,
                         bool to_experts)
{
  enum { ROWS, ROOM, COUNTS };
  struct value v = graph->value[value];
  unsigned dims = dims_of_rows(v.layout, to, to_experts);
  int ranks = 1, dim = NONE;
  struct layout next = v.layout;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (!(dims >> d & 1)) continue;
    ranks *= ranks_along(d);
    next.on[d] = to.on[d];
    dim = d;
  }
  if (dim == NONE) return value;
  int counts = count_of_tokens(w, why, v.counts, to_experts ? v.layout : next);
  struct op op = asked_for_by(why);
  op.kind = OP_exchange_rows;
  op.dim = v.layout.on[dim].dim;
  op.dim_to = to.on[dim].dim;
  op.group = add_group(dims);
  op.nin = 2;
  op.in[0] = value;
  op.in[1] = counts;
  struct shape shapes[] = {v.shape, v.shape, v.shape};
  int out = make_op_outputs(op, shapes, 3);
  graph->value[out].layout = usual_cut_order(next);
  graph->value[out].placed = true;
  graph->value[out].name = value_name(value);
  int tokens = to_experts ? value : out;
  int64_t width = local_shape(tokens, 0).size[v.shape.ndim - 1];
  int64_t slots = 2 * ranks * rows_of_slot(tokens, ranks) * width;
  int64_t rows = elements(local_shape(to_experts ? out : value, 0));
  set_room(out + ROOM, v.type, target->streams ? slots : rows);
  set_room(out + COUNTS, I32, ranks * (v.shape.size[0] + 4));
  graph->value[out + ROOM].name = graph->value[out + COUNTS].name = graph->value[out].name;
  add(&w->new_order, graph->value[out].op);
  return out;
}

/* A value that is cut in time, and becomes a term of the sum over the micro-batches, is moved in
   time by itself, with zeros around it: no piece of a micro-batch may go to another one. Cuts by
   ranks within a micro-batch are gathered before. The rest moves between ranks. */
static int as_term_in_time(struct lowering *w, const struct op *op, int value, struct layout to)
{
  const int dim = time_dimension();
  struct layout next = graph->value[value].layout;
  int cut[MAX_MESH];
  if (dim == NONE || next.on[dim].kind != SHARD || to.on[dim].kind != PARTIAL) return value;
  int n = cuts_of(&graph->mesh, next, next.on[dim].dim, cut);
  while (cut[n - 1] != dim) next.on[cut[--n]] = (struct placement){0};
  value = run_legs(w, op, value, usual_cut_order(next));
  next.on[dim] = to.on[dim];
  return run_legs(w, op, value, usual_cut_order(next));
}

/* A value that all micro-batches have, and whose parts move between ranks, is cut in time by
   itself: first come the cuts before that one, then the one in time, which moves nothing. The rest
   moves between ranks. */
static int as_part_in_time(struct lowering *w, const struct op *op, int value, struct layout to)
{
  const int dim = time_dimension();
  struct layout next = graph->value[value].layout;
  int cut[MAX_MESH];
  bool moves = false;
  if (dim == NONE || next.on[dim].kind != REPLICATE || to.on[dim].kind != SHARD) return value;
  for (int d = 0; d < graph->mesh.ndim; d++)
    moves |= next.on[d].kind != REPLICATE && !same_placement(next.on[d], to.on[d]);
  int n = cuts_of(&graph->mesh, to, to.on[dim].dim, cut);
  while (cut[--n] != dim)
    moves |= next.on[cut[n]].kind == SHARD; /* it cuts the part that the cut
                                               in time leaves */
  if (!moves) return value;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (next.on[d].kind == SHARD && next.on[d].dim == to.on[dim].dim)
      next.on[d] = (struct placement){0};
  for (int i = 0; cut[i] != dim; i++) next.on[cut[i]] = to.on[cut[i]];
  value = run_legs(w, op, value, usual_cut_order(next));
  next.on[dim] = to.on[dim];
  return run_legs(w, op, value, usual_cut_order(next));
}

/* Returns the replacement of the redistribution's value: moved in the operation's type, if
   anything moves, and cast to the value's. */
static int lower(struct lowering *w, const struct op *op)
{
  struct layout to = graph->value[op->out].layout;
  w->first_step = graph->nop;
  refuse_mixed(op, graph->value[op->in[0]].layout);
  refuse_mixed(op, to);
  struct value in = graph->value[op->in[0]];
  enum type type = graph->value[op->out].type;
  bool moves = !same_layout_but_units(in.layout, to);
  int last = moves ? narrowest(op->in[0]) : op->in[0];
  if (last == op->in[0]) last = cast_to(w, op, last, moves && is_floating(type) ? op->type : type);
  if (in.counts == NONE && moves_in_time(in.shape, in.layout, to))
    plan_error(op->line,
               "%s: %s -> %s: samples would go from one micro-batch to another: in a step of "
               "micro-batches ranks cannot gather or exchange the samples that they have",
               why_text(op), layout_text(in.layout), layout_text(to));
  if (in.counts != NONE) {
    if (!can_move_rows(in.layout, to))
      plan_error(op->line,
                 "%s: %s -> %s: rows by expert can go from ranks with some tokens to ranks "
                 "with some experts and back, no other way",
                 why_text(op), layout_text(in.layout), layout_text(to));
    if (is_cut_within_rows(op->in[0], to))
      plan_error(op->line,
                 "%s: %s -> %s: rows by expert travel over a dimension of the mesh that cuts the "
                 "tokens before another one does: let it come after the others in device_mesh",
                 why_text(op), layout_text(in.layout), layout_text(to));
    last = exchange_rows(w, op, last, to, true);
    last = exchange_rows(w, op, last, to, false);
  }
  last = as_term_in_time(w, op, last, to);
  last = as_part_in_time(w, op, last, to);
  last = run_legs(w, op, last, scattered_first(op, graph->value[last].layout, to));
  last = run_legs(w, op, last, to);
  return take_over(w, op, cast_to(w, op, last, type));
}

/* Lowers all redistributions, those of `packs` at the price of their packing. Sets made_for, by new
   operation: the redistribution in doubt whose step it is, or NONE. */
static void lower_all(const bool *packs, struct list *made_for)
{
  struct lowering run = {0}, *w = &run;
  int known = graph->nvalue;
  w->stands_for = alloc((size_t)known * sizeof *w->stands_for);
  w->new_order = (struct list){0};
  for (int i = 0; i < known; i++) w->stands_for[i] = i;
  w->reader = alloc((size_t)(graph->nvalue + 1) * sizeof *w->reader);
  w->readers = count_readers();
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    for (int i = 0; i < op->nin; i++) w->reader[op->in[i]] = graph->order[at];
  }
  w->enters = entering_scans();
  made_for->n = 0;
  for (int at = 0; at < graph->norder; at++) {
    int id = graph->order[at];
    struct op op = graph->op[id];
    for (int i = 0; i < op.nin; i++) op.in[i] = w->stands_for[op.in[i]];
    for (int k = 0; k < op.nbody; k++) {
      int *in = &graph->op[op.body[k]].in[0]; /* of OP_squares */
      *in = w->stands_for[*in];
    }
    graph->op[id] = op;
    int first = graph->nop;
    w->in_doubt = false;
    if (op.kind == OP_redistribute) {
      /* Whether only another redistribution reads this one's result: in the backward, unless the
         plan asked for the layout between, the two become one. */
      const struct value *in = &graph->value[op.in[0]], *out = &graph->value[op.out];
      bool is_stop_between = false;
      if (op.phase == BACKWARD && w->readers[op.out] == 1 && in->type == out->type) {
        const struct op *next = &graph->op[w->reader[op.out]];
        is_stop_between = out->role == ACTIVATION && !out->is_output &&
                          next->kind == OP_redistribute && next->phase == BACKWARD;
      }
      w->packs = packs[id];
      w->is_stored = in->role != ACTIVATION || out->role != ACTIVATION;
      w->stands_for[op.out] = is_stop_between ? op.in[0] : lower(w, &op);
    } else
      add(&w->new_order, id);
    for (int step = first; step < graph->nop; step++) {
      set_stage_of(step, id);
      add(made_for, w->in_doubt ? id : NONE);
    }
  }
  graph->order = w->new_order.at;
  graph->norder = w->new_order.n;
  graph->order_room = w->new_order.room;
}

/* A way to lower the program: the redistributions at the price of their packing, by operation; and
   what a trial found. */
struct packings {
  bool *priced, *remaining; /* remaining: those in doubt that still copy */
  int64_t time, copying;    /* of all steps and copies; of the copies that remain */
};

/* With a redistribution its counterparts, which get the same decision. */
static void add_with_counterparts(bool *list, const int *next_counterpart, int op)
{
  for (int t = op; !list[t]; t = next_counterpart[t]) list[t] = true;
}

/* Lowers the program, gives it its orders in memory, and goes back to it as it was. */
static void try_packings(struct packings *p, const int *next_counterpart, struct graph *room)
{
  struct graph before = remember_flat_program(room);
  struct list made_for = {0};
  const int first = graph->nop;
  p->remaining = alloc((size_t)first + 1);
  lower_all(p->priced, &made_for);
  p->time = p->copying = 0;
  assign_dim_order();
  for (int at = 0; at < graph->norder; at++) {
    const int id = graph->order[at];
    const struct op *op = &graph->op[id];
    bool is_copy = op_row[op->kind].step == PACKING || op->kind == OP_permute;
    if (id < first && !is_copy) continue;
    const int64_t time = time_taken(op);
    p->time += time;
    int of = id < first ? NONE : made_for.at[id - first];
    if (!is_copy || of == NONE || p->priced[of]) continue;
    p->copying += time;
    add_with_counterparts(p->remaining, next_counterpart, of);
  }
  return_to_flat_program(&before, room);
  forget_numbers();
}

/* Which redistributions take their steps at the price of packing. Most packings are needless once
   assign_dim_order has chosen the orders in memory, so first none has a price. Where packings
   remain that take a share of the time worth the trials, these give the price to all
   redistributions, and to those that pack. With other steps other orders are possible, so the
   quickest trial counts. */
static const bool *find_packings(struct graph *room)
{
  enum { WORTH = 64 };
  const int *next_counterpart = find_counterparts(), n = graph->nop;
  struct packings none = {.priced = alloc((size_t)n + 1)}, best;
  try_packings(&none, next_counterpart, room);
  best = none;
  for (int trial = 0; trial < 2 && none.copying > none.time / WORTH; trial++) {
    struct packings next = {.priced = alloc((size_t)n + 1)};
    if (trial == 0)
      memset(next.priced, true, (size_t)n);
    else
      memcpy(next.priced, none.remaining, (size_t)n);
    try_packings(&next, next_counterpart, room);
    if (next.time < best.time) best = next;
  }
  return best.priced;
}

/* Whether the steps of any redistribution of an activation depend on the price of packing. */
static bool are_in_doubt(void)
{
  for (int at = 0; at < graph->norder && !plan_options->greedy; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (op->kind != OP_redistribute) continue;
    const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
    if (in->role != ACTIVATION || out->role != ACTIVATION || in->counts != NONE) continue;
    struct factors f;
    if (same_layout(in->layout, out->layout) || !reductions_agree(in->layout) ||
        !reductions_agree(out->layout) || !take_move_apart(in->shape, in->layout, out->layout, &f))
      continue;
    const struct layout from = on_factors(&f, in->layout), to = on_factors(&f, out->layout);
    if (depends_on_packing(f.shape, op->type, from, to)) return true;
  }
  return false;
}

void redistribute(void)
{
  struct graph room = {0};
  struct list made_for = {0};
  const bool *priced = are_in_doubt() ? find_packings(&room) : alloc((size_t)graph->nop + 1);
  if (room.op) remember_flat_program(&room); /* it goes on in the memory of the trials */
  lower_all(priced, &made_for);
}
