/* ring.c: the pass `ring`: attention that goes around a ring of ranks.

   Takes   attention, and its gradient, for which the plan asks for a ring (ops.h: `ring`): queries
           are cut along that dimension of the mesh, and keys, values, and every other operand with
           a dimension of keys are gathered over it.
   Leaves  nothing gathered. Each rank has a block of the keys. A step is attention of the rank's
           queries over one block; then blocks move on to the next rank. The result of a step is
           attention over a part of the keys, and the logarithms of its rows' sums: a pair that is
           pending under their merge (ops.h: `merge`), here over the steps. Sums are in float32.

   The backward needs only the merged result, not that of each step. It goes the other way around:
   it begins with the last block of the forward, one step back. The gradients of a block travel
   along with it, and are complete when it is back on its owner.

   Steps whose block no rank needs, because of a window, are left out. If no query sees a key after
   it, no rank needs the block of a later rank. Then a block goes from rank to rank up to the last
   one, and not on to the first: ranks that need no block are idle in the exchange. In the backward
   blocks go the same way as in the forward, and each rank sends its gradients of a block back. */
#include "graph_passes/graph_passes.h"

#include <stdlib.h>
#include <string.h>

/* An operation that becomes steps. */
struct ring {
  struct op op; /* with its inputs as they are now */
  int mesh_dim, ranks, group;
  int step[MAX_SHIFT + 1], steps; /* those that are needed; a step is the distance in ranks from
                                     which its block comes */
  bool one_way;                   /* no rank needs the block of a later rank */
  bool travels[MAX_INPUTS];       /* the inputs that are cut in blocks, one on each rank */
  bool is_whole[MAX_INPUTS];      /* those that every rank has whole; they are not sent */
  int along[MAX_INPUTS];          /* their dimension of the keys */
  int own[MAX_INPUTS];            /* the inputs with the rank's own block */
  int block[MAX_INPUTS];          /* the inputs of the current step */
  int *stands_for;                /* by value: its replacement */
};

/* --------------------------------------------------------------------------- adding operations */

static struct op like(const struct ring *r, enum op_kind kind)
{
  return (struct op){.kind = kind,
                     .module = r->op.module,
                     .line = r->op.line,
                     .phase = r->op.phase,
                     .part_of = r->op.part_of};
}

static int placed(int value, struct layout layout, int named)
{
  struct value *v = &graph->value[value];
  v->layout = layout;
  v->placed = true;
  v->name = value_name(named);
  v->of = graph->value[named].of;
  return value;
}

static int cast_to(const struct ring *r, int value, enum type type)
{
  if (graph->value[value].type == type) return value;
  struct op op = like(r, OP_cast);
  op.nin = 1;
  op.in[0] = value;
  op.type = type;
  return placed(append_op(op), graph->value[value].layout, value);
}

static int binary(const struct ring *r, enum op_kind kind, int a, int b)
{
  struct op op = like(r, kind);
  op.nin = 2;
  op.in[0] = a;
  op.in[1] = b;
  return placed(append_op(op), graph->value[a].layout, a);
}

/* From each rank to the one that has, or wants, the block of the rank `step` places before it. */
static int sent(const struct ring *r, int value, int step, int idle_first, int idle_last)
{
  const struct value v = graph->value[value];
  struct layout to = v.layout;
  to.on[r->mesh_dim].shift = (unsigned)step;
  if (same_layout(v.layout, to)) return value;
  struct exchange e = {.whole = v.shape, .type = v.type, .group = r->group};
  e.move = (struct move){.kind = OP_exchange, .n = 1, .dim = {r->mesh_dim}};
  e.move.from = v.layout;
  e.move.to = to;
  e.move.idle_first = idle_first;
  e.move.idle_last = idle_last;
  struct op op = like(r, OP_exchange);
  op.nin = 1;
  op.in[0] = value;
  op.group = r->group;
  op.exchange = add_exchange(e);
  op.why = step ? "the next block of the ring" : "the gradients of a block go back to its owner";
  return placed(append_op_shaped(op, v.shape), to, value);
}

/* The block that the rank holds in a step: that of the rank `step` places before it. */
static int passed_on(const struct ring *r, int value, int step)
{
  return sent(r, value, step, r->one_way ? step : 0, 0);
}

/* ----------------------------------------------------------------------------------- the blocks */

/* The value before it was gathered: follows its redistributions back. */
static int before_gather(const struct ring *r, int value, struct placement cut)
{
  for (int from = value;; from = graph->op[graph->value[from].op].in[0]) {
    const struct value *v = &graph->value[from];
    if (v->type != graph->value[value].type) return value;
    if (same_placement(v->layout.on[r->mesh_dim], cut)) return from;
    if (v->op == NONE || graph->op[v->op].kind != OP_redistribute) return value;
  }
}

/* The block of the rank `step` places before this one, of a gathered value; or of a whole value,
   such as places that every rank computes: then nothing is sent. */
static int block_of(const struct ring *r, int value, int dim, int step, bool *is_whole)
{
  struct layout want = graph->value[value].layout;
  want.on[r->mesh_dim] = (struct placement){.kind = SHARD, .dim = dim};
  want = usual_cut_order(want);
  int from = before_gather(r, value, want.on[r->mesh_dim]);
  *is_whole = graph->value[from].layout.on[r->mesh_dim].kind == REPLICATE;
  if (*is_whole) want.on[r->mesh_dim].shift = (unsigned)step;
  if (same_layout(graph->value[from].layout, want)) return from;
  struct op op = like(r, OP_redistribute);
  op.nin = 1;
  op.in[0] = from;
  op.type = op.backward_type = graph->value[from].type;
  op.to = want;
  op.asked = dimensions_of_ranks();
  op.why = "a block of the ring";
  return placed(append_op(op), want, from);
}

/* Passes on to the blocks of the n-th step. */
static void pass_blocks_on(struct ring *r, int n)
{
  for (int i = 0; i < r->op.nin; i++) {
    if (!r->travels[i]) continue;
    r->block[i] = n == 0 ? r->own[i]
                  : r->is_whole[i]
                      ? block_of(r, r->op.in[i], r->along[i], r->step[n], &r->is_whole[i])
                      : passed_on(r, r->block[i], r->step[n]);
  }
}

/* Whether other dimensions of the mesh cut the sequence of the queries before the ring's one does:
   then a rank's queries belong to another block than its keys. */
static bool is_cut_before(const struct ring *r, int queries)
{
  struct layout l = graph->value[queries].layout;
  struct placement own = l.on[r->mesh_dim];
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = l.on[d];
    bool first = p.cut_order < own.cut_order || (p.cut_order == own.cut_order && d < r->mesh_dim);
    if (p.kind == SHARD && p.dim == own.dim && first && graph->mesh.size[d] > 1) return true;
  }
  return false;
}

/* Whether a query sees a key that is `away` parts away, in a sequence of so many parts. */
static bool reaches(const struct ring *r, int64_t keys, int parts, int away)
{
  int64_t reach = reach_of(&r->op), part = chunk_size(keys, parts, 0);
  return away == 0 || !reach || (away - 1) * part + 1 < reach;
}

/* Whether some rank needs the block of the rank `step` places before it; on the ring, that is also
   the rank `ranks - step` places after it. */
static bool is_needed(const struct ring *r, int64_t keys, int step)
{
  if (!number_of(&r->op, "headtail"))
    return reaches(r, keys, r->ranks, step) ||
           (!number_of(&r->op, "causal") && reaches(r, keys, r->ranks, r->ranks - step));
  for (int rank = 0; rank < r->ranks; rank++) {
    /* Whether the rank's queries see a key of the block of the rank `step` places before it. In
       head-tail order each rank has a part at the head of the sequence and one at its tail. */
    int parts = 2 * r->ranks, before = (rank - step + r->ranks) % r->ranks;
    int query[] = {rank, parts - 1 - rank}, key[] = {before, parts - 1 - before};
    bool sees_balanced = false;
    for (int i = 0; i < 4 && !sees_balanced; i++) {
      int away = query[i / 2] - key[i % 2];
      bool hidden = away < 0 && number_of(&r->op, "places") == 1;
      sees_balanced = !hidden && reaches(r, keys, parts, abs(away));
    }
    if (sees_balanced) return true;
  }
  return false;
}

/* ------------------------------------------------------------------------------------ the steps */

/* The operation on the current block; its first output. */
static int step_of(const struct ring *r, int n)
{
  struct op op = r->op;
  struct shape shape[MAX_OUTPUTS];
  struct layout layout[MAX_OUTPUTS];
  /* The rule of a step, whose keys begin anywhere. */
  static const char row[] = "b(gr)q@d!,bgk!d!,bgk!e!";
  const char *rule = rule_of(&op);
  op.equation = rule;
  if (op.kind == OP_attention) {
    const char *rest = rule + strlen(row), *arrow = strstr(rule, "->");
    op.equation =
        text("b(gr)q@d!,bgk@d!,bgk@e!%.*s->b(gr)qe!,b(gr)q:max:f32", (int)(arrow - rest), rest);
  }
  set_number(&op, "ring", -number_of(&op, "ring"));
  memcpy(op.in, r->block, sizeof op.in);
  if (n > 0 && number_if_any(&op, "sinks")) {
    /* The sinks count once: only the first step takes them. */
    const char *end = strstr(op.equation, ",(gr)->");
    op.equation = text("%.*s%s", (int)(end - op.equation), op.equation, end + strlen(",(gr)"));
    set_number(&op, "sinks", 0);
    op.nin--;
  }
  for (int k = 0; k < op.nout; k++) {
    shape[k] = graph->value[r->op.out + k].shape;
    layout[k] = graph->value[r->op.out + k].layout;
    if (layout[k].on[r->mesh_dim].kind == PARTIAL)
      layout[k].on[r->mesh_dim] = graph->value[op.in[2]].layout.on[r->mesh_dim];
  }
  int out = append_op_outputs(op, shape, op.nout);
  for (int k = 0; k < op.nout; k++) {
    graph->value[out + k].type = graph->value[r->op.out + k].type;
    placed(out + k, layout[k], r->op.out + k);
  }
  return out;
}

/* The logarithms [b, h, q] as [b, h, q, 1]. */
static int as_column(const struct ring *r, int value)
{
  struct shape from = graph->value[value].shape, to = from;
  to.size[to.ndim++] = 1;
  struct op op = like(r, OP_view);
  op.nin = 1;
  op.in[0] = value;
  op.equation = view_equation(from, to, r->op.line);
  return placed(append_op_shaped(op, to), graph->value[value].layout, value);
}

static void go_forward(struct ring *r)
{
  enum type type = graph->value[r->op.out].type;
  int out = NONE, logs = NONE, next[MAX_INPUTS];
  for (int n = 0; n < r->steps; n++) {
    struct ring ahead = *r;
    if (n + 1 < r->steps) pass_blocks_on(&ahead, n + 1);
    memcpy(next, ahead.block, sizeof next);
    int made = step_of(r, n), part = cast_to(r, made, F32);
    if (n == 0) {
      out = r->steps > 1 ? part : made;
      logs = made + 1;
    } else {
      struct op op = like(r, OP_merge);
      op.nin = 4;
      op.in[0] = out;
      op.in[1] = as_column(r, logs);
      op.in[2] = part;
      op.in[3] = as_column(r, made + 1);
      out = placed(append_op(op), graph->value[out].layout, r->op.out);
      logs = binary(r, OP_merge_logs, logs, made + 1);
    }
    memcpy(r->block, next, sizeof next);
  }
  r->stands_for[r->op.out] = cast_to(r, out, type);
  r->stands_for[r->op.out + 1] = logs;
}

/* A sum so far, or NONE, plus the term of a step; of several steps in float32. */
static int added(const struct ring *r, int sum, int part)
{
  if (r->steps > 1) part = cast_to(r, part, F32);
  return sum == NONE ? part : binary(r, OP_add, sum, part);
}

/* All blocks go to every rank. */
static void go_backward_around(struct ring *r, int *sum)
{
  pass_blocks_on(r, r->steps - 1);
  for (int n = r->steps - 1; n >= 0; n--) {
    struct ring ahead = *r;
    if (n > 0) pass_blocks_on(&ahead, n - 1);
    int made = step_of(r, n);
    for (int k = 0; k < 3; k++) {
      sum[k] = added(r, sum[k], made + k);
      if (k > 0 && n > 0) sum[k] = passed_on(r, sum[k], r->step[n - 1]);
    }
    memcpy(r->block, ahead.block, sizeof ahead.block);
  }
}

/* Blocks go only to later ranks. */
static void go_backward_one_way(struct ring *r, int *sum)
{
  for (int n = 0; n < r->steps; n++) {
    struct ring ahead = *r;
    if (n + 1 < r->steps) pass_blocks_on(&ahead, n + 1);
    int made = step_of(r, n);
    for (int k = 0; k < 3; k++) {
      int part = r->steps > 1 ? cast_to(r, made + k, F32) : made + k;
      if (k > 0) {
        /* The gradients of this rank's block, from the rank `step` places after it. */
        int step = r->step[n];
        part = sent(r, part, 0, 0, step);
      }
      sum[k] = added(r, sum[k], part);
    }
    memcpy(r->block, ahead.block, sizeof ahead.block);
  }
}

/* ------------------------------------------------------------------------------------- the pass */

static bool is_cut_along(int value, int mesh_dim)
{
  return graph->value[value].layout.on[mesh_dim].kind == SHARD;
}

static void go_around(void *unused, const struct op *op, int *stands_for)
{
  (void)unused;
  struct ring r = {.op = *op, .mesh_dim = (int)number_of(op, "ring") - 1, .stands_for = stands_for};
  bool back = op->kind == OP_attention_back;
  int q = op->in[back], k = op->in[1 + back];
  r.ranks = graph->mesh.size[r.mesh_dim];
  if (!is_cut_along(q, r.mesh_dim) || is_cut_along(k, r.mesh_dim))
    plan_error(op->line,
               "a ring over %s needs queries that are cut along their sequence there, not %s",
               printable(graph->mesh.name[r.mesh_dim]), layout_text(graph->value[q].layout));
  /* The steps whose block some rank needs; all steps, if places are in an unknown order, or in
     head-tail order with parts of several sizes. */
  int64_t keys = graph->value[k].shape.size[2];
  bool ordered = !number_of(&r.op, "places"), headtail = number_of(&r.op, "headtail");
  bool any = is_cut_before(&r, q) || !(ordered || (headtail && keys % (2 * r.ranks) == 0));
  r.steps = 0;
  r.one_way = number_of(&r.op, "causal") && !any;
  for (int step = 0; step < r.ranks; step++)
    if (any || is_needed(&r, keys, step)) r.step[r.steps++] = step;
  r.group = add_ordered_group(1, &r.mesh_dim);
  struct letters l;
  op_letters(&r.op, &l);
  for (int i = 0; i < r.op.nin; i++) {
    /* The dimension of operand i that has the letter, or NONE. */
    char letter = 'k';
    const struct axis *axis = i < r.op.nin ? l.in[i] : l.out[i - r.op.nin];
    int ndim = i < r.op.nin ? l.ndim_in[i] : l.ndim_out[i - r.op.nin];
    int dimension = NONE;
    for (int d = 0; d < ndim && dimension == NONE; d++)
      if (axis[d].n == 1 && l.name[axis[d].letter[0]] == letter) dimension = d;
    r.along[i] = dimension;
    r.travels[i] = r.along[i] != NONE;
    r.own[i] = r.op.in[i];
    if (r.travels[i]) r.own[i] = block_of(&r, r.op.in[i], r.along[i], 0, &r.is_whole[i]);
    r.block[i] = r.own[i];
  }
  if (back) {
    int sum[3] = {NONE, NONE, NONE}; /* the gradients of q, k and v */
    if (r.one_way)
      go_backward_one_way(&r, sum);
    else
      go_backward_around(&r, sum);
    for (int i = 0; i < 3; i++)
      r.stands_for[r.op.out + i] = cast_to(&r, sum[i], graph->value[r.op.out + i].type);
  } else
    go_forward(&r);
}

static bool is_ring(const struct op *op)
{
  return number_if_any(op, "ring") > 0;
}

void ring(void)
{
  if (!replace_each(is_ring, go_around, NULL)) return;
  /* Removes redistributions that gathered values only for attention: nothing reads them any more.
   */
  int *readers = count_readers(), n = 0;
  for (int at = graph->norder - 1; at >= 0; at--) {
    const struct op *op = &graph->op[graph->order[at]];
    if (op->kind != OP_redistribute || readers[op->out]) continue;
    const struct value *v = &graph->value[op->out];
    if (v->role != ACTIVATION || v->is_output || graph->loss == op->out) continue;
    readers[op->in[0]]--;
    graph->order[at] = NONE;
  }
  for (int at = 0; at < graph->norder; at++)
    if (graph->order[at] != NONE) graph->order[n++] = graph->order[at];
  graph->norder = n;
}
