/* propagate.c: the pass `propagate`: a layout for every value.

   Takes   a graph whose parameters and inputs are placed, with the plan's redistribute operations.
   Leaves  every value placed, with canonical cut orders, so that every operation can run on its
   inputs: where it could not, a redistribute operation comes before it. decide.c decides how an
           operation runs.

   If several modules of a list read a value from outside of the list in a new layout, it is moved
   once, before all of them: otherwise the first module would have one operation more. The same
   holds for the steps of a scan.

   The carry that the first step of a scan reads gets the layout of the last step's carry: so each
   step reads it as the others do. That layout is known only when the steps are laid out, so they
   are laid out again with it, until it stays the same. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* The state of one layout of the program. */
struct propagating {
  struct def_use uses;
  int value_room, op_room;
  struct list new_order;
  int first_new;      /* in the order: earlier operations are done */
  const int *element; /* by module: the one of the outermost ModuleList that contains it, or NONE */
  int *taken_in;      /* by value: the module whose operations read it, or NONE; SEVERAL */
  int taken_room;
  struct list whole;      /* see whole_batch */
  struct entering enters; /* the values that the first step of a scan reads in the place of a
                             carry */
  int scan_now;           /* the scan whose steps are laid out */
  int scan_begins;        /* the place in the new order where they begin */
};
enum { SEVERAL = -2 };

static int *wider(int *array, int *room, int least)
{
  if (*room >= least) return array;
  int before = *room, to = before ? 2 * least : least + least / 4;
  int *at = alloc((size_t)to * sizeof *at);
  if (before) memcpy(at, array, (size_t)before * sizeof *at);
  for (int i = before; i < to; i++) at[i] = NONE;
  *room = to;
  return at;
}

static void room_for_new(struct propagating *p)
{
  int asked = p->value_room, taken = p->value_room;
  p->uses.asked_of = wider(p->uses.asked_of, &asked, graph->nvalue + 1);
  p->uses.taken_by = wider(p->uses.taken_by, &taken, graph->nvalue + 1);
  p->uses.moved_to = wider(p->uses.moved_to, &p->value_room, graph->nvalue + 1);
  p->uses.moved_before = wider(p->uses.moved_before, &p->op_room, graph->nop + 1);
}

static void remember(struct propagating *p, int op)
{
  int value = graph->op[op].in[0];
  p->uses.moved_before[op] = p->uses.moved_to[value];
  p->uses.moved_to[value] = op;
}

/* Sets whose request it is that `user` takes an input as `to`: the plan's, if it asks for this very
   layout of the operation's output (for example, a sum that is reduced before the bias is added);
   otherwise the operation's. */
static void tell_why(struct propagating *p, struct op *op, const struct op *user)
{
  op->line = user->line;
  op->why = text("%s's input layout", printable(op_name(user)));
  int asked = user->nout == 1 ? p->uses.asked_of[user->out] : NONE;
  if (asked == NONE) return;
  const struct op *by = &graph->op[asked];
  if (!same_layout(layout_after(by, op->to), op->to)) return;
  op->line = by->line;
  op->why = by->why;
}

/* ------------------------------------------------------------- values that several modules read */

static int element(struct propagating *p, int module)
{
  return module == NONE || module >= graph->nmodule ? NONE : p->element[module];
}

static void note_taken(struct propagating *p, const struct op *op)
{
  int here = element(p, op->module);
  for (int i = 0; i < op->nin && here != NONE; i++) {
    int *in = &p->taken_in[op->in[i]];
    *in = *in == NONE || *in == here ? here : SEVERAL;
  }
}

/* Whether several modules of the list in which `user` runs read the value, and none of them
   makes it. */
static bool is_from_outside(struct propagating *p, int value, const struct op *user)
{
  int here = element(p, user->module), there = element(p, graph->value[value].module);
  if (here == NONE || p->taken_in[value] != SEVERAL) return false;
  return there == NONE || graph->module[there].parent != graph->module[here].parent;
}

/* What an earlier redistribution made of the same value, if it is what this one of the plan asks
   for; else NONE. One move then serves several readers, and the sum of their gradients moves back.
   Both are in one module of a list, so that equal modules stay equal. */
static int moved_alike(struct propagating *p, const struct op *op)
{
  const int value = op->in[0], here = element(p, op->module);
  const enum role role = graph->value[value].role;
  const bool leaves = op->out == graph->loss || graph->value[op->out].is_output;
  if ((op->phase != FORWARD && op->phase != DECODE) || leaves || !is_plain_move(op) ||
      (role != ACTIVATION && role != BATCH))
    return NONE;
  const struct layout to = layout_after(op, graph->value[value].layout);
  for (int i = p->uses.moved_to[value]; i != NONE; i = p->uses.moved_before[i]) {
    const struct op *earlier = &graph->op[i];
    if (earlier->phase == op->phase && element(p, earlier->module) == here &&
        scan_around(earlier->module) == scan_around(op->module) && is_plain_move(earlier) &&
        same_layout(graph->value[earlier->out].layout, to))
      return earlier->out;
  }
  return NONE;
}

static void note_scan(struct propagating *p, const struct op *op)
{
  int scan = scan_around(op->module);
  if (scan == p->scan_now) return;
  p->scan_now = scan;
  p->scan_begins = p->new_order.n;
}

/* A redistribution for the whole batch runs before the first micro-batch. */
static enum phase phase_before(int value, const struct op *user)
{
  int op = graph->value[value].op;
  bool gathered = op != NONE && graph->op[op].phase == GATHER && user->phase == FORWARD;
  return gathered && time_dimension() != NONE && !graph->op[op].of_unit ? GATHER : user->phase;
}

static int as_layout(struct propagating *p, int value, struct layout to, const struct op *user);

/* The value as the operation takes it along the dimension of the mesh in time: the part of a
   micro-batch, or the value for the whole batch. If ranks take parts as well, a micro-batch takes
   its part of a rank's part. */
static int as_in_time(struct propagating *p, int value, struct layout to, const struct op *user)
{
  int dim = time_dimension();
  if (dim == NONE || same_placement(graph->value[value].layout.on[dim], to.on[dim])) return value;
  if (to.on[dim].kind == REPLICATE) {
    value = whole_batch(&p->whole, value, user, &p->new_order);
    room_for_new(p);
    return value;
  }
  struct layout part = graph->value[value].layout;
  if (to.on[dim].kind == SHARD) {
    /* Whether each rank's new part is within its present part. */
    bool takes = true;
    for (int d = 0; d < graph->mesh.ndim; d++)
      takes &= part.on[d].kind == REPLICATE || same_placement(part.on[d], to.on[d]);
    if (takes) return value;
  }
  part.on[dim] = to.on[dim];
  return as_layout(p, value, usual_cut_order(part), user);
}

/* `value` in layout `to`: by an earlier redistribution, or a new one. */
static int as_layout(struct propagating *p, int value, struct layout to, const struct op *user)
{
  int there = moved_before_to(&p->uses, value, to, user->phase);
  if (there != NONE) return there;
  /* Whether the step of a scan in which `user` runs reads the value as all steps do. */
  int scan = user->module >= graph->nmodule ? NONE : scan_around(user->module);
  int maker = graph->value[value].op;
  bool before_scan = scan != NONE && !enters_scan(&p->enters, value) &&
                     (maker == NONE || scan_around(graph->op[maker].module) != scan),
       ahead = is_from_outside(p, value, user);
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {value},
                  .module = before_scan ? graph->module[p->scan_now].parent
                            : ahead     ? graph->value[value].module
                                        : user->module,
                  .phase = phase_before(value, user),
                  .type = graph->value[value].type,
                  .backward_type = graph->value[value].type,
                  .to = to,
                  .asked = (1u << graph->mesh.ndim) - 1};
  tell_why(p, &op, user);
  int i = make_op(op);
  int out = graph->op[i].out;
  graph->value[out].name = value_name(value);
  graph->value[out].layout = to;
  graph->value[out].placed = true;
  room_for_new(p);
  remember(p, i);
  if (before_scan) {
    /* Adds the operation to the order before the steps of the current scan. */
    add(&p->new_order, i);
    memmove(&p->new_order.at[p->scan_begins + 1], &p->new_order.at[p->scan_begins],
            (size_t)(p->new_order.n - 1 - p->scan_begins) * sizeof *p->new_order.at);
    p->new_order.at[p->scan_begins++] = i;
  } else if (ahead) {
    /* Adds the operation to the order directly after the one that makes its input. */
    add(&p->new_order, i);
    int at = p->new_order.n - 1;
    while (at > p->first_new && p->new_order.at[at - 1] != graph->value[value].op) at--;
    memmove(&p->new_order.at[at + 1], &p->new_order.at[at],
            (size_t)(p->new_order.n - 1 - at) * sizeof *p->new_order.at);
    p->new_order.at[at] = i;
  } else
    add(&p->new_order, i);
  return out;
}

/* Cuts dimension `to` of the cache as the written value's dimension `from`, where the cache is
   whole: the plan may have cut it further. Whether it did. */
static bool cut_cache(struct value *cache, struct layout written, int from, int to)
{
  bool cut = false;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = written.on[d];
    if (cache->layout.on[d].kind != REPLICATE || p.kind != SHARD || p.dim != from) continue;
    p.dim = to;
    cache->layout.on[d] = p;
    cut = true;
  }
  return cut;
}

/* A cache's elements of a token get the layout of those that are written to it first. Heads are cut
   where those of queries, keys or values are, and where queries are cut along their tokens: each
   rank has the caches of some heads then. */
static void place_caches(const struct op *op)
{
  enum { HEADS = 1, HEADS_FROM_END = 3, QUERIES = 0, KEYS, VALUES, TOKENS, TOKEN_ELEMENTS = 2 };
  for (int i = 0; i < op->nin; i++) {
    struct value *v = &graph->value[op->in[i]];
    if (v->role != CACHE || v->placed) continue;
    if (op->kind == OP_recent || op->kind == OP_running_sum || op->kind == OP_running_max ||
        op->kind == OP_all_tokens)
      cut_cache(v, graph->value[op->in[0]].layout, TOKEN_ELEMENTS, TOKEN_ELEMENTS);
    else if (op->kind == OP_cached_attention || op->kind == OP_cached_attention_parts ||
             op->kind == OP_cached_latent_attention) {
      const int heads = v->shape.ndim - HEADS_FROM_END;
      const int last = op->kind == OP_cached_latent_attention ? KEYS : VALUES;
      for (int k = QUERIES; k <= last; k++)
        cut_cache(v, graph->value[op->in[k]].layout, HEADS, heads);
      if (v->shape.size[heads] > 1)
        cut_cache(v, graph->value[op->in[QUERIES]].layout, TOKENS, heads);
    }
    v->placed = true;
  }
}

/* The steps' combined output has the layout in which every step makes its slice: a redistribution
   of slices would be of those steps only that the flat program has. */
static void place_stack(const struct op *op)
{
  const struct layout made = graph->value[op->in[0]].layout;
  struct layout to = made;
  int stacked = 0;
  while (!(op->dims >> stacked & 1)) stacked++;
  for (int i = 1; i < op->nin; i++)
    if (!same_layout(graph->value[op->in[i]].layout, made))
      plan_error(
          op->line,
          "the steps of this scan leave their results in different layouts, so they cannot be "
          "a loop: F.scan(f, carry, xs, dim, true) writes them one after the other");
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (to.on[d].kind == SHARD && to.on[d].dim >= stacked) to.on[d].dim++;
  graph->value[op->out].layout = to;
  graph->value[op->out].placed = true;
}

static void place(struct propagating *p, struct op *op)
{
  place_caches(op);
  if (op->kind == OP_scan_hold) return;
  const int maker = op->kind == OP_scan_stack ? graph->value[op->in[0]].op : NONE;
  if (maker != NONE && scan_around(graph->op[maker].module) != NONE) {
    place_stack(op);
    return;
  }
  if (op->nout && is_of_metric(op->out)) {
    /* Each batch adds its term of a metric to the sum of the batches before. The sum has the layout
       in which the term is made. */
    int term = op->in[1], time = op->phase == COUNT ? NONE : time_dimension();
    struct layout to = graph->value[term].layout;
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (to.on[d].kind == PARTIAL && to.on[d].reduction != SUM) to.on[d] = (struct placement){0};
    if (time != NONE && to.on[time].kind == SHARD)
      plan_error(op->line,
                 "metrics: %s has elements for each sample, and a step in micro-batches has none "
                 "with all of them: take a sum or a mean over the samples",
                 printable(value_name(term)));
    if (time != NONE) to.on[time] = (struct placement){.kind = PARTIAL, .reduction = SUM};
    if (!same_layout(graph->value[term].layout, to)) op->in[1] = as_layout(p, term, to, op);
    graph->value[op->in[0]].layout = graph->value[op->out].layout = over_time(to);
    graph->value[op->in[0]].placed = graph->value[op->out].placed = true;
    return;
  }
  /* A constant of zeros, which a scan carries: zeros are zeros in any layout. */
  if (op->kind == OP_full && op->asked) {
    graph->value[op->out].layout = op->to;
    graph->value[op->out].placed = true;
    return;
  }
  struct op_sharding sharding = choose_sharding(&p->uses, op);
  for (int i = 0; i < op->nin; i++) {
    op->in[i] = as_in_time(p, op->in[i], sharding.in[i], op);
    if (!same_layout(graph->value[op->in[i]].layout, sharding.in[i]))
      op->in[i] = as_layout(p, op->in[i], sharding.in[i], op);
  }
  for (int k = 0; k < op->nout; k++) {
    graph->value[op->out + k].layout = sharding.out[k];
    graph->value[op->out + k].placed = true;
  }
}

/* Lays out the operations order[first ... norder). */
static void lay_out(struct entering enters, const int *order, int first, int norder)
{
  struct propagating run = {.new_order = {.n = first,
                                          .room = graph->order_room,
                                          .at = graph->order},
                            .first_new = first,
                            .element = outermost_elements(),
                            .enters = enters,
                            .scan_now = NONE},
                     *p = &run;
  /* Collects the requests of the plan for the operations from here on. A redistribution of an
     output of the program serves only that output. */
  room_for_new(p);
  p->taken_in = wider(p->taken_in, &p->taken_room, graph->nvalue + 1);
  for (int at = 0; at < first; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    bool leaves = op->nout && (op->out == graph->loss || graph->value[op->out].is_output);
    note_taken(p, op);
    if (op->kind == OP_redistribute && !leaves) remember(p, graph->order[at]);
  }
  for (int at = first; at < norder; at++) {
    const struct op *op = &graph->op[order[at]];
    if (op->kind == OP_scan_hold) continue;
    note_taken(p, op);
    if (op->nout && is_of_metric(op->out)) continue; /* it takes any layout */
    int *first_of = op->kind == OP_redistribute ? p->uses.asked_of : p->uses.taken_by;
    for (int i = 0; i < op->nin; i++)
      if (first_of[op->in[i]] == NONE) first_of[op->in[i]] = order[at];
  }
  for (int at = first; at < norder; at++)
    if (graph->op[order[at]].kind == OP_scan_hold) {
      /* The last step's carry is treated like every other step's, as if another step read it.
         Otherwise the last step would choose a different layout. */
      const struct op *hold = &graph->op[order[at]];
      p->uses.taken_by[hold->in[0]] = p->uses.taken_by[hold->in[1]];
      p->uses.asked_of[hold->in[0]] = p->uses.asked_of[hold->in[1]];
    }
  enum phase entry = FORWARD;
  const int known = graph->nvalue;
  int *stands_for = alloc((size_t)(known + 1) * sizeof *stands_for);
  for (int v = 0; v < known; v++) stands_for[v] = v;
  for (int at = first; at < norder; at++) {
    struct op op = graph->op[order[at]]; /* a copy: adding operations moves the array */
    for (int i = 0; i < op.nin; i++)
      if (op.in[i] < known) op.in[i] = stands_for[op.in[i]];
    if (op.phase == DECODE && entry != DECODE) {
      for (int i = 0; i < p->value_room; i++)
        p->uses.moved_to[i] = NONE; /* an entry runs without the others */
      entry = DECODE;
    }
    note_scan(p, &op);
    if (op.kind == OP_redistribute) {
      const int alike = moved_alike(p, &op);
      if (alike != NONE) {
        stands_for[op.out] = alike;
        continue;
      }
      graph->value[op.out].layout = layout_after(&op, graph->value[op.in[0]].layout);
      graph->value[op.out].placed = true;
      remember(p, order[at]);
    } else if (!is_update(&op) && op.kind != OP_step_number) {
      place(p, &op);
    }
    graph->op[order[at]] = op;
    add(&p->new_order, order[at]);
  }
  graph->order = p->new_order.at;
  graph->norder = p->new_order.n;
  graph->order_room = p->new_order.room;
}

/* ----------------------------------------------------------------------------- carries of scans */

/* The operations as they were before they were laid out. */
struct before {
  int nvalue, nop;
  struct op *op;
};

static struct before remembered(const int *order, int first, int norder)
{
  struct before b = {graph->nvalue, graph->nop, alloc((size_t)(norder - first + 1) * sizeof *b.op)};
  for (int at = first; at < norder; at++) b.op[at - first] = graph->op[order[at]];
  return b;
}

/* The cache of what a scan carries is read before the layout of what is written to it is known: it
   gets that when all is laid out. Whether it had another. */
static bool place_kept_state(const struct op *keep, int known)
{
  enum { CACHE_OF_STATE = 0, WRITTEN = 1 };
  int written = keep->in[WRITTEN], maker = graph->value[written].op;
  while (maker >= known && graph->op[maker].kind == OP_redistribute) {
    written = graph->op[maker].in[0];
    maker = graph->value[written].op;
  }
  struct value *cache = &graph->value[keep->in[CACHE_OF_STATE]];
  bool cut = false;
  for (int d = 1; d < cache->shape.ndim; d++)
    cut |= cut_cache(cache, graph->value[written].layout, d, d);
  return cut;
}

void propagate_from(int first)
{
  enum { MOST_TIMES = 8 };
  int norder = graph->norder;
  struct list holds = {0}, keeps = {0};
  int *order = alloc((size_t)(norder + 1) * sizeof *order);
  if (norder) memcpy(order, graph->order, (size_t)norder * sizeof *order);
  const struct entering enters = entering_scans();
  for (int at = first; at < norder; at++)
    if (graph->op[order[at]].kind == OP_scan_hold)
      add(&holds, order[at]);
    else if (op_row[graph->op[order[at]].kind].keeps)
      add(&keeps, order[at]);
  struct before b = {0};
  if (holds.n || keeps.n) b = remembered(order, first, norder);
  for (int times = 0; times < MOST_TIMES; times++) {
    bool is_new = false;
    lay_out(enters, order, first, norder);
    for (int i = 0; i < holds.n; i++) {
      /* Asks that the first step's carry get the layout of the last step's. Returns whether it had
         another. */
      const struct op *hold = &graph->op[holds.at[i]];
      struct layout to = graph->value[hold->in[0]].layout;
      struct op *by = &graph->op[graph->value[hold->in[1]].op];
      bool set_layout = false;
      if (!same_layout(graph->value[by->out].layout, to)) {
        by->to = to;
        by->asked = (1u << graph->mesh.ndim) - 1;
        set_layout = true;
      }
      is_new |= set_layout;
    }
    for (int i = 0; i < keeps.n; i++) is_new |= place_kept_state(&graph->op[keeps.at[i]], b.nop);
    if (!is_new) return;
    /* Restores them, with the layouts that set_layout has set. */
    for (int at = first; at < norder; at++) {
      struct op *op = &graph->op[order[at]];
      struct layout to = op->to;
      unsigned asked = op->asked;
      *op = b.op[at - first];
      op->to = to;
      op->asked = asked;
    }
    graph->nvalue = b.nvalue;
    graph->nop = b.nop;
  }
  ended_early("propagate", "layouts that scans keep", MOST_TIMES, "times");
  lay_out(enters, order, first, norder);
}

/* An output of the program must not be pending. */
static int finish(int value, bool whole, const char *why)
{
  struct value v = graph->value[value];
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {value},
                  .module = outside_scans(v.module),
                  .line = v.line,
                  .phase = v.op == NONE ? FORWARD : graph->op[v.op].phase,
                  .type = v.type,
                  .backward_type = v.type,
                  .to = v.layout,
                  .asked = (1u << graph->mesh.ndim) - 1,
                  .why = why};
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (graph->mesh.microbatch_axis[d]) continue; /* the micro-batches add to it */
    if (whole || v.layout.on[d].kind == PARTIAL) op.to.on[d] = (struct placement){0};
    op.to.on[d].outer = 0;
  }
  op.to = usual_cut_order(op.to);
  int out = append_op(op);
  graph->value[out].name = value_name(value);
  graph->value[out].layout = op.to;
  graph->value[out].placed = true;
  return out;
}

static bool is_pending(int value)
{
  return is_pending_layout(&graph->value[value].layout);
}

/* A loss that is a sum over a count of the ranks: the sum becomes whole as the count does, ahead of
   the quotient, so that one collective serves both. Sums of several batches become whole once. */
static void finish_sum_of_loss(void)
{
  const int made_by = graph->value[graph->loss].op;
  if (made_by == NONE || plan_options->accumulate > 1 || time_dimension() != NONE) return;
  const struct op quotient = graph->op[made_by];
  if (quotient.kind != OP_div || !is_pending(quotient.in[0])) return;
  if (count_readers()[graph->loss] || graph->value[graph->loss].is_output) return;
  const int count = graph->value[quotient.in[1]].op;
  if (count == NONE || graph->op[count].kind != OP_redistribute) return;
  if (!is_pending(graph->op[count].in[0])) return;
  const int whole = finish(quotient.in[0], true, "the loss on every rank");
  int at = graph->norder - 1;
  for (; graph->order[at - 1] != made_by; at--) graph->order[at] = graph->order[at - 1];
  graph->order[at] = made_by;
  graph->order[at - 1] = graph->value[whole].op;
  graph->op[made_by].in[0] = whole;
  graph->value[graph->loss].layout = graph->value[whole].layout;
}

void propagate(void)
{
  check_sequence_order();
  defer_metrics(mask_metrics());
  follow_samples_to_outputs();
  for (int i = 0; i < graph->nvalue; i++)
    graph->value[i].layout = usual_cut_order(graph->value[i].layout);
  propagate_from(0);
  if (graph->loss != NONE) {
    finish_sum_of_loss();
    graph->loss = finish(graph->loss, true, "the loss on every rank");
    graph->value[graph->loss].role = LOSS;
  }
  for (int i = 0, n = graph->nvalue; i < n; i++) {
    if (!graph->value[i].is_output) continue;
    bool whole = graph->loss != NONE;
    const char *why =
        whole ? "a metric on every rank" : "an output is written without pending sums";
    int out = finish(i, whole, why);
    graph->value[i].is_output = false;
    graph->value[out].is_output = true;
    graph->value[out].name = graph->value[i].name;
    graph->value[out].rows = graph->value[i].rows;
  }
}
